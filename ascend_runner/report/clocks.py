"""The clock of this node in its report, which allows comparing the times of several nodes."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import attrs

from ascend_runner.node import clock
from ascend_runner.node.clock import Clock
from ascend_runner.observations.rank_record import Outcome
from ascend_runner.plan.spec import JobSpec
from ascend_runner.report.write_queue import WriteQueue

LIMIT: Final = 0.5  # seconds for a disk to return its time


def with_disk(outcome: Outcome, spec: JobSpec, writes: WriteQueue, limit: float) -> Outcome:
    """Compare the clock with that of the disk with the logs, after a failure of one of several nodes.

    The result has no time of a disk that does not respond within LIMIT, or within `limit` if that is less.
    """
    if outcome.clock is None or outcome.cause is None or spec.nodes[0] == 1:
        return outcome
    found: list[tuple[float, float]] = []

    def compare() -> None:
        with suppress(OSError):
            if clock.is_of_disk(spec.report_path):
                found.append(clock.compare_with_disk(spec.report_path))

    writes.put(spec.report_path, compare)
    writes.wait(min(limit, LIMIT))
    for offset, round_trip in found[:1]:
        compared = attrs.evolve(outcome.clock, disk_offset=offset, disk_round_trip=round_trip)
        return attrs.evolve(outcome, clock=compared)
    return outcome


def member(found: Clock) -> dict[str, object]:
    """Return the member of the report; see `node.clock.Clock`."""
    seconds = attrs.asdict(found)
    return {
        **{name: value and round(value, 6) for name, value in seconds.items()},
        "is_synchronized": found.is_synchronized,
    }

"""The clock of a node in its report: when it is compared with that of the disk."""

from __future__ import annotations

import threading
from pathlib import Path

import attrs

from ascend_runner.node.clock import Clock
from ascend_runner.observations.rank_record import Outcome
from ascend_runner.report import clocks
from ascend_runner.report.write_queue import WriteQueue
from ascend_runner.supervision.causes import Ending, Exited
from tests.helpers import plans
from tests.helpers.waiting import LIMIT

CLOCK = Clock(wall_start=0.0, monotonic_start=0.0, wall_end=1.0, monotonic_end=1.0)
FAILED = Outcome(cause=Exited(0, Ending(exit_code=1)), clock=CLOCK)


def ignore(_warning: str) -> None:
    """Take a warning."""


def test_local_disk(tmp_path: Path) -> None:
    """A disk that is no server's has no time of its own, and its file stays as it is."""
    spec = attrs.evolve(plans.job_spec((), log_dir=str(tmp_path)), nodes=(2, 2), node_number=1)
    path = Path(spec.report_path)
    path.touch()
    before = path.stat().st_mtime_ns

    assert clocks.with_disk(FAILED, spec, WriteQueue(ignore), LIMIT) is FAILED
    assert before == path.stat().st_mtime_ns


def test_hung_disk(tmp_path: Path) -> None:
    """A disk that does not respond is waited for as long as the limit says, and gives no time."""
    spec = attrs.evolve(plans.job_spec((), log_dir=str(tmp_path)), nodes=(2, 2), node_number=1)
    writes, is_back = WriteQueue(ignore), threading.Event()

    def hang() -> None:
        is_back.wait()

    writes.put("path", hang)

    assert clocks.with_disk(FAILED, spec, writes, 0.0) is FAILED
    is_back.set()
    assert writes.wait(LIMIT)


def test_no_comparison(tmp_path: Path) -> None:
    """A job of one node, and one that has succeeded, do not touch the disk."""
    single = plans.job_spec((), log_dir=str(tmp_path / "missing"))
    several = attrs.evolve(single, nodes=(2, 2), node_number=1)
    writes = WriteQueue(ignore)

    assert clocks.with_disk(FAILED, single, writes, LIMIT) is FAILED
    succeeded = attrs.evolve(FAILED, cause=None)
    assert clocks.with_disk(succeeded, several, writes, LIMIT) is succeeded

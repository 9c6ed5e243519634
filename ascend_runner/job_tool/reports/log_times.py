"""Reads from the logs of several nodes the times by which their clocks can be compared: their ends, and their steps."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from typing import Final

import attrs

from ascend_runner import files
from ascend_runner.members import Members
from ascend_runner.merge.case import UNWRITTEN
from ascend_runner.merge.model import Node
from ascend_runner.training import steps

END: Final = 16 * 1024  # bytes of a log
STEPS: Final = 16  # steps that are compared at most
TOLERANCE: Final = 1.0  # seconds
_STAMP: Final = re.compile(rb"(20\d\d)[-/](\d\d)[-/](\d\d)[ T](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,6}))?")


def with_times(nodes: Iterable[Node], reports: Mapping[int, Members], logs: Mapping[int, str]) -> Iterator[Node]:
    """Yield the nodes with the times that their logs have."""
    nodes = list(nodes)
    ends = {node.number: _end(node, logs) for node in nodes}
    are_kept = _are_of_the_disk(nodes, ends, reports)
    for node in nodes:
        zone = _zone(reports[node.number]) if node.has_report else None
        found = _steps(node, logs, zone) if zone else {}
        yield attrs.evolve(node, log_end=ends[node.number] if are_kept else None, steps=found)


def _end(node: Node, logs: Mapping[int, str]) -> float | None:
    """Return the newest time of modification of a node's logs."""
    times = []
    for rank_id in node.rank_ids:
        with suppress(KeyError, OSError, ValueError):
            times.append(os.stat(logs[rank_id], follow_symlinks=False).st_mtime)
    return max(times, default=None)


def _are_of_the_disk(nodes: Iterable[Node], ends: Mapping[int, float | None], reports: Mapping[int, Members]) -> bool:
    """Whether the times of the files are those that the disk gave them: not those of a copy, which would be newer.

    Some nodes must know its clock, and for each of them they must be those of the last output.
    """
    compared = [node for node in nodes if node.clock.disk_offset is not None]
    return bool(compared) and all(_is_kept(node, ends[node.number], reports[node.number]) for node in compared)


def _is_kept(node: Node, end: float | None, report: Members) -> bool:
    outputs = [rank.moment("last_output_at") for rank in report.children("ranks")]
    last = max((at for at in outputs if at is not None), default=None)
    if end is None or last is None:
        return False
    late = end - (last + node.clock.step + (node.clock.disk_offset or 0.0))
    margin = node.clock.round_trip + TOLERANCE
    return -margin <= late <= margin + UNWRITTEN


def _zone(report: Members) -> timezone | None:
    with suppress(ValueError):
        offset = datetime.fromisoformat(report.text("started_at")).utcoffset()
        return timezone(offset) if offset is not None else None
    return None


def _steps(node: Node, logs: Mapping[int, str], zone: timezone) -> dict[int, float]:
    """Return the times of the last steps, from the log of the first or the last rank: others rarely print them."""
    for rank_id in dict.fromkeys((*node.rank_ids[:1], *node.rank_ids[-1:])):
        if rank_id in logs:
            found = dict(_steps_in(files.read_end(logs[rank_id], END), zone))
            if found:
                return dict(sorted(found.items())[-STEPS:])
    return {}


def _steps_in(data: bytes, zone: timezone) -> Iterator[tuple[int, float]]:
    for line in data.splitlines():
        step, stamp = steps.parse(line), _STAMP.search(line[: steps.LONGEST])
        if step and step.step is not None and stamp:
            with suppress(ValueError, OverflowError):
                parts = list(map(int, stamp.groups()[:6]))
                fraction = int((stamp[7] or b"0").ljust(6, b"0"))
                yield step.step, (datetime(*parts, tzinfo=zone) + timedelta(microseconds=fraction)).timestamp()  # type: ignore[arg-type,misc]  # six numbers

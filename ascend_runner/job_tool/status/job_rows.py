"""The jobs as `ascend-job list` shows them, a line each, in the width of the terminal. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from ascend_runner.job_tool.job.snapshot import STATES, Condition, Snapshot
from ascend_runner.secrets import Masker
from ascend_runner.text import SPACE, clock, columns, duration, printable

HEADS: Final = ("job", "state", "pid", "started", "took", "logs")
JOB, _STATE, PID, STARTED, _TOOK, LOGS = range(len(HEADS))
NOT_KNOWN: Final = {Condition.RUNNER_KILLED, Condition.UNKNOWN}  # when, or whether, it has ended
WITHOUT_ZONE: Final = slice(len("2026-11-22 09:47:36"))  # the part of a time from text.clock() before the zone
DAY_AND_MINUTE: Final = slice(len("2026-"), len("2026-11-22 09:47"))
CUT: Final = "..."
CUT_AT: Final = {JOB: 5, LOGS: 0}  # characters after which a name or a path is cut; the ends differ most
SHORTEST: Final = {JOB: 12, LOGS: 20}  # characters; a path for which there is less room is left out


def lines(snapshots: Sequence[Snapshot], now: float, width: int | None = None) -> Iterator[str]:
    """Yield the lines of a table with at most `width` characters each.

    If it is too wide, these are left out, as many as is necessary: the zone of the times, the beginnings of paths,
    years and seconds, the paths, the pids, and the middle of names.
    """
    rows = [_cells(snapshot, now) for snapshot in snapshots]
    yield from columns(HEADS, rows if width is None else _fitting(rows, width))


def seconds(snapshot: Snapshot, now: float) -> float:
    """Return how long a job has taken so far, or until it ended."""
    ended = 0.0 if snapshot.condition is Condition.RUNNING else snapshot.report.moment("ended_at")  # else an attempt's
    return max(0.0, (ended or now) - snapshot.job.began)


def _cells(snapshot: Snapshot, now: float) -> list[str]:
    cells = (
        Masker().text(snapshot.job.name),
        _state(snapshot),
        str(snapshot.job.pid) if snapshot.is_alive else "",
        clock(snapshot.job.began),
        duration(seconds(snapshot, now)) if snapshot.condition not in NOT_KNOWN else "",
        Masker().text(snapshot.job.log_dir),
    )
    return [*map(printable, cells)]


def _state(snapshot: Snapshot) -> str:
    """Describe the state of a job in a word or two: "running", "failed (1)", "runner killed"."""
    status, state = snapshot.report.number("status"), snapshot.report.text("state")
    if snapshot.condition is Condition.UNKNOWN and snapshot.is_alive is False:
        return "ended"  # its report is gone
    if snapshot.condition in NOT_KNOWN or state not in STATES:
        return snapshot.condition.value
    return f"{state} ({status:.0f})" if status else state


def _fitting(rows: Sequence[Sequence[str]], width: int) -> list[list[str]]:
    """Return the rows as they fit into a width."""
    short, shorter = (
        [_with(row, STARTED, row[STARTED][part]) for row in rows] for part in (WITHOUT_ZONE, DAY_AND_MINUTE)
    )
    without_paths = [_with(row, LOGS, "") for row in shorter]
    without_pids = [_with(row, PID, "") for row in without_paths]
    stages = ([[*row] for row in rows], short, _clipped(short, LOGS, width), _clipped(shorter, LOGS, width))
    found = next((stage for stage in (*stages, without_paths) if _width(stage) <= width), without_pids)
    return _clipped(found, JOB, width)


def _clipped(rows: Sequence[Sequence[str]], index: int, width: int) -> list[list[str]]:
    """Return rows with the cells of one column clipped to the room that there is."""
    room = width - _width([_with(row, index, "") for row in rows]) - len(SPACE)
    return [_with(row, index, _cut(row[index], max(room, SHORTEST[index]), CUT_AT[index])) for row in rows]


def _cut(text: str, room: int, at: int) -> str:
    """Return a text without the part that begins after `at` characters, if it is too long."""
    return text if len(text) <= room else text[:at] + CUT + text[at + len(CUT) - room :]


def _with(row: Sequence[str], index: int, cell: str) -> list[str]:
    return [*row[:index], cell, *row[index + 1 :]]


def _width(rows: Sequence[Sequence[str]]) -> int:
    return max(map(len, columns(HEADS, rows)))

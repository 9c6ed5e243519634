"""Decodes the board of a job. Pure: bytes and the time in, records out.

The bytes are untrusted, and the runner may be writing while they are read. So every field may have any value: values
out of range count as unknown, and text is escaped.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final

import attrs

from ascend_runner import activity
from ascend_runner.board import layout
from ascend_runner.members import LATEST
from ascend_runner.observations.rank_record import RankRecord, RankState
from ascend_runner.secrets import Masker
from ascend_runner.supervision.causes import Ending
from ascend_runner.supervision.state import Phase
from ascend_runner.text import last_lines, number_within, printable

LARGEST: Final = 1 << 24  # bytes of a board, enough for 10,000 ranks
LARGEST_PID: Final = 1 << 22  # the kernel's limit (proc(5), pid_max)
LARGEST_SIGNAL: Final = 64
LARGEST_CODE: Final = 255
CUT_WORDS: Final = 3  # as in "password = x"


@attrs.frozen(kw_only=True)
class View:
    """The board of an attempt at a moment, `seconds` after the start of the attempt.

    `began` and `limit_at`, the end of the time limit (None: no limit), are in seconds since the epoch. `local_ranks`
    are by rank. `last_step` is as in the report, if the steps of the training are read.
    """

    phase: Phase
    runner_pid: int
    began: float
    seconds: float
    limit_at: float | None
    last_step: Mapping[str, object] | None
    ranks: tuple[RankRecord, ...]
    local_ranks: dict[int, int]


def decode(data: bytes, now: float) -> View:
    """Decode a board; `now` is the time on the monotonic clock.

    Raises:
        ValueError: It is not a board of this layout.
    """
    try:
        magic, *numbers, wall, zero = layout.HEAD.unpack_from(data)
        phase, _since = layout.PHASE.unpack_from(data, layout.PHASE_AT)
        (deadline,) = layout.LIMIT.unpack_from(data, layout.LIMIT_AT)
    except struct.error:
        raise ValueError("the board is too short") from None
    version, size, count, _attempt, runner_pid = numbers
    began, start, limit = _number(wall), _number(zero), _after(deadline, zero)
    if (magic, version, size) != (layout.MAGIC, layout.LAYOUT, layout.RECORD) or phase >= len(layout.PHASES):
        raise ValueError("it is not a board, or it was written by another version")
    if len(data) != layout.RANKS_AT + count * size or began is None or start is None:
        raise ValueError("the board is damaged")

    places = range(layout.RANKS_AT, len(data), size)
    seconds = max(0.0, now - start)
    ranks = {rank.rank_id: rank for rank in (_rank(data[place : place + size], start, seconds) for place in places)}
    who = (layout.WHO.unpack_from(data, place) for place in places)
    return View(
        phase=layout.PHASES[phase],
        runner_pid=runner_pid if runner_pid <= LARGEST_PID else 0,
        began=began,
        seconds=seconds,
        limit_at=None if limit is None else began + limit,
        last_step=_step(data, began, start),
        ranks=tuple(rank for _rank_id, rank in sorted(ranks.items())),
        local_ranks={rank_id: local_rank for rank_id, local_rank, _name in who},
    )


def _state(ending: Ending | None, *, is_started: bool, is_stopped: bool) -> RankState:
    if not (is_started and ending):
        return RankState.RUNNING if is_started else RankState.NOT_STARTED
    if is_stopped:
        return RankState.STOPPED
    return RankState.SUCCEEDED if ending.is_success else RankState.FAILED


def _step(data: bytes, began: float, start: float) -> Mapping[str, object] | None:
    step, steps, seconds, at = layout.STEP.unpack_from(data, layout.STEP_AT)
    after = _after(at, start)
    if after is None:
        return None
    return {"step": step or None, "steps": steps or None, "seconds": _number(seconds) or None, "at": began + after}


def _rank(data: bytes, began: float, now: float) -> RankRecord:
    rank_id, _local_rank, name = layout.WHO.unpack_from(data)
    pid, started_at = layout.STARTED.unpack_from(data, layout.STARTED_AT)
    started = _after(started_at, began)
    ending, ended = _ending(data, began)
    (stopped,) = layout.STOPPED.unpack_from(data, layout.STOPPED_AT)
    output = data[layout.ACTIVITY_AT :]
    first_at, lost, cell_seconds, latest = activity.HEAD.unpack_from(output)
    last_at, size, end = activity.LATEST.unpack(latest)
    counts = struct.unpack_from(f"={activity.CELLS}Q", output, activity.HEAD.size)
    return RankRecord(
        rank_id=rank_id,
        ending=ending,
        state=_state(ending, is_started=started is not None, is_stopped=bool(stopped)),
        name=printable(name.rstrip(b"\0").decode(errors="replace")).replace("\t", " "),
        pid=pid if pid <= LARGEST_PID else 0,
        started_after=started or 0.0,
        seconds=max(0.0, (now if ended is None else ended) - started) if started is not None else 0.0,
        first_output_after=_after(first_at, began),
        last_output_after=_after(last_at, began),
        signals=_signals(data, began),
        activity=counts,
        cell_seconds=_number(cell_seconds) or 0.0,
        log_size=size,
        log_lost=lost,
        last_lines=end_lines(end, size)[-1:],
    )


def _ending(data: bytes, began: float) -> tuple[Ending | None, float | None]:
    exit_code, signum, core_dumped, at = layout.ENDED.unpack_from(data, layout.ENDED_AT)
    ended = _after(at, began)
    if ended is None or not (0 <= exit_code <= LARGEST_CODE and signum <= LARGEST_SIGNAL):
        return None, None
    return Ending(exit_code, signum, bool(core_dumped)), ended


def _signals(data: bytes, began: float) -> tuple[tuple[int, float], ...]:
    places = range(layout.SENT_AT, layout.ACTIVITY_AT, layout.SENT.size)
    sent = (layout.SENT.unpack_from(data, place) for place in places)
    known = ((signum, _after(at, began)) for signum, at in sent if 0 < signum <= LARGEST_SIGNAL)
    return tuple((signum, after) for signum, after in known if after is not None)


def end_lines(end: bytes, size: int) -> tuple[str, ...]:
    """Return the last lines of an output of `size` bytes from its end, without secrets."""
    end = end[: min(size, len(end))]
    if size > len(end):
        end = end.partition(b"\n")[2] if b"\n" in end.rstrip() else after_secret(end)
    return tuple(line.replace("\t", " ") for line in last_lines(Masker().data(end)))


def after_secret(cut: bytes) -> bytes:
    """Return a line that was cut off, without its first words, which may be the rest of a secret and of its name."""
    return b"".join(cut.split(maxsplit=CUT_WORDS)[CUT_WORDS:])


def _after(at: float, began: float) -> float | None:
    """Return a time in seconds since the start, or None if it is unknown."""
    number = _number(at)
    return number - began if number and number >= began else None


def _number(value: float) -> float | None:
    """Return a number if it is in range, which NaN is not."""
    return number_within(value, LATEST)

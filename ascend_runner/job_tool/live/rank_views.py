"""The ranks of a job as they are shown, made from its board or its report. Pure."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import attrs

from ascend_runner.board.reader import View
from ascend_runner.html_report.ranks import words_of
from ascend_runner.job_tool.job.snapshot import Snapshot
from ascend_runner.job_tool.live.view import RankView, State
from ascend_runner.members import Members
from ascend_runner.observations.rank_record import RankRecord
from ascend_runner.observations.rank_states import described
from ascend_runner.text import printable

MOST_CELLS: Final = 96  # cells of the output over time


def of_board(view: View, gone: Collection[int]) -> list[RankView]:
    """Return the ranks of an attempt that has a board; those that are `gone` have ended without the runner."""
    ranks = [_of_record(rank, view) for rank in view.ranks]
    return [attrs.evolve(rank, state=State.ENDED, quiet=None) if rank.rank_id in gone else rank for rank in ranks]


def _of_record(rank: RankRecord, view: View) -> RankView:
    state = State[rank.state.name]
    last = rank.started_after if rank.last_output_after is None else rank.last_output_after
    return RankView(
        rank_id=rank.rank_id,
        state=State.STOPPING if state is State.RUNNING and rank.signals else state,
        ending=described(rank.state, rank.ending) if rank.ending else "",
        name=rank.name,
        pid=rank.pid,
        npu=view.local_ranks.get(rank.rank_id) if rank.rank_id >= 0 else None,
        quiet=max(0.0, view.seconds - last) if rank.is_running else None,
        over=max(0.0, view.seconds - rank.ended_after) if rank.ending else None,
        output=_output(rank),
        last_lines=rank.last_lines,
    )


def _output(rank: RankRecord) -> tuple[int, ...]:
    """Return the cells until now. Those of a rank that is quiet end with its last output."""
    if not rank.is_started or rank.cell_seconds <= 0:
        return ()
    cells, seconds, length = list(rank.activity), rank.cell_seconds, rank.started_after + rank.seconds
    while length / seconds > MOST_CELLS:
        cells = [sum(cells[index : index + 2]) for index in range(0, len(cells), 2)]
        seconds *= 2
    count = max(1, int(length / seconds))
    return tuple(cells[:count]) + (0,) * (count - len(cells))


def of_report(snapshot: Snapshot, now: float) -> list[RankView]:
    """Return the ranks of a job without a board that can be read from here; `now` is in seconds since the epoch."""
    return [_of_members(rank_id, rank, snapshot, now) for rank_id, rank in snapshot.ranks.items()]


def _of_members(rank_id: int, rank: Members, snapshot: Snapshot, now: float) -> RankView:
    word, ended = rank.text("state"), rank.moment("ended_at")
    state = State.__members__.get(word.upper(), State.ENDED)
    return RankView(
        rank_id=rank_id,
        state=state,
        ending="" if state.is_running or state is State.ENDED else words_of(rank, word),
        is_culprit=rank_id == snapshot.culprit,
        name=printable(rank.text("name")).replace("\t", " "),
        node=printable(snapshot.job.host),
        pid=rank.whole("pid") or 0,
        npu=rank.whole("local_rank") if rank_id >= 0 else None,
        over=None if ended is None else max(0.0, now - ended),
    )

"""The ranks of a job as they are shown, made from its board or its report. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

import attrs

from ascend_runner.board.reader import View
from ascend_runner.job_tool.live.view import RankView, State
from ascend_runner.job_tool.snapshot import Snapshot
from ascend_runner.observations.rank_record import RankRecord, RankState
from ascend_runner.supervision.events import signal_name
from ascend_runner.text import printable

MOST_CELLS: Final = 96  # of the output over time
STATES: Final = {
    RankState.RUNNING: State.RUNNING,
    RankState.SUCCEEDED: State.SUCCEEDED,
    RankState.FAILED: State.FAILED,
    RankState.STOPPED: State.STOPPED,
    RankState.NOT_STARTED: State.NOT_STARTED,
    RankState.NOT_KILLED: State.NOT_KILLED,
}
NAMED: Final = {state.value: shown for state, shown in STATES.items()}  # by the words of a report


def of_board(view: View, gone: Collection[int]) -> list[RankView]:
    """Return the ranks of an attempt that has a board; those that are `gone` have ended without the runner."""
    ranks = [_of_record(rank, view) for rank in view.ranks]
    return [attrs.evolve(rank, state=State.ENDED, quiet=None) if rank.rank_id in gone else rank for rank in ranks]


def _of_record(rank: RankRecord, view: View) -> RankView:
    state = STATES[rank.state]
    ending = rank.ending
    last = rank.started_after if rank.last_output_after is None else rank.last_output_after
    return RankView(
        rank_id=rank.rank_id,
        state=State.STOPPING if state is State.RUNNING and rank.signals else state,
        ending=_ending(ending.exit_code if ending else None, ending.signum if ending else None),
        name=rank.name,
        pid=rank.pid,
        npu=view.local_ranks.get(rank.rank_id) if rank.rank_id >= 0 else None,
        quiet=max(0.0, view.seconds - last) if rank.is_running else None,
        output=_output(rank),
        last_line="".join(rank.last_lines),
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


def of_report(snapshot: Snapshot, node: str) -> list[RankView]:
    """Return the ranks of a job that has no board that can be read from here."""
    return [_of_members(rank, snapshot, node) for rank in snapshot.ranks]


def _of_members(rank: Mapping[str, object], snapshot: Snapshot, node: str) -> RankView:
    rank_id = int(str(rank["rank_id"]))
    state = State.ENDED if rank_id in snapshot.gone else NAMED.get(str(rank.get("state")), State.ENDED)
    local_rank, pid = rank.get("local_rank"), rank.get("pid")
    return RankView(
        rank_id=rank_id,
        state=state,
        ending=_ending(rank.get("exit_code"), rank.get("signal")),
        is_culprit=rank_id == snapshot.culprit,
        name=printable(str(rank.get("name") or "")).replace("\t", " "),
        node=printable(node),
        pid=pid if isinstance(pid, int) else 0,
        npu=local_rank if type(local_rank) is int and rank_id >= 0 else None,
    )


def _ending(exit_code: object, signum: object) -> str:
    if isinstance(signum, int) and signum:
        return signal_name(signum)
    return str(exit_code) if isinstance(exit_code, int) and exit_code else ""

"""The report of a job whose runner was killed, completed with what its board and its logs show. Pure.

Nobody has seen the end of the ranks, so their times stop at the last sign of life: the start or the last output.
"""

from __future__ import annotations

from collections.abc import Mapping

from ascend_runner.job_tool.jobs import number
from ascend_runner.job_tool.rank_rows import ENDED
from ascend_runner.job_tool.snapshot import Snapshot, epoch
from ascend_runner.members import Members
from ascend_runner.report import rank_member


def report_of(seen: Snapshot) -> Members:
    """Return the report of a job whose runner was killed."""
    ranks = [_rank(rank, seen) for rank in seen.ranks]
    signs = (epoch(str(rank.get(name, ""))) for rank in ranks for name in ("started_at", "ended_at"))
    began = epoch(seen.text("started_at")) or seen.job.began
    return Members({**seen.report, "ranks": ranks, "seconds": max([0.0, *(at - began for at in signs if at)])})


def _rank(rank: Mapping[str, object], seen: Snapshot) -> Mapping[str, object]:
    rank_id, began = int(str(rank["rank_id"])), epoch(str(rank.get("started_at", "")))
    log_size, last = seen.logs.get(rank_id, (None, 0.0))
    if rank_id not in seen.gone or began is None:
        return rank
    output = rank if seen.board else {**rank, "log_size": log_size}
    return {**output, "state": ENDED, **rank_member.end(began, max(0.0, (number(last) or began) - began))}

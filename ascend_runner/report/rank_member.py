"""The facts about a rank that are known both while it runs and after its end, as members of a report. Pure."""

from __future__ import annotations

from ascend_runner.observations.rank_record import RankRecord
from ascend_runner.report.document import iso


def of_record(rank: RankRecord, job_started_at: float) -> dict[str, object]:
    """Describe one rank, or an auxiliary process, which has a `name` and a `rank_id` below 0.

    `exit_code` is null if `signal` ended the rank; both are null if it has not ended. `signals` are those sent to
    it, with the first time of each; `activity` are the bytes that it wrote in each span of `cell_seconds` since the
    start of the job. The log lacks `log_lost` of the `log_size` bytes that the rank wrote.
    """
    started_at, ending = job_started_at + rank.started_after, rank.ending
    return {
        "rank_id": rank.rank_id,
        "name": rank.name,
        "pid": rank.pid,
        "state": rank.state.value,
        "exit_code": None if ending is None or ending.signum else ending.exit_code,
        "signal": ending.signum if ending and ending.signum else None,
        "core_dumped": bool(ending and ending.core_dumped),
        "started_at": iso(started_at) if rank.is_started else "",
        **(end(started_at, rank.seconds) if ending else {"ended_at": "", "seconds": round(rank.seconds, 3)}),
        "first_output_at": _moment(job_started_at, rank.first_output_after),
        "last_output_at": _moment(job_started_at, rank.last_output_after),
        "signals": [(signum, _moment(job_started_at, after)) for signum, after in rank.signals],
        "activity": rank.activity,
        "cell_seconds": rank.cell_seconds,
        "log_size": rank.log_size,
        "log_lost": rank.log_lost,
    }


def end(began: float, seconds: float) -> dict[str, object]:
    """Return the end and the duration of what began then, rounded such that the times differ by exactly that."""
    seconds = round(seconds, 3)
    return {"ended_at": iso(round(began, 3) + seconds), "seconds": seconds}


def _moment(job_started_at: float, after: float | None) -> str:
    return "" if after is None else iso(job_started_at + after)

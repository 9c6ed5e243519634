"""The ranks of a job as `ascend-job status` lists them: in which order, and what is in the columns. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from ascend_runner.html_report.ranks import ORDER, words_of
from ascend_runner.job_tool.job.snapshot import ENDED, RUNNING, SUCCEEDED, Condition, Snapshot
from ascend_runner.members import Members
from ascend_runner.supervision import outliers
from ascend_runner.text import counted, duration, shown, size

HEADS: Final = ("rank", "device", "pid", "state", "time", "output", "quiet for", "last line")


class Row:
    """A rank in the table. `quiet` are the seconds without output of one that is running."""

    def __init__(self, rank_id: int, rank: Members, snapshot: Snapshot, now: float) -> None:
        self._rank = rank
        self.rank_id = rank_id
        self._is_culprit = rank_id == snapshot.culprit
        self.state = rank.text("state")
        last = snapshot.logs.get(rank_id, (0, 0.0))[1]
        ended = rank.moment("ended_at")
        self.over = None if ended is None else max(0.0, now - ended)
        is_over = self.state == ENDED or rank.text("ended_at")
        self.quiet = max(0.0, now - last) if last and not is_over else None

    def order(self, odd: Collection[int]) -> tuple[bool, int, bool, int]:
        """Return the key to sort by: the rank that is the cause, others that have failed, then the outliers.

        Ranks that have succeeded come last.
        """
        place = ORDER.index(self.state) if self.state in ORDER else len(ORDER) + (self.state == SUCCEEDED)
        return not self._is_culprit, place, self.rank_id not in odd, self.rank_id

    def cells(self, snapshot: Snapshot, now: float) -> tuple[str, ...]:
        """Return the cells of a line. A rank whose end was not observed has lasted until its last output."""
        rank, is_over = self._rank, bool(self._rank.text("ended_at"))
        began = rank.moment("started_at")
        bytes_, last = snapshot.logs.get(self.rank_id, (0, 0.0))
        until = last if self.state == ENDED else now
        so_far = max(0.0, until - began) if began and until else None
        seconds = rank.seconds("seconds") if is_over else so_far
        is_running = self.state == RUNNING  # as long as the job
        return (
            rank.text("name") or str(self.rank_id),
            str(rank.members.get("local_rank", "")),
            str(rank.whole("pid") or ""),
            words_of(rank, self.state),
            duration(seconds) if seconds is not None and began and not is_running else "",
            size(rank.count("log_size") or bytes_) if last else "",
            duration(int(self.quiet)) if self.quiet is not None else "",
            " ".join(shown(rank.text("last_line")).split()),
        )


def in_order(snapshot: Snapshot, now: float) -> list[Row]:
    """Return the ranks, those first that have failed, are behind, or have been quiet for unusually long."""
    rows = [Row(rank_id, rank, snapshot, now) for rank_id, rank in snapshot.ranks.items()]
    odd = outliers.quiet(*_silences(rows)) | outliers.behind(_steps(snapshot))
    return sorted(rows, key=lambda row: row.order(odd))


def quiet(rows: Sequence[Row]) -> str:
    """Name the ranks that have been quiet for unusually long; "" without any."""
    return outliers.quiet_sentence(*_silences(rows))


def _silences(rows: Sequence[Row]) -> tuple[dict[int, float], list[float]]:
    """Return the seconds without output of each running rank, and those since each rank that has succeeded did so."""
    silences = {row.rank_id: row.quiet for row in rows if row.quiet is not None}
    return silences, [row.over for row in rows if row.state == SUCCEEDED and row.over is not None]


def states(rows: Sequence[Row]) -> str:
    """Count ranks by their states: "2 ranks ended, 1006 ranks running"."""
    found = [row.state for row in rows]
    return ", ".join(f"{counted(found.count(state), 'rank')} {state}" for state in sorted({*found}))


def behind_others(snapshot: Snapshot) -> str:
    """Name the ranks that are behind: "rank 5 is 18 steps behind the others"; "" without any."""
    steps = _steps(snapshot)
    is_over = snapshot.condition is Condition.RUNNER_KILLED
    return outliers.behind_sentence(outliers.behind(steps), steps, is_over=is_over)


def _steps(snapshot: Snapshot) -> dict[int, int]:
    """Return the last steps of the ranks that run, or ran when the runner was killed."""
    states = {RUNNING, ENDED} if snapshot.condition is Condition.RUNNER_KILLED else {RUNNING}
    running = {rank_id for rank_id, rank in snapshot.ranks.items() if rank.text("state") in states}
    return {
        rank_id: step.step for rank_id, step in snapshot.steps.items() if step.step is not None and rank_id in running
    }

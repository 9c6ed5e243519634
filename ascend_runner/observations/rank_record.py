"""The observations of a job and of each of its ranks: the one record that the screen, the report and `launch` share.

Written once, by `report.recorder`. It has no sentences and no file formats.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import attrs

from ascend_runner.errors import JobFailedError
from ascend_runner.observations.rank_states import RankState, described
from ascend_runner.supervision.causes import (
    Cause,
    Ending,
    NodeFinding,
)
from ascend_runner.text import duration, size

if TYPE_CHECKING:
    from ascend_runner.diagnosis.finding import Finding, Peer, RootCause, StackGroup
    from ascend_runner.node.clock import Clock


HEADS: Final = ("rank", "pid", "state", "reason", "time", "CPU time", "memory", "output", "log")


@attrs.frozen(kw_only=True)
class RankRecord:
    """The observations of one rank, or of an auxiliary process, which has a `name` and a `rank_id` below 0.

    `ending` is None for a rank that was not started or is still alive after SIGKILL; `pid` is 0 for the former.
    `started_after` is in seconds since the start of the job, `seconds` is how long the rank ran. `max_rss` (bytes) and
    the CPU times include the processes that the leader waited for (getrusage(2)), and are None if unknown. The log
    lacks `log_lost` of the `log_size` bytes that the rank wrote, the first at `log_lost_from`; they begin at
    `log_start`, after those of earlier attempts. `rerun` is a shell command that runs the rank again ("" if its script
    was not written), `finding` is why it failed, None if it did not.

    The times of the first and the last output (None without output) are in seconds since the start of the job as well,
    as is the time at which each of the `signals` was first sent. `activity` has the bytes written in each span of
    `cell_seconds` since the start of the job.
    """

    rank_id: int
    ending: Ending | None = None
    is_started: bool = True
    is_running: bool = False
    is_stopped: bool = False  # asked to stop by the runner, without having failed before
    name: str = ""
    pid: int = 0
    started_after: float = 0.0
    seconds: float = 0.0
    max_rss: int | None = None
    user_seconds: float | None = None
    system_seconds: float | None = None
    first_output_after: float | None = None
    last_output_after: float | None = None
    signals: tuple[tuple[int, float], ...] = ()
    activity: tuple[int, ...] = ()
    cell_seconds: float = 0.0
    log_path: str = ""
    log_start: int = 0
    log_size: int = 0
    log_lost: int = 0
    log_lost_from: int | None = None
    last_lines: tuple[str, ...] = ()
    rerun: str = ""
    finding: Finding | None = None

    @property
    def state(self) -> RankState:
        """The state of the rank, which follows from its ending."""
        if not self.is_started:
            return RankState.NOT_STARTED
        if self.ending is None:
            return RankState.RUNNING if self.is_running else RankState.NOT_KILLED
        if self.is_stopped:
            return RankState.STOPPED
        return RankState.SUCCEEDED if self.ending.is_success else RankState.FAILED

    @property
    def ended_after(self) -> float:
        """When the rank ended, or until when it has run, in seconds since the start of the job."""
        return self.started_after + self.seconds


@attrs.frozen(kw_only=True)
class Outcome:
    """The outcome of a job. `cause` is None if and only if every rank exited with 0; `ranks` is in rank order.

    `started_at` is in seconds since the epoch, `seconds` is how long the job ran, by the `clock`. `suspected_peer` is
    set if the failed ranks only report a peer, `root` if a rank's failure ended the job, `hang` if the job hung.
    `secrets_masked` counts those in the ends of logs. `findings` are about this node, the newest of each subject.
    `last_failure` is the last attempt that failed, if something else ended the job after it; `ranks` are those of the
    newest attempt. `unsaved` are the ranks that failed instead of saving a checkpoint before a stop. `exit_verdict` is
    the exit status of the runner if that is not `status`, but says whether a retry may help. `report` is the content of
    the report file, see report/README.md ({} in `last_failure`); `report_problem` says why it could not be written, ""
    if it was, and `report_place` is the path where it was written, in that case in the run directory, or "".
    """

    cause: Cause | None
    ranks: tuple[RankRecord, ...] = ()
    started_at: float = 0.0
    seconds: float = 0.0
    clock: Clock | None = attrs.field(default=None, repr=False)
    suspected_peer: Peer | None = None
    root: RootCause | None = None
    hang: tuple[StackGroup, ...] = ()
    warnings: tuple[str, ...] = ()
    findings: tuple[NodeFinding, ...] = ()
    secrets_masked: int = 0
    last_failure: Outcome | None = None
    unsaved: Mapping[int, Ending] = attrs.field(factory=dict)
    exit_verdict: int | None = None
    report: Mapping[str, object] = attrs.field(factory=dict, repr=False)
    report_problem: str = ""
    report_place: str = ""

    @property
    def status(self) -> int:
        """The exit status of the job: that of its cause, 0 without one. Later exits are ignored."""
        return self.cause.exit_status if self.cause else 0

    @property
    def exit_status(self) -> int:
        """The exit status of the runner."""
        return self.status if self.exit_verdict is None else self.exit_verdict

    @property
    def is_from_outside(self) -> bool:
        """Whether a stop signal or the time limit ended the job."""
        return self.cause is not None and self.cause.is_from_outside

    @property
    def failed(self) -> RankRecord | None:
        """The rank whose failure ended the job, or None if something else did."""
        rank_id = self.root.rank_id if self.root else self.cause.rank_id if self.cause else None
        return next((rank for rank in self.ranks if rank.rank_id == rank_id), None)

    @property
    def is_local(self) -> bool | None:
        """Whether the failure of one node's part of a job was probably caused on this node, or None if that is unknown.

        It was not if all that is known is that ranks have lost a peer, and that peer is not among them.
        """
        peer = self.suspected_peer
        if self.cause and self.cause.may_be_elsewhere:
            return None
        if not (self.root and self.root.may_be_a_peer):
            return True
        is_peer_here = peer is not None and peer.rank_id in {rank.rank_id for rank in self.ranks}
        return False if self.root.is_a_consequence and not is_peer_here else None

    def _repr_html_(self) -> str:
        """Return a table of the ranks for a notebook, those that have failed first."""
        from ascend_runner import html_table  # noqa: PLC0415  only notebooks show it

        ranks = sorted(self.ranks, key=lambda rank: (rank is not self.failed, rank.state is not RankState.FAILED))
        title = f"{self.cause or 'succeeded'}; the job took {duration(self.seconds)}"
        return html_table.text(title, "rank", HEADS, list(map(_row, ranks)))

    def check(self) -> None:
        """Return if the job succeeded.

        Raises:
            JobFailedError: The job failed; its sentence is the cause, its exit status that of the job.
        """
        if self.cause:
            raise JobFailedError(str(self.cause), exit_status=self.status)


def _row(rank: RankRecord) -> tuple[str, ...]:
    """Return the cells that a notebook shows of a rank, below HEADS."""
    cpu = [rank.user_seconds, rank.system_seconds]
    finding = rank.finding
    return (
        rank.name or str(rank.rank_id),
        str(rank.pid or ""),
        described(rank.state, rank.ending),
        (finding.exception or finding.code or finding.meaning) if finding else "",
        duration(rank.seconds) if rank.is_started else "",
        duration(sum(filter(None, cpu))) if None not in cpu else "",
        "" if rank.max_rss is None else size(rank.max_rss),
        size(rank.log_size),
        rank.log_path,
    )

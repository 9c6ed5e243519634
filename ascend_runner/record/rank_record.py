"""The record of a rank, its members in a report, and the words for its state; and the outcome of a job. Pure."""

from __future__ import annotations

import enum
import os.path
from collections.abc import Iterable, Mapping
from signal import SIGKILL
from typing import TYPE_CHECKING, Final

import attrs

from ascend_runner.errors import JobFailedError
from ascend_runner.guardian.signal_sets import STOP_SIGNALS
from ascend_runner.members import Count, Members, documented, iso, milliseconds
from ascend_runner.supervision.causes import (
    Cause,
    Ending,
    NodeFinding,
)
from ascend_runner.text import duration, rank_title, size

if TYPE_CHECKING:
    from ascend_runner.diagnosis.finding import CollectiveGroup, Finding, Peer, RootCause, StackGroup
    from ascend_runner.record.nodes import JobVerdict


# The fields that are not in a report under their name.
WRITTEN_OTHERWISE: Final = {"ending", "started_after", "first_output_after", "last_output_after", "last_lines"}
NOT_ENDED: Final = {"exit_code": None, "signal": None, "core_dumped": False}
LOST_PEERS: Final = "all failed ranks of this node lost a peer; look at "
CAUSED: Final = " caused the failure: "  # between a rank and its reason, if another rank has ended first
HEADS: Final = ("rank", "pid", "state", "reason", "time", "CPU time", "memory", "output", "log")


class RankState(enum.Enum):
    """The state of a rank, while its job runs or after it."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"  # asked to stop by the runner, and ended, with whatever exit status
    NOT_STARTED = "not_started"
    NOT_KILLED = "not_killed"  # still alive after SIGKILL
    ENDED = "ended"  # without being observed: the runner was killed, or has not noticed yet
    UNKNOWN = "unknown"  # of a report of a later version


WORDS: Final[Mapping[RankState, str]] = {
    RankState.NOT_STARTED: "not started",
    RankState.NOT_KILLED: "still alive after SIGKILL",
}
ENDS_OF_A_STOP: Final = STOP_SIGNALS | {SIGKILL}
STOPPED: Final = frozenset({RankState.STOPPED, RankState.NOT_KILLED})
WITH_ENDING: Final = frozenset({RankState.FAILED, RankState.STOPPED})
ORDER: Final = {
    state: place
    for place, state in enumerate((RankState.FAILED, RankState.NOT_KILLED, RankState.NOT_STARTED, RankState.STOPPED))
}
HAS_ENDED: Final = WITH_ENDING | {RankState.SUCCEEDED, RankState.ENDED}


def _usual_state(rank: RankRecord) -> RankState:
    if rank.ending is None:
        return RankState.NOT_KILLED
    return RankState.SUCCEEDED if rank.ending.is_success else RankState.FAILED


@attrs.frozen(kw_only=True)
class RankRecord:
    """What is known of one rank, or of an auxiliary process, which has a `name` and a `rank_id` below 0.

    Times are in seconds since the start of the job, None if it has not come to that. In a report they are ISO 8601.
    """

    rank_id: int
    ending: Ending | None = None  # None: not started, running, or still alive after SIGKILL
    state: RankState = attrs.field(default=attrs.Factory(_usual_state, takes_self=True))
    name: str = ""
    local_rank: Count = 0
    device_id: Count | None = None  # the physical number of its NPU; None: unknown
    pid: Count = 0  # 0: not started
    started_after: float = 0.0
    seconds: float = 0.0  # how long it ran
    # The peak memory in bytes, and CPU time, of the leader and the processes it waited for (getrusage(2)). The peak is
    # None if it is not above the runner's.
    max_rss: Count | None = None
    user_seconds: float | None = None
    system_seconds: float | None = None
    first_output_after: float | None = None
    last_output_after: float | None = None
    signals: tuple[tuple[int, float], ...] = ()  # those sent to it, each with the first time
    activity: tuple[int, ...] = ()  # the bytes written in each span of `cell_seconds` since the start of the job
    cell_seconds: float = 0.0
    log_path: str = ""
    log_start: Count = 0  # the offset of its output in the log, after earlier attempts
    log_size: Count | None = None  # bytes that it wrote
    log_lost: Count = 0  # bytes of them that the log lacks
    log_lost_from: Count | None = None  # the offset of the first of those
    last_lines: tuple[str, ...] = ()  # of its output, not in the report
    process_log_path: str = ""  # the directory of its plogs
    cwd: str = ""
    variables: Mapping[str, str] = attrs.field(
        factory=dict, repr=False
    )  # set or changed by the runner, without secrets
    rerun: str = ""  # a shell command that runs it again; "": no script was written
    finding: Finding | None = None  # why it failed

    @property
    def is_started(self) -> bool:
        """Whether its process was started."""
        return self.state is not RankState.NOT_STARTED

    @property
    def is_running(self) -> bool:
        """Whether it runs."""
        return self.state is RankState.RUNNING

    @property
    def has_ended(self) -> bool:
        """Whether it ran, and does no more."""
        return self.state in HAS_ENDED

    @property
    def is_gone(self) -> bool:
        """Whether it has ended without being observed."""
        return self.state is RankState.ENDED

    @property
    def is_just_stopped(self) -> bool:
        """Whether it ended because the runner asked it to stop, neither by itself nor by SIGKILL."""
        is_killed = self.ending is not None and self.ending.signum == SIGKILL
        return self.state is RankState.STOPPED and _is_end_of_a_stop(self.ending) and not is_killed

    @property
    def is_silent(self) -> bool:
        """Whether it is a running rank without any output yet. Auxiliary processes do not count."""
        return self.is_running and self.rank_id >= 0 and self.last_output_after is None

    @property
    def order(self) -> int:
        """Where to show it among others: failed ranks first, successful ones last."""
        return ORDER.get(self.state, len(ORDER) + (self.state is RankState.SUCCEEDED))

    @property
    def title(self) -> str:
        """What it is called in a sentence: "rank 3", or the name of an auxiliary process."""
        return rank_title(self.rank_id, self.name)

    @property
    def words(self) -> str:
        """Its state: "running", "failed (exit status 1)", "stopped by the runner (SIGTERM)"."""
        return described(self.state, self.ending)

    @property
    def cpu_seconds(self) -> float | None:
        """Its CPU time, None if that is unknown."""
        known = self.user_seconds is not None and self.system_seconds is not None
        return (self.user_seconds or 0.0) + (self.system_seconds or 0.0) if known else None

    @property
    def last_sign_after(self) -> float:
        """When it last wrote, or else when it started, in seconds since the start of the job."""
        return self.started_after if self.last_output_after is None else self.last_output_after

    @property
    def log_name(self) -> str:
        """The name of its log file, "" if it has none."""
        return os.path.basename(self.log_path)

    def gone(self) -> RankRecord:
        """Return the record of a rank without an observed end: it has lasted until its last output."""
        return attrs.evolve(self, state=RankState.ENDED, seconds=max(0.0, self.last_sign_after - self.started_after))

    def later(self, seconds: float) -> RankRecord:
        """Return the record with its times in seconds since an earlier start."""
        first, last = self.first_output_after, self.last_output_after
        return attrs.evolve(
            self,
            started_after=self.started_after + seconds,
            first_output_after=None if first is None else first + seconds,
            last_output_after=None if last is None else last + seconds,
            signals=tuple((signum, at + seconds) for signum, at in self.signals),
        )

    def encode(self, began: float) -> dict[str, object]:
        """Return the rank as a member of the report of a job that began at `began` (seconds since the epoch)."""
        started_at = began + self.started_after
        end = interval(started_at, self.seconds)
        members = attrs.asdict(self, recurse=False)
        return {
            **{name: value for name, value in members.items() if name not in WRITTEN_OTHERWISE},
            "state": self.state.value,
            **(self.ending.encode() if self.ending else NOT_ENDED),
            "started_at": iso(started_at) if self.is_started else "",
            **(end if self.ending or self.has_ended else {**end, "ended_at": ""}),
            "first_output_at": _moment(began, self.first_output_after),
            "last_output_at": _moment(began, self.last_output_after),
            "signals": [(signum, _moment(began, after)) for signum, after in self.signals],
            **_rounded(user_seconds=self.user_seconds, system_seconds=self.system_seconds),
        }

    @classmethod
    def decode(cls, members: Members, began: float) -> RankRecord:
        """Return what `encode` has written; what is missing in an older report, or damaged, is as if unknown."""
        variables = members.child("variables")
        signals = ((one.whole("0"), _after(one.moment("1"), began)) for one in members.pairs("signals"))
        return cls(
            **{
                **members.fields(cls),
                "ending": Ending.decode(members),
                "state": members.choice("state", RankState) or RankState.UNKNOWN,
                "started_after": _after(members.moment("started_at"), began) or 0.0,
                "first_output_after": _after(members.moment("first_output_at"), began),
                "last_output_after": _after(members.moment("last_output_at"), began),
                "signals": tuple((signum, at) for signum, at in signals if signum is not None and at is not None),
                "variables": {name: variables.text(name) for name in variables.members},
                "finding": _finding(members.child("finding")),
            }
        )

    @property
    def ended_after(self) -> float:
        """When the rank ended, or until when it has run, in seconds since the start of the job."""
        return self.started_after + self.seconds


@documented
@attrs.frozen(kw_only=True, repr=False)
class Outcome:
    """The outcome of a job, or of an attempt: what `launch` returns. `print(outcome)` says how the job has ended.

        if outcome.cause:
            print(outcome.status, outcome.cause)
            print(outcome.failed and outcome.failed.log_path)

    `cause` is None after a success. `ranks` are the records of the ranks of this node, in rank order, and `failed` is
    the one that ended the job. The job ran for `seconds` from `started_at` (seconds since the epoch). `warnings` are
    those on the screen, `findings` the ones about this node. `report` is the content of the report file, which is at
    `report_place`.
    """

    cause: Cause | None  # None if and only if every rank exited with 0
    ranks: tuple[RankRecord, ...] = ()  # in rank order, of the newest attempt
    started_at: float = 0.0  # in seconds since the epoch
    seconds: float = 0.0  # how long it ran, by the clock
    suspected_peer: Peer | None = None  # if the failed ranks only report a peer
    root: RootCause | None = None  # if a rank's failure ended the job
    hang: tuple[StackGroup, ...] = ()  # if the job hung
    collectives: tuple[CollectiveGroup, ...] = ()  # that its ranks then waited in
    warnings: tuple[str, ...] = ()
    findings: tuple[NodeFinding, ...] = ()  # about this node, the newest of each subject
    secrets_masked: int = 0  # in variables and in the ends of logs
    last_failure: Outcome | None = None  # of the last attempt that failed, if something else ended the job after it
    unsaved: Mapping[int, Ending] = attrs.field(factory=dict)  # ranks that failed instead of saving before a stop
    exit_verdict: int | None = None  # the exit status of the runner if that is not `status`: whether a retry may help
    verdict: JobVerdict | None = None  # on the attempt of all nodes that has failed or was stopped, if they are linked
    node: int | None = None  # the number of this node, if there is a verdict
    report: Mapping[str, object] = attrs.field(factory=dict, repr=False)  # the content of the report file
    report_problem: str = ""  # why the report could not be written
    report_place: str = ""  # where it was written, which is the run directory if there is a problem; "": nowhere

    @property
    def status(self) -> int:
        """The exit status of the job: given by its cause, 0 without one. Later exits are ignored.

        If the nodes of a job have agreed on its cause, all have the same status.
        """
        if self.cause and self.verdict and self.verdict.status:
            return self.verdict.status
        return self.cause.exit_status if self.cause else 0

    @property
    def exit_status(self) -> int:
        """The exit status of the runner."""
        return self.status if self.exit_verdict is None else self.exit_verdict

    @property
    def elsewhere(self) -> JobVerdict | None:
        """The verdict on the job if another node has caused its failure, None otherwise."""
        cause, verdict = self.cause, self.verdict
        if cause is None or verdict is None or verdict.is_alone:
            return None
        is_of_another = verdict.sentence != "" and verdict.node not in {None, self.node}
        return verdict if cause.is_elsewhere or is_of_another else None

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
        """Return a table of the ranks for a notebook, failed ranks first."""
        from ascend_runner import html_table  # noqa: PLC0415  only notebooks show it

        ranks = sorted(self.ranks, key=lambda rank: (rank is not self.failed, rank.state is not RankState.FAILED))
        return html_table.text(str(self), "rank", HEADS, list(map(_row, ranks)))

    def check(self) -> None:
        """Return if the job succeeded.

        Raises:
            JobFailedError: The job failed; its sentence is the cause, its exit status the job's.
        """
        if self.cause:
            raise JobFailedError(self._why, exit_status=self.status)

    @property
    def _why(self) -> str:
        """The cause, after the rank that caused the failure if another one ended first, or where to look for it."""
        cause, root = self.cause, self.root
        if root and root.look_at:
            return f"{LOST_PEERS}{root.look_at}"
        is_other = cause and cause.ending and root and root.rank_id != cause.rank_id
        return f"rank {root.rank_id}{CAUSED}{root.summary}; {cause}" if root and is_other else str(cause)

    def __str__(self) -> str:
        """Return the cause, or "succeeded", and how long the job took."""
        return f"{self._why if self.cause else 'succeeded'}; the job took {duration(self.seconds)}"

    def __repr__(self) -> str:
        """Return the same in angle brackets: the records of all ranks would fill screens."""
        return f"<Outcome: {self}>"


def _row(rank: RankRecord) -> tuple[str, ...]:
    """Return the cells that a notebook shows of a rank, below HEADS."""
    finding = rank.finding
    return (
        rank.name or str(rank.rank_id),
        str(rank.pid or ""),
        rank.words,
        (finding.summary or finding.meaning) if finding else "",
        duration(rank.seconds) if rank.is_started else "",
        "" if rank.cpu_seconds is None else duration(rank.cpu_seconds),
        "" if rank.max_rss is None else size(rank.max_rss),
        size(rank.log_size or 0),
        rank.log_path,
    )


def silences(ranks: Iterable[RankRecord], now: float) -> tuple[dict[int, float], list[float]]:
    """Return the seconds without output of each running rank, and those since each rank that has succeeded did so.

    `now` is in seconds since the start of the job. A rank whose output is not observed, or not expected, is left out.
    """
    known = [rank for rank in ranks if rank.rank_id >= 0]
    is_few = bool(printing(known))
    quiet = {
        rank.rank_id: max(0.0, now - rank.last_sign_after)
        for rank in known
        if rank.is_running and rank.log_size is not None and not (is_few and rank.is_silent)
    }
    return quiet, [max(0.0, now - rank.ended_after) for rank in known if rank.state is RankState.SUCCEEDED]


def printing(ranks: Iterable[RankRecord]) -> list[int]:
    """Return the ranks with output if they are at most half of all ranks, else none.

    Most trainings print on one rank only, so no output is expected of the others. If most ranks have printed, a rank
    without output may hang at its beginning.
    """
    known = [rank for rank in ranks if rank.rank_id >= 0]
    found = [rank.rank_id for rank in known if rank.last_output_after is not None]
    return found if 2 * len(found) <= len(known) else []


def interval(began: float, seconds: float) -> dict[str, object]:
    """Return the members about the end of what began then, rounded so that the times differ by exactly `seconds`."""
    seconds = milliseconds(seconds)
    return {"ended_at": iso(milliseconds(began) + seconds), "seconds": seconds}


def _rounded(**seconds: float | None) -> dict[str, object]:
    return {name: value and round(value, 3) for name, value in seconds.items()}


def _moment(began: float, after: float | None) -> str:
    return iso(None if after is None else began + after)


def _after(at: float | None, began: float) -> float | None:
    return None if at is None else max(0.0, round(at - began, 3))


def _finding(members: Members) -> Finding | None:
    if not members.members:
        return None
    from ascend_runner.diagnosis.finding import Finding, Peer  # noqa: PLC0415  10 ms that only a reader needs

    fields = {name: value for name, value in members.fields(Finding).items() if name in members.members}
    return Finding(**fields, points_at=tuple(Peer(**one.fields(Peer)) for one in members.children("points_at")))


def described(state: RankState, ending: Ending | None) -> str:
    """Describe a rank: "running", "failed (exit status 1)", "stopped by the runner (SIGTERM)"."""
    if state not in WITH_ENDING:
        return WORDS.get(state, state.value)
    verb = _stopped(ending) if state is RankState.STOPPED else state.value
    return f"{verb} ({ending.in_parentheses.replace('killed by ', '')})" if ending else verb


def _stopped(ending: Ending | None) -> str:
    """Describe the end of a rank that was asked to stop; it may have failed by itself nevertheless."""
    if not _is_end_of_a_stop(ending):
        return "ended after being asked to stop"
    return f"{'killed' if ending and ending.signum == SIGKILL else 'stopped'} by the runner"


def _is_end_of_a_stop(ending: Ending | None) -> bool:
    return ending is None or ending.is_success or ending.exit_status - 128 in ENDS_OF_A_STOP

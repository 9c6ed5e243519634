"""The record of one node's part of a job, running or ended, which is the content of its report file. Pure.

Sizes are in bytes, durations in seconds of the monotonic clock, times in seconds since the epoch. In the report, times
are ISO 8601 with an offset: the wall clock at the start of the job plus monotonic seconds, so that a change of the
clock in between does not distort them. What does not apply is null or "" there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import attrs

from ascend_runner.members import Count, Members, iso, milliseconds, plain
from ascend_runner.record.rank_record import CAUSED, RankRecord, interval, silences
from ascend_runner.supervision import cloud_events
from ascend_runner.supervision.causes import FindingKind, HangDetected, NodeFinding, PeerFailed, Restart
from ascend_runner.supervision.job_machine import AnyState, JobState, Verdict
from ascend_runner.supervision.state import Phase

if TYPE_CHECKING:
    from ascend_runner.diagnosis.finding import CollectiveGroup, Peer, StackGroup
    from ascend_runner.record.nodes import JobVerdict, NodeRecord

SCHEMA_VERSION: Final = 5  # raised when a member is removed or changes its meaning, but not when one is added

CERTAINTY: Final[Mapping[str, str]] = {"likely": "likely the cause", "open": "cause unclear"}
LONGEST_NUMBER: Final = 16  # characters of the number of a rank


@attrs.frozen(kw_only=True)
class CauseRecord:
    """Why a job failed."""

    # "rank_failed", "rank_not_started", "node_failed" (another node), "interrupted", "hang", "slow", "unhealthy" (by
    # --inspect stop), "expired" (at its time limit) or "runner_failed"
    kind: str = ""
    sentence: str = ""
    rank_id: int | None = None  # the rank that caused it, if any
    first_exit: int | None = None  # the one that ended first; its exit status is the job's
    alike: tuple[int, ...] = ()  # the ranks that failed for the same reason, `rank_id` included
    certainty: str = ""  # "certain", "likely" or "open"
    candidates: tuple[int, ...] = ()  # the ranks that may have caused it if that is open
    # Whether all failed ranks of this node only lost one on another; `candidates` are the ranks there, if it is known.
    is_elsewhere: bool = False
    signal: Count | None = None  # the signal that stopped the runner, SIGKILL if it was killed
    may_be_a_peer: bool = False  # whether another rank may have failed before
    is_a_consequence: bool = False  # whether the evidence says that one did
    suspected_peer: Peer | None = None  # if all failed ranks only report a peer
    is_agreed: bool = False  # whether all nodes of the job have it, with this certainty

    def with_certainty(self, ranks: int) -> str:
        """Return the sentence, which may say that it is the cause, with a note on the certainty.

        The job has this number of `ranks`.
        """
        note = self.certainty_note(ranks)
        if note == f" ({CERTAINTY['likely']})" and CAUSED in self.sentence:
            return self.sentence.replace(CAUSED, " caused the failure (likely): ", 1)
        return f"{self.sentence}{note}" if self.sentence else ""

    def certainty_note(self, ranks: int) -> str:
        """Return a note on the certainty, "" if it is certain; a rank that is alone in its job has no rivals."""
        if self.is_elsewhere:
            return ""  # the sentence says it
        word = CERTAINTY.get(self.certainty, "")
        is_alone = ranks == 1 and not (self.candidates or self.is_agreed)
        return f" ({word})" if word and not is_alone else ""

    @classmethod
    def decode(cls, members: Members) -> CauseRecord | None:
        """Return the record of a member of a report, None if that is null."""
        if not members.members:
            return None
        peer = members.child("suspected_peer")
        return cls(**members.fields(cls), suspected_peer=_peer(peer) if peer.members else None)


@attrs.frozen(kw_only=True)
class AttemptRecord:
    """An attempt that has ended, and the decision after it."""

    attempt: Count = 0
    started_at: float = 0.0
    seconds: float = 0.0
    cause: CauseRecord | None = None
    status: Count | None = None
    fingerprint: str = ""  # equal failures have the same one
    restart: Restart | None = None  # whether this failure permits a restart
    progress: bool | None = None  # whether the training got further than before the attempt; None: unknown
    verdict: Verdict | None = None  # the decision
    delay: float = 0.0  # until the next attempt
    log_starts: Mapping[int, int] = attrs.field(factory=dict)  # where the output of this attempt begins, by rank

    @property
    def sentence(self) -> str:
        """Why it failed, with a note on the certainty; "" if it did not."""
        return self.cause.with_certainty(len(self.log_starts)) if self.cause else ""

    def encode(self) -> dict[str, object]:
        """Return the record as a member of the report."""
        times = {"started_at": iso(self.started_at), **interval(self.started_at, self.seconds)}
        return {**attrs.asdict(self, recurse=False), **times}

    @classmethod
    def decode(cls, members: Members) -> AttemptRecord:
        """Return what `encode` has written."""
        starts = members.child("log_starts")
        return cls(
            **{
                **members.fields(cls),
                "started_at": members.moment("started_at") or 0.0,
                "cause": CauseRecord.decode(members.child("cause")),
                "restart": members.choice("restart", Restart),
                "verdict": members.choice("verdict", Verdict),
                "log_starts": {int(rank): starts.count(rank) or 0 for rank in starts.members if _is_whole(rank)},
            }
        )


@attrs.frozen(kw_only=True)
class Condition:
    """A condition that is present: a hang or a slow training, with its `facts`, or an unhealthy node."""

    condition: str
    sentence: str
    since: float
    facts: Mapping[str, object] = attrs.field(factory=dict)

    def encode(self) -> dict[str, object]:
        """Return the condition as a member of the report."""
        return {"condition": self.condition, **self.facts, "sentence": self.sentence, "since": iso(self.since)}

    @classmethod
    def decode(cls, members: Members) -> Condition:
        """Return what `encode` has written."""
        facts = {name: value for name, value in members.members.items() if name not in cls.__annotations__}
        return cls(**{**members.fields(cls), "since": members.moment("since") or 0.0, "facts": facts})


@attrs.frozen(kw_only=True)
class CheckpointRecord:
    """The last checkpoint that was requested, and when that was over."""

    at: float = 0.0
    step: Count | None = None  # the highest one that a rank reported
    path: str = ""
    ranks: tuple[int, ...] = ()  # ranks that have reported the checkpoint
    missing: tuple[int, ...] = ()  # ranks that have not
    seconds: float = 0.0


@attrs.frozen(kw_only=True)
class StepRecord:
    """The last figures of the training, see `training.steps.Step`, and when they were read."""

    at: float = 0.0
    step: Count | None = None
    steps: Count | None = None
    seconds: float | None = None
    loss: float | None = None
    throughput: float | None = None
    unit: str = ""
    hardware: float | None = None
    e2e: float | None = None


@attrs.frozen(kw_only=True)
class Staged:
    """The result of a stage. `size` is in bytes, `copied` those that were not there before; `seconds` include waits."""

    source: str
    place: str
    files: int
    size: int
    copied: int
    seconds: float


@attrs.frozen(kw_only=True, eq=True, repr=False)
class JobRecord:
    """A job on one node. The members are about the newest attempt; `attempts` has a record of each that has ended."""

    job_id: str = ""
    state: AnyState | None = None  # None: unknown
    status: Count | None = None  # None until it has ended
    exit_verdict: Count | None = None  # the exit status of the runner if that is not `status`: whether a retry may help
    attempt: Count = 0  # counts from 0
    held_until: float | None = None  # a job that is held has ended, and stays on its node
    node_rank: Count | None = None  # the number of this node among `node_count`; None: unknown
    node_count: Count | None = None
    server_id: str = ""
    pod_name: str = ""
    platform: str = ""  # that was detected; "": none
    rank_size: Count = 0  # 0: unknown
    started_at: float = 0.0
    seconds: float | None = None  # None until it has ended
    log_dir: str = ""
    rank_table: str = ""  # the file that the ranks read; "": none
    cause: CauseRecord | None = None
    ranks: tuple[RankRecord, ...] = ()  # in rank order; until the attempt has ended, the ranks started so far
    hang: tuple[StackGroup, ...] = ()  # the stacks of the ranks of a job that hung, outliers first
    collectives: tuple[CollectiveGroup, ...] = ()  # where these ranks then were in them, by their flight recorders
    no_collectives: str = ""  # why that is unknown ("": it is known, or there was no flight recorder)
    attempts: tuple[AttemptRecord, ...] = ()
    staged: tuple[Staged, ...] = ()  # the datasets that were copied
    conditions: tuple[Condition, ...] = ()
    last_step: StepRecord | None = None
    last_checkpoint: CheckpointRecord | None = None
    warnings: tuple[str, ...] = ()
    framework: str = ""
    runner_version: str = ""
    software: Mapping[str, str] = attrs.field(factory=dict)  # versions of CANN, the ranks' Python and its frameworks
    secrets_masked: Count = 0  # in variables and in the ends of logs
    schema_version: Count = SCHEMA_VERSION
    findings: tuple[NodeFinding, ...] = ()  # of the inspection and the pre-check, the newest of each subject
    verdict: JobVerdict | None = None  # on the attempt that has failed or was stopped, if the nodes are linked
    nodes: tuple[NodeRecord, ...] = ()  # of the job, as node 0 knew them at the end of the attempt; none on the others

    @property
    def ended_at(self) -> float | None:
        """When it ended, None if it has not."""
        return None if self.seconds is None else milliseconds(self.started_at) + milliseconds(self.seconds)

    @property
    def began(self) -> float:
        """When its first attempt started."""
        return self.attempts[0].started_at if self.attempts else self.started_at

    @property
    def failed(self) -> RankRecord | None:
        """The rank whose failure ended it, None without one."""
        return self.rank(self.cause.rank_id) if self.cause and self.cause.rank_id is not None else None

    @property
    def is_hung(self) -> bool:
        """Whether the job hangs, or was ended by a hang."""
        has_ended_it = self.cause is not None and self.cause.kind == HangDetected.report_kind
        return has_ended_it or any(one.condition == cloud_events.HANGING for one in self.conditions)

    @property
    def elsewhere(self) -> JobVerdict | None:
        """The verdict of all nodes if another one has caused the failure, None otherwise."""
        is_elsewhere = self.cause is not None and self.cause.kind == PeerFailed.report_kind
        return self.verdict if self.verdict and is_elsewhere and not self.verdict.is_alone else None

    def rank(self, rank_id: int | None) -> RankRecord | None:
        """Return the record of a rank, None without one."""
        return next((rank for rank in self.ranks if rank.rank_id == rank_id), None)

    def silences(self, now: float) -> tuple[dict[int, float], list[float]]:
        """Return how long ranks have been quiet, see `rank_record.silences`; `now` is in seconds since the epoch."""
        return silences(self.ranks, now - self.started_at)

    def encode(self) -> dict[str, object]:
        """Return the members of the report."""
        members = attrs.asdict(self, recurse=False)
        began, last = self.started_at, self.last_checkpoint
        members |= {
            "held_until": iso(self.held_until),
            "started_at": iso(began),
            "ended_at": iso(self.ended_at),
            "seconds": milliseconds(self.seconds or 0.0),
            "ranks": [rank.encode(began) for rank in self.ranks],
            "attempts": [attempt.encode() for attempt in self.attempts],
            "conditions": [condition.encode() for condition in self.conditions],
            "last_step": self.last_step and _with_time(self.last_step),
            "last_checkpoint": last and _with_time(last),
            "findings": list(map(_with_time, self.findings)),
        }
        encoded: dict[str, object] = plain(members)
        return encoded

    @classmethod
    def decode(cls, report: Members) -> JobRecord:
        """Return what `encode` has written; what is missing in an older report, or damaged, is as if unknown."""
        began, software = report.moment("started_at") or 0.0, report.child("software")
        return cls(
            **{
                **report.fields(cls),
                "state": report.choice("state", JobState) or report.choice("state", Phase),
                "held_until": report.moment("held_until"),
                "started_at": began,
                "seconds": (report.seconds("seconds") or 0.0) if report.text("ended_at") else None,
                "software": {name: software.text(name) for name in software.members},
                "cause": CauseRecord.decode(report.child("cause")),
                "ranks": _ranks(report, began),
                "hang": _stacks(report.children("hang")),
                "collectives": _collectives(report.children("collectives")),
                "attempts": tuple(map(AttemptRecord.decode, report.children("attempts"))),
                "staged": tuple(Staged(**one.fields(Staged)) for one in report.children("staged")),
                "conditions": tuple(map(Condition.decode, report.children("conditions"))),
                "last_step": _decode_step(report.child("last_step")),
                "last_checkpoint": _decode_checkpoint(report.child("last_checkpoint")),
                "findings": tuple(map(_decode_finding, report.children("findings"))),
                "verdict": _verdict(report.child("verdict")),
                "nodes": _nodes(report.children("nodes")),
            }
        )


def _ranks(report: Members, began: float) -> tuple[RankRecord, ...]:
    """Return the ranks of a report, each number once."""
    numbered = {rank.whole("rank_id"): rank for rank in report.children("ranks")}
    return tuple(RankRecord.decode(rank, began) for rank_id, rank in numbered.items() if rank_id is not None)


def _with_time(record: StepRecord | CheckpointRecord | NodeFinding) -> dict[str, object]:
    return {**attrs.asdict(record), "at": iso(record.at)}


def _decode_finding(members: Members) -> NodeFinding:
    kind = members.choice("kind", FindingKind) or FindingKind.NOTICE
    return NodeFinding(**{**members.fields(NodeFinding), "kind": kind, "at": members.moment("at") or 0.0})


def _decode_checkpoint(members: Members) -> CheckpointRecord | None:
    fields = {**members.fields(CheckpointRecord), "at": members.moment("at") or 0.0}
    return CheckpointRecord(**fields) if members.members else None


def _decode_step(members: Members) -> StepRecord | None:
    fields = {**members.fields(StepRecord), "at": members.moment("at") or 0.0, "loss": members.signed("loss")}
    return StepRecord(**fields) if members.members else None


# The modules of these records take 10 ms to load. Only a reader decodes.


def _verdict(members: Members) -> JobVerdict | None:
    from ascend_runner.record.nodes import JobVerdict  # noqa: PLC0415  as above

    return JobVerdict.decode(members)


def _nodes(rows: tuple[Members, ...]) -> tuple[NodeRecord, ...]:
    if not rows:
        return ()
    from ascend_runner.record.nodes import NodeRecord  # noqa: PLC0415  as above

    return tuple(map(NodeRecord.decode, rows))


def _peer(members: Members) -> Peer:
    from ascend_runner.diagnosis.finding import Peer  # noqa: PLC0415  as above

    return Peer(**members.fields(Peer))


def _stacks(groups: tuple[Members, ...]) -> tuple[StackGroup, ...]:
    if not groups:
        return ()
    from ascend_runner.diagnosis.finding import StackGroup  # noqa: PLC0415  as above

    return tuple(StackGroup(**group.fields(StackGroup)) for group in groups)


def _collectives(groups: tuple[Members, ...]) -> tuple[CollectiveGroup, ...]:
    if not groups:
        return ()
    from ascend_runner.diagnosis.finding import CollectiveGroup  # noqa: PLC0415  as above

    return tuple(CollectiveGroup(**group.fields(CollectiveGroup)) for group in groups)


def _is_whole(text: str) -> bool:
    return len(text) < LONGEST_NUMBER and text.removeprefix("-").isdecimal()

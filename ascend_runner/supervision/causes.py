"""The causes of the end of an attempt. Each answers for itself, so that a new one needs no branch elsewhere.

Only the rules for signals, the time limit and several nodes ask whether a cause is theirs.

To add one: a record here that inherits the answers of most causes from `Cause` and is a part of `AnyCause`, its rows in
the table of `machine`, and its test. Whoever observes it sends it as an event.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from signal import SIGINT, SIGTERM, Signals
from typing import ClassVar, Final, Protocol, Union, get_args

import attrs

from ascend_runner.errors import COMMAND_NOT_EXECUTABLE, COMMAND_NOT_FOUND, RUNNER_FAILED, TIMED_OUT
from ascend_runner.members import Members
from ascend_runner.text import duration, rank_title, signal_name

LAUNCHER: Final = "the process that launched ascend-runner"
NO_SUCH_COMMAND: Final = frozenset({COMMAND_NOT_EXECUTABLE, COMMAND_NOT_FOUND})


class WatchAction(enum.Enum):
    """The action after a hang or when the training is slow."""

    WARN = "warn"
    RESTART = "restart"
    STOP = "stop"  # end the job, without a restart


class InspectAction(enum.Enum):
    """The action after an error that the inspection finds; warnings are only reported."""

    OFF = "off"  # there is no inspection
    WARN = "warn"
    CHECKPOINT = "checkpoint"  # the ranks are asked for a checkpoint
    STOP = "stop"


class Restart(enum.Enum):
    """Whether a restart makes sense after a failure."""

    NEVER = "never"  # it would fail again
    CONFIRM = "confirm"  # it would probably fail again: one restart shows it
    TRANSIENT = "transient"  # it may not fail again
    EXCLUDED = "excluded"  # the user wants none


@attrs.frozen
class Ending:
    """How a process ended: with `exit_code`, or killed by the signal `signum` if that is not 0 (wait(2))."""

    exit_code: int = 0
    signum: int = 0
    core_dumped: bool = False

    @classmethod
    def of(cls, returncode: int) -> Ending:
        """Return what a `returncode` of subprocess means: an exit code, or -N for death by signal N."""
        return cls(max(returncode, 0), max(-returncode, 0))

    @property
    def is_success(self) -> bool:
        """Whether it exited with code 0."""
        return self == Ending()

    @property
    def exit_status(self) -> int:
        """The status that a shell would show: the exit code, or 128 + the signal (POSIX, XCU 2.8.2)."""
        return 128 + self.signum if self.signum else self.exit_code

    def encode(self) -> dict[str, object]:
        """Return it as members of a rank in the report: `exit_code` is null if a signal ended it."""
        code, signum = (None, self.signum) if self.signum else (self.exit_code, None)
        return {"exit_code": code, "signal": signum, "core_dumped": self.core_dumped}

    @classmethod
    def decode(cls, members: Members) -> Ending | None:
        """Return what `encode` has written, None if that was nothing."""
        code, signum = members.whole("exit_code"), members.whole("signal")
        is_known = code is not None or signum is not None
        return cls(code or 0, signum or 0, members.flag("core_dumped")) if is_known else None

    @property
    def in_parentheses(self) -> str:
        """The same text without parentheses of its own: "exit status 1", "killed by SIGSEGV, core dumped"."""
        return str(self).replace(" (", ", ").rstrip(")")

    def __str__(self) -> str:
        """Return a description: "exit status 1", "killed by SIGTERM", "killed by SIGSEGV (core dumped)"."""
        if not self.signum:
            return f"exit status {self.exit_code}"
        sentence = f"killed by {signal_name(self.signum)}"
        return f"{sentence} (core dumped)" if self.core_dumped else sentence


class Cause(Protocol):
    """Why an attempt has ended: the event that ended it. `str` explains it in a sentence.

    What is defined here are the answers of most causes.
    """

    __slots__ = ()
    report_kind: ClassVar[str]  # the `kind` of the member `cause` of the report
    public: ClassVar[str] = "the job has failed"  # without names, for pages that others see; {rank} and {how}
    excluded_by: ClassVar[str] = "an option"  # the option with which no restart follows
    saves_first: ClassVar[bool] = False  # the ranks have time for a checkpoint before they are stopped
    is_from_outside: ClassVar[bool] = False  # somebody has ended the job, or its time limit has; nothing has failed
    may_be_elsewhere: ClassVar[bool] = False  # any rank of the job may have caused it, also one of another node
    may_be_the_node: ClassVar[bool] = False  # earlier findings about the node may explain it
    has_stacks: ClassVar[bool] = False  # the stacks of all ranks were read because of it
    ends_first: ClassVar[bool] = False  # it is the end of a rank that has ended first, or was not started
    is_elsewhere: ClassVar[bool] = False  # another node of the job has reported it

    @property
    def exit_status(self) -> int:
        """The exit status of the job."""
        return TIMED_OUT

    @property
    def rank_id(self) -> int | None:
        """The rank that it is about, if any."""
        return None

    @property
    def name(self) -> str:
        """The name of the auxiliary process that it is about; "" if it is about a rank, or that is not known yet."""
        return ""

    @property
    def first_exit(self) -> int | None:
        """The rank that has ended first, or was not started, with which the attempt ended; None if it was none."""
        return self.rank_id if self.ends_first else None

    @property
    def title(self) -> str:
        """The rank as it is called, "" if there is none."""
        return "" if self.rank_id is None else rank_title(self.rank_id, self.name)

    @property
    def ending(self) -> Ending | None:
        """How that rank ended; None if no rank has failed first."""
        return None

    @property
    def stop_signal(self) -> int | None:
        """The signal that has stopped the job; None if it was none."""
        return None

    @property
    def reason(self) -> str:
        """The cause as a phrase for the line on stopping the ranks: "received SIGTERM"."""
        return str(self)

    @property
    def why_save(self) -> str:
        """Why the ranks are asked for a checkpoint."""
        return f"{self.reason}; the ranks save a checkpoint first"

    @property
    def to_stop(self) -> str:
        """What stops the ranks at once while they save: "SIGINT"."""
        return "SIGINT"

    @property
    def to_kill(self) -> str:
        """What kills the ranks at once while they are stopped: "Ctrl-C"."""
        return "Ctrl-C"

    @property
    def restart(self) -> Restart:
        """Whether a restart makes sense after it, as far as evidence of a failed rank does not decide that."""
        return Restart.TRANSIENT

    @property
    def may_restart(self) -> bool:
        """Whether an attempt may follow."""
        return self.restart is not Restart.EXCLUDED

    @property
    def fingerprint(self) -> str:
        """What equal failures share, as far as no evidence of a failed rank has more."""
        return self.report_kind

    def why_early(self, _seconds: float, _checkpoint_grace: float) -> str:
        """Return why it has ended a job of these seconds before its time, or "" if it has not."""
        return ""

    def explained(self, _why: str) -> Cause:
        """Return the cause with the rank's own words, such as its exception, if that rank ended first."""
        return self


@attrs.frozen
class Exited(Cause):
    """The leader of the rank has ended. With `has_stragglers`, others of its group live on, and `Emptied` follows.

    `name`: of an auxiliary process, in a cause. With `is_consequence`, the rank reports only what may be a lost peer,
    and no living rank has reported a cause yet; with `has_report` as well, HCCL will report it on every rank.
    In what `launch` returns, `why` is what the rank itself says, such as
    "ValueError: loss is nan at step 17".
    """

    report_kind: ClassVar[str] = "rank_failed"
    public: ClassVar[str] = "{rank} failed{how}"
    may_be_the_node: ClassVar[bool] = True
    ends_first: ClassVar[bool] = True
    rank_id: int
    ending: Ending
    has_stragglers: bool = False
    is_consequence: bool = False
    has_report: bool = False
    name: str = ""
    why: str = attrs.field(default="", eq=False)

    @property
    def exit_status(self) -> int:
        """N for exit status N, 128 + S for death by signal S."""
        return self.ending.exit_status

    @property
    def reason(self) -> str:
        return f"{self.title} failed ({self.ending.in_parentheses})"

    @property
    def fingerprint(self) -> str:
        return str(self.ending)

    def explained(self, why: str) -> Exited:
        return attrs.evolve(self, why="" if why in str(self.ending) else why)

    def __str__(self) -> str:
        verb = "ended" if self.ending.is_success else "failed"
        how = f"{self.why} ({self.ending.in_parentheses})" if self.why else self.ending
        return f"{self.title} {verb}: {how}"


@attrs.frozen
class SpawnFailed(Cause):
    """The leader of the rank could not be started. `name`: of an auxiliary process, in a cause."""

    report_kind: ClassVar[str] = "rank_not_started"
    public: ClassVar[str] = "{rank} could not be started"
    ends_first: ClassVar[bool] = True
    rank_id: int
    reason: str
    exit_status: int  # the exit status of the job, 125 to 127
    name: str = ""

    @property
    def restart(self) -> Restart:
        return Restart.NEVER if self.exit_status in NO_SUCH_COMMAND else Restart.CONFIRM

    @property
    def fingerprint(self) -> str:
        return f"not started: exit status {self.exit_status}"

    def __str__(self) -> str:
        return f"cannot start {self.title}: {self.reason}"


@attrs.frozen
class SignalReceived(Cause):
    """The runner has received a signal. A job that a signal stops is never a success.

    The kernel sends SIGTERM if the parent of the runner was killed, whose pid users address: that is `guardian` then,
    and `runner` is the pid to which further signals go. It also does so if the process that launched the runner,
    such as `ascend-job batch`, has ended: that is `launcher` then. Otherwise these are 0. `node` is the number of
    another node of the job that has received the signal instead, and has passed it on.
    """

    report_kind: ClassVar[str] = "interrupted"
    public: ClassVar[str] = "the job was stopped{how}"
    saves_first: ClassVar[bool] = True
    is_from_outside: ClassVar[bool] = True
    restart: ClassVar[Restart] = Restart.EXCLUDED
    signum: int
    guardian: int = 0
    runner: int = 0
    launcher: int = 0
    node: int | None = None

    @property
    def stop_signal(self) -> int:
        """The signal that was sent: SIGKILL if the guardian was killed, since it handles all others."""
        return Signals.SIGKILL if self.guardian else self.signum

    @property
    def exit_status(self) -> int:
        """143 for SIGTERM, 137 for SIGKILL: as a shell shows it for a process that the signal killed."""
        return 128 + self.stop_signal

    @property
    def reason(self) -> str:
        if self.node is not None and self.signum == Signals.SIGKILL:  # no process can handle it
            return f"the runner of node {self.node} was killed"
        if self.node is not None:
            return f"node {self.node} received {signal_name(self.signum)}"
        return str(self) if self.guardian or self.launcher else f"received {signal_name(self.signum)}"

    @property
    def to_stop(self) -> str:
        return self._to_runner or f"{signal_name(self.signum)}{self._again}"

    @property
    def to_kill(self) -> str:
        if self.signum == SIGINT:
            return f"Ctrl-C{self._again}"
        return self._to_runner or (f"SIGTERM{self._again}" if self.signum == SIGTERM else "SIGTERM")

    @property
    def _again(self) -> str:
        return " again" if self.node is None else ""

    @property
    def _to_runner(self) -> str:
        return f"send SIGTERM to pid {self.runner}" if self.guardian else ""

    def __str__(self) -> str:
        if self.guardian:
            return f"ascend-runner (pid {self.guardian}) was killed"
        if self.launcher:
            return f"{LAUNCHER} (pid {self.launcher}) has ended"
        place = "" if self.node is None else f" on node {self.node}"
        return f"stopped by {signal_name(self.signum)}{place}"


@attrs.frozen(kw_only=True)
class PeerFailed(Cause):
    """Another node of the job has failed, and therefore the ranks of this one are stopped. `sentence` says how."""

    report_kind: ClassVar[str] = "node_failed"
    public: ClassVar[str] = "another node of the job has failed"
    is_elsewhere: ClassVar[bool] = True
    attempt: int  # the attempt that it ends; this node may be at another one
    sentence: str
    exit_status: int  # as the other node has it

    @property
    def restart(self) -> Restart:
        return Restart.NEVER if self.exit_status == RUNNER_FAILED else Restart.TRANSIENT

    def __str__(self) -> str:
        return self.sentence


@attrs.frozen
class HangDetected(Cause):
    """No rank has written any output, or sent a heartbeat where ranks send them, for `seconds`, the limit.

    With `is_over`, after a hang that has not ended the job, a rank has done so again. `outlier` describes the few ranks
    that are elsewhere than all others, if such a hang has any. With `peer`, the ranks have been silent for `seconds`,
    and this sentence says which rank HCCL reports as lost or stuck: the limit was not waited for.
    """

    report_kind: ClassVar[str] = "hang"
    public: ClassVar[str] = "the job hung"
    excluded_by: ClassVar[str] = "--hang-action stop"
    may_be_elsewhere: ClassVar[bool] = True
    may_be_the_node: ClassVar[bool] = True
    has_stacks: ClassVar[bool] = True
    seconds: float
    has_heartbeats: bool = False  # whether heartbeats count instead of output
    is_over: bool = False
    outlier: str = ""
    peer: str = ""

    def __str__(self) -> str:
        if self.is_over:
            return "the job is no longer hanging (--hang-timeout): the ranks are active again"
        silence = "sent a heartbeat" if self.has_heartbeats else "wrote any output"
        outlier = f"; {self.outlier}" if self.outlier else ""
        if self.peer:
            return f"{self.peer}; no rank {silence} for {self.seconds:.0f} s{outlier}"
        return f"no rank {silence} for {self.seconds:g} s (--hang-timeout){outlier}"


@attrs.frozen
class LimitReached(Cause):
    """The time limit of the job, `seconds` from its start, ends it: then, or as soon as its ranks have saved.

    A job that has failed ends at once if the limit comes before its restart, which would follow after `delay` seconds.
    """

    report_kind: ClassVar[str] = "expired"
    public: ClassVar[str] = "the job has reached its time limit"
    saves_first: ClassVar[bool] = True
    is_from_outside: ClassVar[bool] = True
    restart: ClassVar[Restart] = Restart.EXCLUDED
    seconds: float
    delay: float = 0.0

    @property
    def reason(self) -> str:
        return f"time limit of {duration(self.seconds)}"

    @property
    def why_save(self) -> str:
        return "the ranks are asked for a checkpoint because the time limit is near"

    def why_early(self, seconds: float, checkpoint_grace: float) -> str:
        """The ranks have saved, or a restart would come too late."""
        if seconds >= self.seconds:
            return ""
        if self.delay:
            return f"a restart in {duration(self.delay)} would come after the {self.reason}"
        return f"its {self.reason} reserves {duration(checkpoint_grace)} for saving (--checkpoint-grace)"

    def __str__(self) -> str:
        limit = f"stopped by the time limit of {duration(self.seconds)}"
        return f"{limit}, which comes before the restart in {duration(self.delay)}" if self.delay else limit


class FindingKind(enum.Enum):
    """The kind of a finding about this node."""

    UNHEALTHY = "unhealthy"  # a defect has appeared
    RECOVERED = "unhealthy-over"  # it has disappeared
    NOTICE = "notice"  # about the inspection itself
    PRECHECK = "precheck"  # a problem that was found before the start
    PRECHECKED = "precheck-over"  # that check has ended; counts what it has found

    @property
    def is_of_precheck(self) -> bool:
        """Whether it is about the check before the start, which has shown it already."""
        return self in {FindingKind.PRECHECK, FindingKind.PRECHECKED}


@attrs.frozen(kw_only=True)
class NodeFinding(Cause):
    """A finding about this node. One with `is_error` ends a job with `--inspect stop`.

    `subject` identifies what was found, such as "device 5: 80E01801": of two findings on the same subject, the later
    one replaces the other. `sentence` describes it in the past tense; `at` is in seconds since the epoch.
    """

    report_kind: ClassVar[str] = "unhealthy"
    excluded_by: ClassVar[str] = "--inspect stop"
    saves_first: ClassVar[bool] = True
    restart: ClassVar[Restart] = Restart.EXCLUDED
    subject: str
    sentence: str
    at: float
    kind: FindingKind = FindingKind.UNHEALTHY
    is_error: bool = False

    @property
    def fingerprint(self) -> str:
        return f"unhealthy: {self.subject}"

    def __str__(self) -> str:
        return f"{self.sentence} (--inspect stop)"


class Rule(enum.Enum):
    """A way in which a training is slow."""

    RATIO = "ratio"  # hardware / end-to-end time
    DROP = "drop"
    STRAGGLER = "straggler"

    @property
    def is_about_a_rank(self) -> bool:
        """Whether a rank breaks it by itself, and not the training."""
        return self is Rule.STRAGGLER


@attrs.frozen(kw_only=True)
class Slowdown(Cause):
    """The training has become slow by a rule of `performance`; with `is_over`, it is no longer slow by it.

    `name` is for an auxiliary process. `own` and `reference` are the times in seconds that the rule compares: a
    hardware time and an end-to-end time, or a median and the best one, or the median of all ranks. `usual` are both
    times before a high ratio. With a `unit`, the inverse of a time is a throughput. `device` is the local index of a
    straggler's NPU, and `temperature` is in degrees Celsius; both are None if they are unknown.
    """

    report_kind: ClassVar[str] = "slow"
    public: ClassVar[str] = "the training was slow"
    excluded_by: ClassVar[str] = "--perf-action stop"
    saves_first: ClassVar[bool] = True
    may_be_elsewhere: ClassVar[bool] = True
    rule: Rule
    rank_id: int
    own: float
    reference: float
    name: str = ""
    usual: tuple[float, float] | None = None
    unit: str = ""
    step: int | None = None
    device: int | None = None
    temperature: int | None = None
    is_over: bool = False

    @property
    def fingerprint(self) -> str:
        return f"slow: {self.rule.value}"

    def __str__(self) -> str:
        sentence = {Rule.RATIO: self._ratio, Rule.DROP: self._drop, Rule.STRAGGLER: self._straggler}[self.rule]()
        return sentence if self.step is None else f"{sentence}, at step {self.step}"

    def _ratio(self) -> str:
        before = f", before that {self.usual[0]:.3g} s of {self.usual[1]:.3g} s" if self.usual else ""
        share = f"{self.own / self.reference:.0%} of the end-to-end time"
        figures = f"({self.own:.3g} s of {self.reference:.3g} s{before}) in {self.title}"
        if self.is_over:
            return f"the hardware time is down to {share} {figures}"
        return f"slow training (--perf-threshold): the hardware time is {share} {figures}"

    def _drop(self) -> str:
        now, best = f"{self.own:.3g} s per step", f"{self.reference:.3g} s"
        if self.unit:
            now, best = f"{1 / self.own:.3g} {self.unit}", f"{1 / self.reference:.3g}"
        figures = f"{now}, at best {best}, in {self.title}"
        if self.is_over:
            return f"the training is no longer slow: {figures}"
        return f"slow training (--perf-drop): {1 - self.reference / self.own:.0%} below its best speed, {figures}"

    def _straggler(self) -> str:
        device = "" if self.device is None else f"device {self.device}"
        degrees = "" if self.temperature is None else f"{self.temperature} °C"
        place = ", ".join(filter(None, (device, degrees)))
        rank = f"{self.title} ({place})" if place else self.title
        change = "is no longer slower" if self.is_over else "is slower"
        return f"{rank} {change} than the other ranks: hardware time {self.own:.3g} s, median {self.reference:.3g} s"


AnyCause = Union[Exited, SpawnFailed, SignalReceived, PeerFailed, HangDetected, LimitReached, NodeFinding, Slowdown]
CAUSES: Final[tuple[type[AnyCause], ...]] = get_args(AnyCause)


def named(cause: Cause, names: Mapping[int, str]) -> Cause:
    """Return a cause with the name of its rank; only auxiliary processes have one."""
    return attrs.evolve(cause, name=names[cause.rank_id]) if isinstance(cause, (Exited, SpawnFailed)) else cause

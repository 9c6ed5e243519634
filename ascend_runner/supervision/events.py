"""The events of a job. The manager observes them, the state machine answers them, and one is the cause of the end."""

from __future__ import annotations

from signal import SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGQUIT, SIGSEGV, SIGSYS, SIGTRAP, SIGXCPU, SIGXFSZ, Signals
from typing import ClassVar, Final, Union

import attrs

from ascend_runner.errors import TIMED_OUT
from ascend_runner.supervision.findings import NodeFinding
from ascend_runner.supervision.slowdown import Slowdown
from ascend_runner.text import duration, rank_title, signal_name

# Signals whose default action is to dump core, if the limits permit it (signal(7)).
CORE_SIGNALS: Final = frozenset({SIGQUIT, SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV, SIGXCPU, SIGXFSZ, SIGSYS})
LAUNCHER: Final = "the process that launched ascend-runner"


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

    def __str__(self) -> str:
        """Describe it: "exit status 1", "killed by SIGTERM", "killed by SIGSEGV (core dumped)", or "(no core)"."""
        if not self.signum:
            return f"exit status {self.exit_code}"
        sentence = f"killed by {signal_name(self.signum)}"
        if self.core_dumped:
            return f"{sentence} (core dumped)"
        return f"{sentence} (no core)" if self.signum in CORE_SIGNALS else sentence


@attrs.frozen
class Spawned:
    """The leader of the rank is running."""

    rank_id: int
    pid: int


@attrs.frozen
class SpawnFailed:
    """The leader of the rank could not be started. `name`: of an auxiliary process, in a cause."""

    rank_id: int
    reason: str
    exit_status: int  # the exit status of the job, 125 to 127
    name: str = ""

    def __str__(self) -> str:
        return f"cannot start {rank_title(self.rank_id, self.name)}: {self.reason}"


@attrs.frozen
class Exited:
    """The leader of the rank has ended. With `has_stragglers`, others of its group live on, and `Emptied` follows.

    `name`: of an auxiliary process, in a cause. With `is_consequence`, the rank reports only what may be a lost peer,
    and no living rank has reported a cause yet.
    """

    rank_id: int
    ending: Ending
    has_stragglers: bool = False
    is_consequence: bool = False
    name: str = ""

    @property
    def exit_status(self) -> int:
        """N for exit status N, 128 + S for death by signal S."""
        return self.ending.exit_status

    def __str__(self) -> str:
        verb = "ended" if self.ending.is_success else "failed"
        return f"{rank_title(self.rank_id, self.name)} {verb}: {self.ending}"


@attrs.frozen
class Emptied:
    """The last straggler of a rank has ended."""

    rank_id: int


@attrs.frozen
class AskedProcessEnded:
    """A process that was asked to stop has ended: the processes that it took care of are on their own now."""


@attrs.frozen
class SignalReceived:
    """The runner has received a signal. A job that a signal stops is never a success.

    The kernel sends SIGTERM if the parent of the runner was killed, whose pid users address: that is `guardian` then,
    and `runner` is the pid to which further signals go. It also does so if the process that launched the runner,
    such as `ascend-job batch`, has ended: that is `launcher` then. Otherwise these are 0.
    """

    signum: int
    guardian: int = 0
    runner: int = 0
    launcher: int = 0

    @property
    def origin(self) -> int:
        """The signal that somebody has sent: a guardian handles every one but SIGKILL."""
        return Signals.SIGKILL if self.guardian else self.signum

    @property
    def exit_status(self) -> int:
        """143 for SIGTERM, 137 for SIGKILL: as a shell shows it for a process that the signal killed."""
        return 128 + self.origin

    def __str__(self) -> str:
        if self.guardian:
            return f"ascend-runner (pid {self.guardian}) was killed"
        if self.launcher:
            return f"{LAUNCHER} (pid {self.launcher}) has ended"
        return f"stopped by {signal_name(self.signum)}"


@attrs.frozen
class HangDetected:
    """No rank has written any output, or sent a heartbeat where ranks send them, for `seconds`, the limit.

    With `is_over`, after a hang that has not ended the job, a rank has done so again.
    """

    exit_status: ClassVar[int] = TIMED_OUT
    seconds: float
    has_heartbeats: bool = False  # whether heartbeats count instead of output
    is_over: bool = False

    def __str__(self) -> str:
        if self.is_over:
            return "the job is no longer hanging (--hang-timeout): the ranks are active again"
        silence = "sent a heartbeat" if self.has_heartbeats else "wrote any output"
        return f"no rank {silence} for {self.seconds:g} s (--hang-timeout)"


@attrs.frozen
class LimitReached:
    """The time limit of the job, `seconds` from its start, ends it: then, or as soon as its ranks have saved.

    A job that has failed ends at once if the limit comes before its restart, which would follow after `delay` seconds.
    """

    exit_status: ClassVar[int] = TIMED_OUT
    seconds: float
    delay: float = 0.0

    def __str__(self) -> str:
        limit = f"stopped by the time limit of {duration(self.seconds)}"
        return f"{limit}, which comes before the restart in {duration(self.delay)}" if self.delay else limit


@attrs.frozen
class CheckpointRequested:
    """The ranks are to save a checkpoint; with `limit`, because the time limit of the job is near."""

    limit: LimitReached | None = None


@attrs.frozen
class AskedToSave:
    """Ranks were asked for a checkpoint; `reached` are those of which a process handles the signal.

    With `is_limit_moved`, the time limit that they were asked for is no longer near. Ranks that `can_report` have
    announced that they report each checkpoint.
    """

    reached: frozenset[int]
    is_limit_moved: bool = False
    can_report: frozenset[int] = frozenset()


@attrs.frozen
class Saved:
    """The rank has reported that it has saved its part of a checkpoint since it was asked."""

    rank_id: int


@attrs.frozen
class DeadlineReached:
    """The time set by the last `SetDeadline` has passed, or there is nothing left to wait for."""


Event = Union[
    Spawned,
    SpawnFailed,
    Exited,
    Emptied,
    AskedProcessEnded,
    SignalReceived,
    HangDetected,
    Slowdown,
    LimitReached,
    NodeFinding,
    CheckpointRequested,
    AskedToSave,
    Saved,
    DeadlineReached,
]

# The event that ended a job is its cause: `str` explains it, and `exit_status` is that of the job.
Cause = Union[Exited, SpawnFailed, SignalReceived, HangDetected, Slowdown, LimitReached, NodeFinding]

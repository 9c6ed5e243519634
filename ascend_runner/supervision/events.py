"""What can happen to a job. The Linux shell observes these facts; the state machine answers them."""

from __future__ import annotations

from ascend_runner.annotations import Final, NamedTuple, Union
from ascend_runner.plain_signal import (
    SIGABRT,
    SIGBUS,
    SIGFPE,
    SIGILL,
    SIGQUIT,
    SIGSEGV,
    SIGSYS,
    SIGTRAP,
    SIGXCPU,
    SIGXFSZ,
)

# Those whose default action leaves a core where the limits let it (signal(7)).
CORE_SIGNALS: Final = frozenset({SIGQUIT, SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV, SIGXCPU, SIGXFSZ, SIGSYS})


class Ending(NamedTuple):
    """How a process ended: by `exit_code`, or, where `signum` is not 0, by that signal (wait(2))."""

    exit_code: int = 0
    signum: int = 0
    core_dumped: bool = False

    @property
    def is_success(self) -> bool:
        """Whether it ended by itself with exit code 0."""
        return self == Ending()

    @property
    def exit_status(self) -> int:
        """What a shell would show: the exit code, or 128 + the signal (POSIX, XCU 2.8.2)."""
        return 128 + self.signum if self.signum else self.exit_code

    def __str__(self) -> str:
        """Say it: "exit status 1", "killed by SIGTERM", "killed by SIGSEGV (core dumped)", or "(no core)"."""
        if not self.signum:
            return f"exit status {self.exit_code}"
        core = " (core dumped)" if self.core_dumped else " (no core)" if self.signum in CORE_SIGNALS else ""
        return f"killed by {signal_name(self.signum)}{core}"


class Spawned(NamedTuple):
    """The rank's leader runs."""

    rank_id: int


class SpawnFailed(NamedTuple):
    """The rank's leader could not be started; `exit_status` is what that means for the job (125 to 127)."""

    rank_id: int
    reason: str
    exit_status: int


class Exited(NamedTuple):
    """The rank's leader has ended. With `has_stragglers` others of its group live on, and `Emptied` follows."""

    rank_id: int
    ending: Ending
    has_stragglers: bool = False


class Emptied(NamedTuple):
    """The last straggler of a rank whose leader had ended is gone."""

    rank_id: int


class SignalReceived(NamedTuple):
    """The runner was sent a signal."""

    signum: int


class HangDetected(NamedTuple):
    """No rank has written a byte for `seconds`, as long as the user allowed."""

    seconds: float


class DeadlineReached(NamedTuple):
    """The time asked for by the last `SetDeadline` has passed."""


Event = Union[Spawned, SpawnFailed, Exited, Emptied, SignalReceived, HangDetected, DeadlineReached]


def signal_name(signum: int) -> str:
    """Name a signal; a real-time signal has a number only."""
    from signal import Signals  # only where a signal is spoken of

    try:
        return Signals(signum).name
    except ValueError:
        return f"signal {signum}"

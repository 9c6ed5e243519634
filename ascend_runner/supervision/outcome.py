"""What a job came to: the first cause, what became of each rank, and the exit-status law."""

from __future__ import annotations

from types import MappingProxyType

from ascend_runner.annotations import TYPE_CHECKING, NamedTuple, Union

from .events import signal_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .events import Ending


class RankFailed(NamedTuple):
    """The first rank that ended, by itself, otherwise than with exit status 0. `name`: of a process that is no rank."""

    rank_id: int
    ending: Ending
    name: str = ""

    @property
    def exit_status(self) -> int:
        """N for exit status N, 128 + S for death by signal S."""
        return self.ending.exit_status

    def __str__(self) -> str:
        return f"{self.name or f'rank {self.rank_id}'} failed first: {self.ending}"


class RankNotStarted(NamedTuple):
    """A rank's process could not be started. `name`: of a process that is no rank."""

    rank_id: int
    reason: str
    exit_status: int
    name: str = ""

    def __str__(self) -> str:
        return f"{self.name or f'rank {self.rank_id}'} could not be started: {self.reason}"


class Interrupted(NamedTuple):
    """The runner was told to stop. Being stopped is never success."""

    signum: int

    @property
    def exit_status(self) -> int:
        """143 for SIGTERM, 130 for SIGINT: what a shell shows for a process that the signal killed."""
        return 128 + self.signum

    def __str__(self) -> str:
        return f"stopped by {signal_name(self.signum)}"


class Hung(NamedTuple):
    """No rank wrote anything for `seconds`, and the runner was asked to watch for that."""

    seconds: float

    @property
    def exit_status(self) -> int:
        """What timeout(1) ends with when its limit has passed."""
        return 124

    def __str__(self) -> str:
        return f"no rank wrote anything for {self.seconds:g} s (--hang-timeout)"


Cause = Union[RankFailed, RankNotStarted, Interrupted, Hung]


class RankOutcome(NamedTuple):
    """What became of one rank: `ending` is None where it was not started, or could not be killed.

    `rank_id` is below 0 for the process that has none. The state machine gives the first four; what was seen of the
    process (its pid, the `seconds` it ran, the path of its log, the number of bytes it wrote, its last lines) is added
    by the manager.
    """

    rank_id: int
    ending: Ending | None
    is_started: bool = True
    is_told_to_stop: bool = False
    pid: int = 0
    seconds: float = 0.0
    log_path: str = ""
    log_size: int = 0
    last_lines: tuple[str, ...] = ()


class Outcome(NamedTuple):
    """What the job came to. `cause` is None exactly where every rank exited 0; `ranks` is in rank order.

    `seconds` is how long it ran. `report` is the whole story, as `<job id>-report.json` has it; its schema is that of
    the module `report`.
    """

    cause: Cause | None
    ranks: tuple[RankOutcome, ...]
    seconds: float = 0.0
    report: Mapping[str, object] = MappingProxyType({})

    @property
    def status(self) -> int:
        """The exit status of the job: that of the first cause, 0 without one. What others did later never counts."""
        return self.cause.exit_status if self.cause else 0

    def check(self) -> None:
        """Do nothing after a success. Errors: JobFailedError with the cause and its exit status."""
        if self.cause:
            from ascend_runner.errors import JobFailedError  # only here

            raise JobFailedError(str(self.cause), exit_status=self.status)

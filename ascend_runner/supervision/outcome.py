"""How a job ended: the first cause, the fate of each rank, and the exit status that follows."""

from __future__ import annotations

from typing import Union

import attrs

from ascend_runner.supervision.events import Ending, signal_name


@attrs.frozen
class RankFailed:
    """The first rank that ended by itself with anything but exit status 0. `name`: of an auxiliary process."""

    rank_id: int
    ending: Ending
    name: str = ""

    @property
    def exit_status(self) -> int:
        """N for exit status N, 128 + S for death by signal S."""
        return self.ending.exit_status

    def __str__(self) -> str:
        return f"{self.name or f'rank {self.rank_id}'} failed: {self.ending}"


@attrs.frozen(kw_only=True)
class RankNotStarted:
    """A rank could not be started. `name`: of an auxiliary process."""

    rank_id: int
    reason: str
    exit_status: int
    name: str = ""

    def __str__(self) -> str:
        return f"cannot start {self.name or f'rank {self.rank_id}'}: {self.reason}"


@attrs.frozen
class Interrupted:
    """The runner received a stop signal. An interrupted job is never a success."""

    signum: int

    @property
    def exit_status(self) -> int:
        """143 for SIGTERM, 130 for SIGINT: what a shell shows for a process that the signal killed."""
        return 128 + self.signum

    def __str__(self) -> str:
        return f"stopped by {signal_name(self.signum)}"


@attrs.frozen
class Hung:
    """No rank wrote any output for `seconds`, the limit set by the user."""

    seconds: float

    @property
    def exit_status(self) -> int:
        """124, as of timeout(1) when its limit has expired."""
        return 124

    def __str__(self) -> str:
        return f"no rank wrote any output for {self.seconds:g} s (--hang-timeout)"


Cause = Union[RankFailed, RankNotStarted, Interrupted, Hung]


@attrs.frozen
class RankOutcome:
    """The fate of one rank. `ending` is None if it was not started, or is still alive after SIGKILL.

    `rank_id` is negative for an auxiliary process. With `is_stopped`, the runner asked the rank to stop before it
    ended.
    """

    rank_id: int
    ending: Ending | None
    is_started: bool = True
    is_stopped: bool = False


@attrs.frozen
class AttemptOutcome:
    """How an attempt ended. `cause` is None exactly if every rank exited 0; `ranks` is in rank order."""

    cause: Cause | None
    ranks: tuple[RankOutcome, ...]

    @property
    def status(self) -> int:
        """The exit status: that of the first cause, 0 without one. Later failures never count."""
        return self.cause.exit_status if self.cause else 0

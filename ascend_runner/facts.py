"""What the manager observes while a job runs, as one stream of records, and the protocol of observers.

The screen and the report are made from these facts alone. `at` is in seconds of the manager's clock, which is
monotonic and has no fixed zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional, Protocol, Union

import attrs

from ascend_runner.diagnosis.finding import StackGroup
from ascend_runner.supervision.events import Ending
from ascend_runner.supervision.outcome import AttemptOutcome, Cause


@attrs.frozen(kw_only=True)
class Usage:
    """Resources used by a process and the children it waited for: peak memory in bytes, CPU time in seconds."""

    max_rss: int
    user_seconds: float
    system_seconds: float


@attrs.frozen(kw_only=True)
class RankOutput:
    """The output of a rank so far: its size in bytes and its end.

    The log file lacks `lost` of these bytes, the first of them at offset `lost_from` (None: it lacks none).
    With `is_disk_hung`, its disk did not respond at the end, so that nothing on it should be waited for.
    """

    size: int = 0
    tail: bytes = b""
    lost: int = 0
    lost_from: Optional[int] = None
    is_disk_hung: bool = False

    @property
    def is_all_in_tail(self) -> bool:
        """Whether `tail` is the entire output."""
        return self.size <= len(self.tail)


@attrs.frozen
class Failure:
    """A rank that has ended otherwise than with exit status 0, and what it had written by then."""

    rank_id: int
    ending: Ending
    output: RankOutput


@attrs.frozen
class Survivor:
    """A process that is still alive after SIGKILL. `rank_id` is None for one that had left its rank's session."""

    rank_id: Optional[int]
    description: str


# --- Facts ------------------------------------------------------------------------------------------------------------


@attrs.frozen
class JobStarting:
    """The log files are open, and the first rank is about to be started.

    With `is_proc_hidden`, /proc belongs to another PID namespace: processes that leave their rank's session will not
    be found.
    """

    at: float
    is_proc_hidden: bool = False


@attrs.frozen
class RankStarted:
    """The first process of a rank is running."""

    rank_id: int
    pid: int
    at: float


@attrs.frozen(kw_only=True)
class RankExited:
    """The first process of a rank has ended. With `has_stragglers`, others of its session are still alive."""

    rank_id: int
    ending: Ending
    at: float
    has_stragglers: bool = False


@attrs.frozen
class RankReaped:
    """Nothing is left of a rank, and its pid was given back to the kernel."""

    rank_id: int
    usage: Usage


@attrs.frozen(kw_only=True)
class TeardownStarted:
    """The living ranks `rank_ids` are asked to stop and have `grace` seconds for it.

    `cause` is None where all ranks exited 0 and only stragglers are left.
    """

    cause: Optional[Cause]
    rank_ids: tuple[int, ...]
    grace: float
    at: float


@attrs.frozen
class SignalUnhandled:
    """The runner was sent a signal for the ranks, and no process of theirs handles it."""

    signum: int


@attrs.frozen
class HangSeen:
    """Where all living ranks of a hanging job stand, outliers first.

    `refusal` says why the stacks are the kernel's view instead of Python's; "" where they are Python's.
    """

    stacks: tuple[StackGroup, ...]
    refusal: str = ""


@attrs.frozen
class EscapedKilled:
    """Processes had left their rank's session, and were killed after the ranks had ended: their names by pid."""

    names: Mapping[int, str]


@attrs.frozen
class ProcessesSurvived:
    """Some processes are still alive after SIGKILL."""

    survivors: tuple[Survivor, ...]


@attrs.frozen
class OutputComplete:
    """The final state of a rank's output. With `is_cut_off`, its last bytes were still unread when time ran out."""

    rank_id: int
    output: RankOutput
    is_cut_off: bool = False


@attrs.frozen
class JobEnded:
    """The job is over; no fact follows."""

    outcome: AttemptOutcome
    at: float


Fact = Union[
    JobStarting,
    RankStarted,
    RankExited,
    RankReaped,
    TeardownStarted,
    SignalUnhandled,
    HangSeen,
    EscapedKilled,
    ProcessesSurvived,
    OutputComplete,
    JobEnded,
]


class Observer(Protocol):
    """Listens to the facts of one job. Called in the manager's thread: it must return at once and must not fail."""

    def observe(self, fact: Fact) -> None:
        """Take one fact; facts come in the order in which they happened. A fact of no interest is ignored."""

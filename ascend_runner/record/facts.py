"""The facts of a job that observers receive, and which ranks were stopped by them. Pure.

The screen and the report are made from these facts alone. Sentences for the user go to `Messages`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from signal import SIGKILL
from typing import TYPE_CHECKING, Protocol, Union

import attrs

from ascend_runner.supervision.causes import AnyCause, Cause, Ending, Exited
from ascend_runner.supervision.events import AskedProcessEnded, DeadlineReached, Emptied, Spawned
from ascend_runner.supervision.state import State
from ascend_runner.text import duration, rank_list, signal_name

if TYPE_CHECKING:
    from ascend_runner.diagnosis.finding import CollectiveGroup, StackGroup


@attrs.frozen(kw_only=True)
class RankReaped:
    """A rank without living processes was reaped, which freed its pid.

    The figures include the leader and the children it waited for.
    """

    rank_id: int
    max_rss: int | None  # bytes; None: not above the runner's, with which the leader began
    user_seconds: float
    system_seconds: float


@attrs.frozen(kw_only=True, repr=False)  # it may be long, and have secrets
class RankOutput:
    """The output of a rank so far. Observers get it when it is complete.

    After a failure, the output of ranks about to be stopped is also reported beforehand, because later output may be a
    consequence of the stop. Times are in seconds of the manager's clock, None if it wrote nothing.
    """

    rank_id: int
    start: int = 0  # its offset in the log, after the output of earlier attempts
    size: int = 0  # bytes
    tail: bytes = b""
    lost: int = 0  # the bytes of it that the log lacks
    lost_from: int | None = None  # the offset of the first one in the log
    is_disk_hung: bool = False  # whether its disk did not respond at the end: nothing on it should be waited for
    first_at: float | None = None
    last_at: float | None = None
    activity: tuple[int, ...] = ()  # the bytes in each span of `cell_seconds` since the start of the job
    cell_seconds: float = 0.0

    @property
    def is_all_in_tail(self) -> bool:
        """Whether `tail` is the entire output."""
        return self.size <= len(self.tail)


@attrs.frozen
class SignalsSent:
    """Signals were sent to ranks; `signums` has the signal by rank. It may be sent again to new processes of a rank."""

    signums: Mapping[int, int]


@attrs.frozen
class SignalUnhandled:
    """The runner was sent a signal for the ranks, and no process of theirs handles it."""

    signum: int


def role(engine: str) -> str:
    """Return why an engine must run only once on each node, as the rest of a sentence about it."""
    return "starts one node of a cluster" if engine == "ray" else "starts one process per device itself"


def run_once(engine: str) -> str:
    """Return what to do about an engine that every rank would run."""
    if engine == "ray":
        return "use --launcher ray in place of `ray start`, or --nproc-per-node 1 to run the command once"
    return f"use --nproc-per-node 1 to run the command once, or start the training script without {engine}"


@attrs.frozen
class EngineSeen:
    """A rank runs another engine, which must run only once on each node: n ranks would be n x n processes."""

    rank_id: int
    engine: str
    pid: int

    def __str__(self) -> str:
        """Describe it with the ways out."""
        engine = f"{self.engine} (pid {self.pid}), which {role(self.engine)}"
        return f"rank {self.rank_id} runs {engine}: {run_once(self.engine)}"


@attrs.frozen(kw_only=True)
class CheckpointAsked:
    """Ranks were asked for a checkpoint: a rank is reached if one of its processes handles the signal.

    The others are asked as soon as they handle it, within `seconds` (0: never), unless the job is stopped before.
    """

    signum: int
    reached: frozenset[int]
    unreached: frozenset[int]
    seconds: float

    def __str__(self) -> str:
        """Describe it: "asked ranks 0-6 for a checkpoint, but not rank 7, which does not handle SIGUSR1"."""
        name, verb = signal_name(self.signum), "does" if len(self.unreached) == 1 else "do"
        if not self.reached:
            return f"no rank handles {name}, so none was asked for a checkpoint"
        asked = f"asked {rank_list(self.reached)} for a checkpoint"
        return asked + (
            f", but not {rank_list(self.unreached)}, which {verb} not handle {name}" if self.unreached else ""
        )


@attrs.frozen
class CheckpointPostponed:
    """A request for a checkpoint is sent in `seconds`: earlier, the ranks would take it for a repetition."""

    seconds: float

    def __str__(self) -> str:
        when = duration(math.ceil(self.seconds))
        return f"the ranks have just saved a checkpoint; they will be asked for another one in {when}"


@attrs.frozen
class CheckpointRefused:
    """The runner was sent the signal for a checkpoint while the ranks were being stopped, or after they had ended."""

    signum: int


@attrs.frozen(kw_only=True)
class Beat:
    """A rank's latest report about itself. Texts are the rank's own."""

    at: float  # in seconds of the manager's clock
    step: int | None = None
    section: str = ""
    status: str = ""
    checkpoint: str = ""


@attrs.frozen(kw_only=True)
class SavedCheckpoint:
    """A rank has reported that it saved its part of a checkpoint, or that it skipped it."""

    at: float  # in seconds of the manager's clock
    path: str = ""  # "": it has not said so, or has not saved
    step: int | None = None


@attrs.frozen
class HangSeen:
    """The stacks of all living ranks of a hanging job, outliers first."""

    stacks: tuple[StackGroup, ...]
    refusal: str = ""  # why they are the kernel's view instead of Python's; "": they are Python's
    beats: Mapping[int, Beat] = {}  # of the ranks that send any
    outlier: str = ""  # the few ranks that are elsewhere than all others
    collectives: tuple[CollectiveGroup, ...] = ()  # where the ranks are in them, by their flight recorders
    no_collectives: str = ""  # why that is unknown ("": it is known, or there is no flight recorder)
    was_asked: bool = False  # whether flight recorders were asked, about which ranks may have logged messages


@attrs.frozen(kw_only=True)
class CheckpointEnded:
    """A request for a checkpoint is over."""

    asked_at: float
    seconds: float  # since then
    is_cut: bool = False  # whether the ranks did not get all the time, for example because of a further stop signal
    saved: Mapping[int, SavedCheckpoint] = {}  # the reports, by rank
    missing: tuple[int, ...] = ()  # the ranks that were expected to report, but did not
    stacks: HangSeen = HangSeen(())  # theirs, if they were read
    failed: Mapping[int, Ending] = {}  # the endings of the ranks that failed before they had reported
    failed_since: Mapping[int, Ending] = {}  # of ranks that cannot report, and have failed since the request
    unasked: tuple[int, ...] = ()  # the ranks that do not handle the signal

    @property
    def parts(self) -> Mapping[int, SavedCheckpoint]:
        """The parts of the checkpoint that were saved, by rank."""
        return {rank_id: saved for rank_id, saved in self.saved.items() if saved.path}


@attrs.frozen
class LimitChanged:
    """The time limit of the job was changed, to `limit` seconds after its start (None: no limit)."""

    limit: float | None


@attrs.frozen
class Escaped:
    """Processes outside their rank's session outlive the ranks; they were asked to stop, and have `seconds` left."""

    seconds: float


@attrs.frozen(kw_only=True)
class Swept:
    """The processes left after the ranks had ended."""

    killed: Mapping[int, str]  # those killed outside their rank's session: names by pid
    survivors: tuple[str, ...]  # descriptions of those, of whatever session, that are still alive after SIGKILL


# A State is reported whenever the phase changes; DONE comes last, after the output is complete. While ranks are
# asked to stop, DeadlineReached is the next step of the back-off, and SignalReceived a signal that changes nothing.
# HangDetected comes before the stacks of the ranks are read, which takes a while. It and a Slowdown are reported when
# they begin and when they are over, whether they end the job or not.
Fact = Union[
    State,
    Spawned,
    AnyCause,
    Emptied,
    AskedProcessEnded,
    DeadlineReached,
    RankReaped,
    RankOutput,
    SignalsSent,
    SignalUnhandled,
    EngineSeen,
    HangSeen,
    CheckpointAsked,
    CheckpointPostponed,
    CheckpointRefused,
    CheckpointEnded,
    LimitChanged,
    Escaped,
    Swept,
]


class Observer(Protocol):
    """Listens to the facts of one job. Called in the manager's thread: it must return at once and must not fail.

    It sees how ranks start and end, the signals and phases, and the end of each rank's output when that is complete. It
    does not see output as it is written, and it cannot influence the job.
    """

    def observe(self, fact: Fact, at: float) -> None:
        """Take one fact, seen at `at` in seconds of the manager's clock, which is monotonic and has no fixed zero.

        Facts come in the order in which they happened. A fact of no interest is ignored.
        """


class Messages(Protocol):
    """The receiver of sentences for the user; see `ranks.messages`."""

    def debug(self, sentence: str) -> None:
        """Write a detail that only --verbose shows."""

    def info(self, sentence: str) -> None:
        """Write progress."""

    def warning(self, sentence: str) -> None:
        """Write a warning."""

    def error(self, text: str) -> None:
        """Write a failure, in one or more lines."""


class StoppedRanks:
    """Follows the facts of one attempt.

    `unsaved` are the ranks that failed instead of saving a checkpoint before a stop, with their endings.
    """

    def __init__(self) -> None:
        self.unsaved: Mapping[int, Ending] = {}
        self._asked: frozenset[int] = frozenset()  # to stop
        self._signalled: set[int] = set()  # ranks that were sent a signal to end
        self._ended_before: set[int] = set()  # ranks that had ended when the others were asked to stop
        self._killed: set[int] = set()  # ranks that the runner has sent SIGKILL
        self._killed_by_others: set[int] = set()
        self._cause: Cause | None = None
        self._is_tearing_down = False

    @property
    def rank_ids(self) -> frozenset[int]:
        """The ranks that were stopped.

        A failure may have ended further ranks in the same moment. One that the OOM killer has chosen takes a while to
        end, so its peers may have noticed and ended before. After any other cause, such as a signal that the platform
        sends to the ranks as well, all of these have been stopped.
        """
        is_failure = self._cause is not None and self._cause.ending is not None
        return self._asked - (self._ended_before | self._killed_by_others if is_failure else self.unsaved.keys())

    def observe(self, fact: Fact) -> None:
        """Follow one fact."""
        if isinstance(fact, State):
            self._cause, self._is_tearing_down, self._asked = fact.cause, fact.is_tearing_down, fact.stopped
        elif isinstance(fact, SignalsSent):
            self._killed |= {rank_id for rank_id, signum in fact.signums.items() if signum == SIGKILL}
            self._signalled |= fact.signums.keys() if self._is_tearing_down else set()
        elif isinstance(fact, Exited):
            self._note_end(fact)
        elif isinstance(fact, CheckpointEnded) and self._cause:
            self.unsaved = fact.failed

    def _note_end(self, exited: Exited) -> None:
        if exited.rank_id not in self._signalled:
            self._ended_before.add(exited.rank_id)
        elif exited.ending.signum == SIGKILL and exited.rank_id not in self._killed:
            self._killed_by_others.add(exited.rank_id)

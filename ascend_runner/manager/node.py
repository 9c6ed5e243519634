"""The node as the manager sees it: processes, output, a clock and evidence, as protocols.

The real ones are in `ranks`, `services` and `report`, the fakes in tests/fakes.py. Both pass the contract tests in
tests/manager/test_managed_node.py.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

import attrs

from ascend_runner.plan.spec import RankSpec
from ascend_runner.record.facts import (
    Beat,
    CheckpointAsked,
    CheckpointPostponed,
    EngineSeen,
    HangSeen,
    RankOutput,
    RankReaped,
    SavedCheckpoint,
)
from ascend_runner.supervision.causes import AnyCause, Exited, SignalReceived
from ascend_runner.supervision.events import AskedProcessEnded, Emptied

if TYPE_CHECKING:
    from ascend_runner.diagnosis.flight_recorder import Question
    from ascend_runner.diagnosis.stacks import RankStack


class Processes(Protocol):
    """The processes of all ranks on this node."""

    def spawn(self, spec: RankSpec, output: int) -> int:
        """Start a rank with stdout and stderr on the fd `output`; return its pid.

        Raises:
            OSError: The rank cannot be started; no process is left of the attempt.
        """

    def look(self) -> tuple[Sequence[Exited | Emptied | AskedProcessEnded], bool]:
        """Return the ends since the last call, without reaping, and whether they are in the kernel's order."""

    def ask_to_stop(self, signums: Mapping[int, int]) -> Collection[int]:
        """Ask the processes of each rank (by rank id) that are due to stop, see `signal_targets.to_stop`.

        Return the ranks whose first process has ended since the last look: nobody has stopped them.
        """

    def ask_escaped(self, signum: int) -> None:
        """Ask the processes outside the ranks' own sessions to stop."""

    def notify(self, signums: Mapping[int, int]) -> Collection[int]:
        """Send each rank a signal that reaches only processes that handle it; return the ranks that have any."""

    def signal(self, signums: Mapping[int, int]) -> None:
        """Send each rank (by rank id) its signal. A process that has ended meanwhile is no error."""

    def reap(self, rank_id: int) -> RankReaped:
        """Reap a rank without living processes, which frees its pid."""

    def pids(self) -> Mapping[int, int]:
        """Return the pid of each rank with a living first process, by rank id."""

    def has_killable(self) -> bool:
        """Whether any process is alive that this user may signal."""

    def find_engine(self) -> EngineSeen | None:
        """Return an engine that a rank runs: it starts one process per device itself."""

    def is_held(self) -> bool:
        """Whether any process of the ranks cannot run: it is stopped, or in a frozen control group."""

    def has_escaped(self) -> bool:
        """Whether any process outside the ranks' own sessions is alive that may be signaled."""

    def kill_escaped(self) -> Mapping[int, str]:
        """Send SIGKILL to every process outside the ranks' own sessions; return their names by pid."""

    def survivors(self) -> tuple[str, ...]:
        """Describe all processes that are still alive, of whatever session."""


class Output(Protocol):
    """The output of all ranks: log files, the console, and the end of each rank's output in memory."""

    @property
    def last_activity(self) -> float:
        """The time of the last output that counts as activity, in seconds of the clock."""

    def ignore(self, is_no_activity: Callable[[bytes], bool]) -> None:
        """From now on, do not count a piece of output as activity if the function returns true for it."""

    @property
    def failure(self) -> BaseException | None:
        """The error that has ended the reading of output, None while it works."""

    def start(self) -> None:
        """Open the log files and begin to read.

        Raises:
            OutputError: A log file cannot be created.
        """

    def open(self, rank_id: int) -> AbstractContextManager[int]:
        """Return the fd for a rank to write to, valid within `with`.

        Raises:
            OSError: There are no descriptors left.
        """

    def settle(self) -> None:
        """Wait a moment until everything written before the call was read."""

    def read_so_far(self, rank_id: int) -> RankOutput:
        """Return the output of a rank that was read so far."""

    def finish(self, seconds: float, is_cut: Callable[[], bool]) -> None:
        """Read the rest, and wait until it was stored, as long as something is read or stored within `seconds`.

        Output that is not stored by then, or when `is_cut` returns true, counts as lost.
        """


class Heartbeats(Protocol):
    """The ranks' reports about themselves, see `services.heartbeats`."""

    @property
    def announced_until(self) -> float:
        """The end of the longest pause that a rank has announced, in seconds of the clock."""

    def of(self, rank_ids: Collection[int]) -> Mapping[int, Beat]:
        """Return the last beats of those ranks that have sent any."""

    @property
    def saving_ranks(self) -> Collection[int]:
        """The ranks that have announced that they report each requested checkpoint."""

    def read(self) -> None:
        """Read the reports that were sent before this call."""

    def saved_since(self, moment: float) -> Mapping[int, SavedCheckpoint]:
        """Return the ranks with a report of a checkpoint since then of every process that has announced one."""


class PeerReports(Protocol):
    """What HCCL reports about other ranks while the ranks are silent, see `services.hccl_heartbeats`."""

    def take(self) -> Sequence[str]:
        """Return a sentence for each new event since the last call."""


class Requests(Protocol):
    """The requests to the job that other threads pass on, see `services.control`."""

    is_running: bool
    is_tearing_down: bool  # whether the ranks are being stopped
    is_ending: bool  # whether it is too late to change the limit

    @property
    def limit(self) -> float | None:
        """The time limit of the job, in seconds since its start, or None if there is none."""

    @property
    def deadline(self) -> float | None:
        """The moment of this limit, in seconds of the clock."""

    @property
    def is_linked(self) -> bool:
        """Whether this node is linked to other nodes of the job."""

    def ask_all_nodes(self) -> bool:
        """Request a checkpoint from all nodes of the job, this one included; return whether it is linked to others."""

    def take_checkpoint_request(self) -> bool:
        """Whether a checkpoint was requested since the last call."""

    def answer(self, asked: CheckpointAsked | CheckpointPostponed | None) -> None:
        """Answer the requests for a checkpoint that were taken; None: the ranks are stopped before they were asked."""

    def take_limit_change(self) -> bool:
        """Whether the time limit was changed since the last call."""

    def take_findings(self) -> Sequence[AnyCause]:
        """Return the findings that may end the attempt and were passed on since the last call."""


class Clock(Protocol):
    """Time, and the signals that arrive in it."""

    def now(self) -> float:
        """Return the time in seconds; it never goes back."""

    def wait(self, seconds: float | None) -> Sequence[int]:
        """Block until a signal arrives, at most `seconds` (None: forever); return all signals that have arrived.

        Stop signals come first. It may return earlier, without a signal, when a process has ended or a request came.
        """

    def received(self, signum: int) -> SignalReceived:
        """Return the meaning of a signal that has just arrived."""


class Evidence(Protocol):
    """Answers questions about ranks that fail or hang."""

    def order_failures(self, failures: Sequence[tuple[Exited, RankOutput]], *, is_ordered: bool) -> Sequence[int]:
        """Return the ids of ranks that failed at the same moment, the most likely first cause first.

        With `is_ordered`, `failures` are in the order in which the kernel saw them end.
        """

    def is_open(self, failure: tuple[Exited, RankOutput], living: Sequence[RankOutput]) -> bool:
        """Whether a failure only reports a lost peer, and no living rank has reported the cause yet."""

    def has_report(self, failure: RankOutput) -> bool:
        """Return whether HCCL will report the cause of a failure with this output, on every rank."""

    def ask_recorders(self, pids: Mapping[int, int]) -> Question:
        """Request dumps from the flight recorders of these ranks; `pids` are their first processes."""

    def is_own_log(self, data: bytes) -> bool:
        """Return whether output contains only messages of flight recorders about requested dumps."""

    def find_stacks(self, pids: Mapping[int, int], earlier: Sequence[RankStack], asked: Question | None) -> HangSeen:
        """Return the stacks of these ranks, compared with `earlier` ones, and what they wait for.

        `asked` is an earlier question to their flight recorders, which are asked again.
        """

    def find_stacks_while_saving(self, pids: Mapping[int, int], seconds: float) -> HangSeen:
        """Return the stacks of these ranks within about `seconds`, without pausing them.

        A stop signal, which may be the reason for saving, does not end the search.
        """

    def note_stacks(self, pids: Mapping[int, int], seconds: float) -> tuple[RankStack, ...]:
        """Return the stacks of all ranks within about `seconds`, without stopping a process to read its own."""


@attrs.frozen(kw_only=True, eq=False, repr=False)
class ManagedNode:
    """The machine as the manager sees it."""

    processes: Processes
    output: Output
    clock: Clock
    evidence: Callable[[], Evidence]
    heartbeats: Heartbeats
    peer_reports: PeerReports
    requests: Requests

"""The result of the state machine: the state of an attempt, and the actions that the manager performs in order."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from signal import SIGTERM
from typing import Union

import attrs

from ascend_runner.supervision.causes import Cause, Ending, Exited, LimitReached
from ascend_runner.supervision.events import CheckpointRequested


class Phase(enum.Enum):
    """The phase of an attempt, in order; only CHECKPOINTING may be followed by RUNNING again.

    While an attempt runs, it is the state of the job as well, but for short phases: see `job_machine`.
    """

    STARTING = "starting"  # ranks are started one after the other, so that an event between two can stop the rest
    RUNNING = "running"  # every leader was started
    CHECKPOINTING = "checkpointing"  # the ranks were asked for a checkpoint; then they go on, or are stopped
    HOLDING = "holding"  # a rank has lost a peer: the others may report a cause; or has failed: they may recover
    TERMINATING = "stopping"  # the living ranks were asked to stop; they are checked at each step of the back-off
    KILLING = "killing"  # every living group was sent SIGKILL
    DONE = "done"  # no process is alive, or a bounded wait after SIGKILL is over

    @property
    def is_final(self) -> bool:
        """Whether the job is over: another attempt may follow."""
        return False


@attrs.frozen(kw_only=True)
class CheckpointRequest:
    """The request for a checkpoint that is in progress, or the last one."""

    unreached: frozenset[int] = frozenset()  # ranks without a process that handles the signal so far
    unsaved: frozenset[int] = frozenset()  # ranks that were reached and have neither reported a checkpoint nor ended
    can_report: frozenset[int] = frozenset()  # ranks whose report is waited for even if no stop is pending
    is_open: bool = False  # ranks that handle the signal from now on are asked as well
    is_being_sent: bool = False  # `AskedToSave` is yet to come
    before_limit: LimitReached | None = None  # the cause of the stop that follows once a rank was reached


@attrs.frozen(kw_only=True)
class State:
    """Everything that the rules depend on. A rank that is in no set has ended or was never started."""

    grace: float  # seconds
    waiting: tuple[int, ...] = ()  # ranks to be started
    phase: Phase = Phase.STARTING
    spawning: int | None = None
    leaders: frozenset[int] = frozenset()  # ranks whose leader is alive
    stragglers: frozenset[int] = frozenset()  # ranks whose leader has ended before the rest of its group
    endings: Mapping[int, Ending] = {}
    cause: Cause | None = None
    steps_taken: int = 0  # steps of the back-off
    stopped: frozenset[int] = frozenset()  # ranks whose leader was alive when the teardown began, or started later
    stop_signum: int = SIGTERM  # the signal that asks ranks to stop
    is_interrupted: bool = False  # whether the runner itself has received a stop signal
    killed_by: int = 0  # the signal that has cut the grace short
    checkpoint_grace: float = 0.0  # seconds for a checkpoint before a stop; 0: the ranks are not asked for one
    recovery: float = 0.0  # seconds in which the framework recovers from a failure (0: the first one stops all ranks)
    requested: CheckpointRequested | None = None  # while ranks are still being started
    checkpoint: CheckpointRequest = CheckpointRequest()

    @property
    def late_ranks(self) -> frozenset[int]:
        """The ranks that are to be asked for a checkpoint as soon as they handle the signal."""
        is_asking = self.checkpoint.is_open and self.phase in {Phase.RUNNING, Phase.CHECKPOINTING}
        return self.checkpoint.unreached & self.leaders if is_asking else frozenset()

    @property
    def alive(self) -> frozenset[int]:
        """The ranks that have any living process in their group."""
        return self.leaders | self.stragglers

    @property
    def held(self) -> Exited | None:
        """The end of a rank that may only have lost a peer, while the others have a moment to report a cause."""
        is_held = self.phase is Phase.HOLDING and not self.recovery
        return self.cause if is_held and isinstance(self.cause, Exited) else None

    @property
    def is_tearing_down(self) -> bool:
        """Whether all ranks were asked to stop: nothing that happens from then on is a first cause."""
        return self.phase not in {Phase.STARTING, Phase.RUNNING, Phase.CHECKPOINTING, Phase.HOLDING}

    def without_leader(self, event: Exited) -> State:
        """Return the state after the leader of a rank has ended."""
        return attrs.evolve(
            self,
            leaders=self.leaders - {event.rank_id},
            stragglers=self.stragglers | {event.rank_id} if event.has_stragglers else self.stragglers,
            endings={**self.endings, event.rank_id: event.ending},
        )


# --- Actions ----------------------------------------------------------------------------------------------------------


@attrs.frozen
class Spawn:
    """Start the rank; answered by `Spawned` or `SpawnFailed`."""

    rank_id: int


@attrs.frozen
class AskToStop:
    """Ask the rank's processes to stop, unless they were asked already or an ancestor takes care of them.

    `signal_targets.to_stop` has the rules. Asking again is harmless: it reaches only new or spared processes.
    """

    rank_id: int
    signum: int


@attrs.frozen
class Notify:
    """Send a signal of the user's to the processes of the rank that handle it, see `signal_targets.to_notify`."""

    rank_id: int
    signum: int


@attrs.frozen
class AskToSave:
    """Ask the ranks for a checkpoint; answered by `AskedToSave`.

    Those that it does not reach are asked again until they handle the signal: then another `AskedToSave` follows.
    """

    rank_ids: tuple[int, ...]


@attrs.frozen
class SignalGroup:
    """Send SIGKILL, SIGSTOP or SIGCONT to every process of the rank."""

    rank_id: int
    signum: int


@attrs.frozen
class SetDeadline:
    """Send `DeadlineReached` after `seconds`; replaces the deadline set before."""

    seconds: float


Action = Union[Spawn, AskToStop, AskToSave, Notify, SignalGroup, SetDeadline]

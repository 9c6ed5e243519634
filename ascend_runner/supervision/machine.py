"""The supervision of a job as a pure state machine: `transition(state, event) -> (state, actions)`.

The theory. A job is a set of ranks, each the leader of a process group. A rank lives from `Spawned` until its leader
has ended and no straggler is left in its group. The job goes through five phases, forward only:

    STARTING     ranks are started one after the other, so that an event between two of them can stop the rest
    RUNNING      every leader was started
    TERMINATING  every living group was asked to stop (SIGTERM), and is asked again at each step of the back-off
    KILLING      every living group was sent SIGKILL
    DONE         nobody is alive, or a bounded wait after SIGKILL has shown who cannot be killed

The laws, which a test checks in every interleaving:
 1. The first cause wins and is never overwritten. What ranks do after they were told to stop never counts. One case
    only looks like a first cause: a rank dies of the signal that the runner is sent, too, before the first step of
    the back-off. Whoever stops a job may signal each of its processes, as Slurm does, and so the job was stopped.
 2. A failure or a signal stops further spawning.
 3. SIGTERM goes to every living group at once, and again after 1/15, 3/15 and 7/15 of the grace; SIGKILL when it is
    over. With the default grace of 15 s these are the back-off steps 1, 2, 4 and 8 s of the platforms' own scripts.
 4. A second SIGTERM or SIGINT to the runner means SIGKILL now.
 5. DONE exactly when nobody is alive and no spawn is under way, or when `KILL_WAIT` has passed after SIGKILL.
 6. Nothing is signalled after it is gone: its number may be a stranger's by then.

A leader's end decides its rank's status, yet its stragglers keep the grace: `bash train.sh` dies of SIGTERM at once,
while the Python below it is still saving a checkpoint. A leader that exits 0 and leaves stragglers has them asked to
stop at once; when all leaders have ended, what is left goes through the same back-off, and the status stays 0.
"""

from __future__ import annotations

from ascend_runner.annotations import TYPE_CHECKING, Callable, Final, Literal, NamedTuple
from ascend_runner.plain_signal import (
    SIGCONT,
    SIGHUP,
    SIGINT,
    SIGKILL,
    SIGQUIT,
    SIGSTOP,
    SIGTERM,
    SIGTSTP,
    SIGUSR1,
    SIGUSR2,
)

from .actions import Action, SetDeadline, SignalGroup, Spawn
from .events import DeadlineReached, Emptied, Exited, HangDetected, SignalReceived, Spawned, SpawnFailed
from .outcome import Hung, Interrupted, Outcome, RankFailed, RankNotStarted, RankOutcome

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .events import Ending, Event
    from .outcome import Cause

BACKOFF: Final = (1 / 15, 2 / 15, 4 / 15, 8 / 15)  # shares of the grace between one SIGTERM and the next
KILL_WAIT: Final = 5.0  # seconds; a process that outlives SIGKILL this long sits in the kernel (state D)
STOP_SIGNALS: Final = frozenset({SIGTERM, SIGINT, SIGHUP, SIGQUIT})
IMPATIENT_SIGNALS: Final = frozenset({SIGTERM, SIGINT})
# Signals that ranks get too, and as what. Ranks have no terminal, and so would ignore a Ctrl-Z's SIGTSTP (setpgid(2),
# orphaned process groups).
FORWARDED_AS: Final[Mapping[int, int]] = {SIGUSR1: SIGUSR1, SIGUSR2: SIGUSR2, SIGTSTP: SIGSTOP, SIGCONT: SIGCONT}


# How far a job is.
Phase = Literal["starting", "running", "terminating", "killing", "done"]
STARTING: Final = "starting"
RUNNING: Final = "running"
TERMINATING: Final = "terminating"
KILLING: Final = "killing"
DONE: Final = "done"
PHASES: Final[tuple[Phase, ...]] = (STARTING, RUNNING, TERMINATING, KILLING, DONE)  # as they are passed


class State(NamedTuple):
    """All that the rules look at. Rank ids only; a rank that is in none of the sets is gone or was never started."""

    grace: float
    waiting: tuple[int, ...]
    phase: Phase = STARTING
    spawning: int | None = None
    leaders: frozenset[int] = frozenset()
    stragglers: frozenset[int] = frozenset()
    endings: Mapping[int, Ending] = {}
    cause: Cause | None = None
    steps_taken: int = 0
    told_to_stop: frozenset[int] = frozenset()  # ranks whose leader lived when the teardown began, or was born in it
    is_interrupted: bool = False  # the runner itself was told to stop

    @property
    def alive(self) -> frozenset[int]:
        """The ranks of whose group anybody is left."""
        return self.leaders | self.stragglers


Step = tuple[State, tuple[Action, ...]]
Rule = Callable[..., Step]  # takes the state and an event of its column's type


def start(rank_ids: tuple[int, ...], grace: float) -> Step:
    """Begin a job of these ranks; `grace` is in seconds, from the first SIGTERM to SIGKILL."""
    return _spawn_next(State(grace=grace, waiting=rank_ids))


def transition(state: State, event: Event) -> Step:
    """Give what `event` makes of `state`, and what is to be done about it, in order."""
    return TRANSITIONS[state.phase][type(event)](state, event)


def is_tearing_down(state: State) -> bool:
    """Whether everybody was told to stop already: nothing that happens from then on is a first cause."""
    return state.phase not in {STARTING, RUNNING}


def outcome(state: State, rank_ids: tuple[int, ...]) -> Outcome:
    """Sum up a job that is DONE; `rank_ids` are the ranks that `start` was given."""
    started = state.leaders | state.endings.keys()

    return Outcome(
        cause=state.cause,
        ranks=tuple(
            RankOutcome(
                rank_id,
                ending=state.endings.get(rank_id),
                is_started=rank_id in started,
                is_told_to_stop=rank_id in state.told_to_stop,
            )
            for rank_id in sorted(rank_ids)
        ),
    )


# --- The cells of the table ------------------------------------------------------------------------------------------


def _ignore(state: State, _event: Event) -> Step:
    return state, ()


def _spawned(state: State, event: Spawned) -> Step:
    return _spawn_next(state._replace(spawning=None, leaders=state.leaders | {event.rank_id}))


def _spawned_late(state: State, event: Spawned) -> Step:
    """Answer a spawn that was under way when the teardown began: the newcomer is told what all were told."""
    signum = SIGTERM if state.phase == TERMINATING else SIGKILL
    state = state._replace(
        spawning=None,
        leaders=state.leaders | {event.rank_id},
        told_to_stop=state.told_to_stop | {event.rank_id},
    )

    return state, (SignalGroup(event.rank_id, signum),)


def _spawn_failed(state: State, event: SpawnFailed) -> Step:
    cause = RankNotStarted(event.rank_id, event.reason, event.exit_status)

    return _tear_down(state._replace(spawning=None), cause)


def _spawn_failed_late(state: State, _event: Event) -> Step:
    return _settle(state._replace(spawning=None))


def _exited(state: State, event: Exited) -> Step:
    state = _without_leader(state, event)
    if not event.ending.is_success:
        return _tear_down(state, RankFailed(event.rank_id, event.ending))

    asked = (SignalGroup(event.rank_id, SIGTERM),) if event.has_stragglers else ()
    return _settle(state, asked)


def _exited_late(state: State, event: Exited) -> Step:
    return _settle(_without_leader(state, event))


def _emptied(state: State, event: Emptied) -> Step:
    return _settle(state._replace(stragglers=state.stragglers - {event.rank_id}))


def _signalled(state: State, event: SignalReceived) -> Step:
    if event.signum in FORWARDED_AS:
        return _forward(state, event.signum)

    return _tear_down(state._replace(is_interrupted=True), Interrupted(event.signum))


def _hung(state: State, event: HangDetected) -> Step:
    return _tear_down(state, Hung(event.seconds))


def _signalled_again(state: State, event: SignalReceived) -> Step:
    """Hear a signal during the teardown: the first one after a failure confirms it, the second one is impatience."""
    if event.signum in FORWARDED_AS:
        return _forward(state, event.signum)
    if state.is_interrupted and event.signum in IMPATIENT_SIGNALS:
        return _kill(state)

    return state._replace(is_interrupted=True, cause=_cause_beside(state, event.signum)), ()


def _signalled_late(state: State, event: SignalReceived) -> Step:
    """Hear a signal when nothing worse is left to send: even a job whose ranks all exited 0 was then stopped."""
    if event.signum in FORWARDED_AS:
        return state, ()

    return state._replace(cause=_cause_beside(state, event.signum)), ()


def _signalled_after_all(state: State, event: SignalReceived) -> Step:
    """Hear a signal when all is over: it can tell who ended the ranks, but a job that was done stays done."""
    if event.signum in FORWARDED_AS:
        return state, ()

    return state._replace(cause=state.cause and _cause_beside(state, event.signum)), ()


def _next_step(state: State, _event: Event) -> Step:
    steps_taken = state.steps_taken + 1
    if steps_taken == len(BACKOFF):
        return _kill(state)

    return state._replace(steps_taken=steps_taken), (
        *_signal_all(state, SIGTERM),
        SetDeadline(BACKOFF[steps_taken] * state.grace),
    )


def _give_up(state: State, _event: Event) -> Step:
    return state._replace(phase=DONE), ()


TRANSITIONS: Final[Mapping[Phase, Mapping[type[Event], Rule]]] = {
    STARTING: {
        Spawned: _spawned,
        SpawnFailed: _spawn_failed,
        Exited: _exited,
        Emptied: _emptied,
        SignalReceived: _signalled,
        HangDetected: _hung,
        DeadlineReached: _ignore,
    },
    RUNNING: {
        Spawned: _ignore,
        SpawnFailed: _ignore,
        Exited: _exited,
        Emptied: _emptied,
        SignalReceived: _signalled,
        HangDetected: _hung,
        DeadlineReached: _ignore,
    },
    TERMINATING: {
        Spawned: _spawned_late,
        SpawnFailed: _spawn_failed_late,
        Exited: _exited_late,
        Emptied: _emptied,
        SignalReceived: _signalled_again,
        HangDetected: _ignore,
        DeadlineReached: _next_step,
    },
    KILLING: {
        Spawned: _spawned_late,
        SpawnFailed: _spawn_failed_late,
        Exited: _exited_late,
        Emptied: _emptied,
        SignalReceived: _signalled_late,
        HangDetected: _ignore,
        DeadlineReached: _give_up,
    },
    DONE: {
        Spawned: _ignore,
        SpawnFailed: _ignore,
        Exited: _ignore,
        Emptied: _ignore,
        SignalReceived: _signalled_after_all,
        HangDetected: _ignore,
        DeadlineReached: _ignore,
    },
}


# --- What the cells share --------------------------------------------------------------------------------------------


def _spawn_next(state: State) -> Step:
    if not state.waiting:
        return _settle(state._replace(phase=RUNNING))

    rank_id, *rest = state.waiting
    return state._replace(spawning=rank_id, waiting=tuple(rest)), (Spawn(rank_id),)


def _without_leader(state: State, event: Exited) -> State:
    return state._replace(
        leaders=state.leaders - {event.rank_id},
        stragglers=state.stragglers | {event.rank_id} if event.has_stragglers else state.stragglers,
        endings={**state.endings, event.rank_id: event.ending},
    )


def _signal_all(state: State, signum: int) -> tuple[Action, ...]:
    return tuple(SignalGroup(rank_id, signum) for rank_id in sorted(state.alive))


def _forward(state: State, signum: int) -> Step:
    return state, _signal_all(state, FORWARDED_AS[signum])


def _cause_beside(state: State, signum: int) -> Cause:
    """Name the cause, now that the runner has been sent a signal, too (law 1)."""
    cause = state.cause
    is_echo = isinstance(cause, RankFailed) and cause.ending.signum == signum and state.steps_taken == 0

    return Interrupted(signum) if cause is None or is_echo else cause


def _tear_down(state: State, cause: Cause | None) -> Step:
    """Ask every living group to stop, and start the back-off."""
    state = state._replace(phase=TERMINATING, waiting=(), cause=state.cause or cause, told_to_stop=state.leaders)

    return _settle(state, (*_signal_all(state, SIGTERM), SetDeadline(BACKOFF[0] * state.grace)))


def _kill(state: State) -> Step:
    return state._replace(phase=KILLING), (*_signal_all(state, SIGKILL), SetDeadline(KILL_WAIT))


def _settle(state: State, actions: tuple[Action, ...] = ()) -> Step:
    """Leave a phase that has nobody left to wait for."""
    if state.waiting or state.spawning is not None or state.leaders:
        return state, actions
    if not state.stragglers:
        return state._replace(phase=DONE), ()
    if is_tearing_down(state):
        return state, actions

    return _tear_down(state, cause=None)

"""The supervision of one attempt of a job as a pure state machine: `transition(state, event) -> (state, actions)`.

A job is a set of ranks, each with a leader (its first process). A rank lives from `Spawned` until its leader has ended
and no straggler is left of its group. Phases only advance, see `state.Phase`.

The laws, which a test checks in every interleaving:
 1. The first cause wins and is never overwritten. What ranks do after they were asked to stop never counts. One
    exception: a rank that dies of the same signal that the runner receives before the first step of the back-off was
    stopped, it did not fail. Some platforms, such as Slurm, signal every process of a job.
 2. A failure or a stop signal ends further spawning.
 3. Every process is asked to stop once, and the workers of a process that handles the signal are spared: see
    `signal_targets`. After 1/15, 3/15 and 7/15 of the grace, and when one that was asked has ended, the ranks are
    checked again. SIGKILL follows at the end of the grace period. The signal is `stop_signum`, or SIGINT if the runner
    has received it.
 4. A second SIGTERM or SIGINT to the runner means SIGKILL now, as does the first SIGINT to one that is stopping ranks
    for another reason, from the first step of the back-off on (before that it may be about the same event). A SIGTERM
    does not: a platform that stops a job of which a rank has just failed does not mean to cut its grace short.
 5. A job is DONE exactly when no process is alive and no spawn is under way, or `KILL_WAIT` after SIGKILL.
 6. A process that is gone is never signalled: its pid may belong to another by then.
 7. A forwarded SIGUSR1 or SIGUSR2 reaches only processes that handle it: it never kills.
 8. When the first rank to end reports only a lost peer, the others are asked up to `HOLD` later, so that the true
    cause can be printed. That cause (a deadline brought forward), a second end or a stop signal ends the wait.

The leader decides the status of its rank, but stragglers have the full grace: in `bash train.sh`, bash dies at once
while the Python process below it is still saving. Stragglers of a leader that exits 0 are asked to stop at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from signal import SIGCONT, SIGINT, SIGKILL, SIGSTOP, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2
from typing import Callable, Final, get_args

import attrs

from ascend_runner.guardian.signal_sets import IMPATIENT_SIGNALS
from ascend_runner.supervision.events import (
    AskedProcessEnded,
    Cause,
    DeadlineReached,
    Emptied,
    Event,
    Exited,
    HangDetected,
    LimitReached,
    SignalReceived,
    Spawned,
    SpawnFailed,
)
from ascend_runner.supervision.state import Action, AskToStop, Notify, Phase, SetDeadline, SignalGroup, Spawn, State

BACKOFF: Final = (1 / 15, 2 / 15, 4 / 15, 8 / 15)  # shares of the grace between one SIGTERM and the next
HOLD: Final = 0.5  # seconds; a rank that fails closes its connections while it still prints and cleans up
KILL_WAIT: Final = 5.0  # seconds; a process that survives SIGKILL for longer is stuck in the kernel (state D)
# How ranks receive these as well. They have no terminal, so they would ignore SIGTSTP (setpgid(2), orphaned groups).
FORWARDED: Final[Mapping[int, Callable[[int], Action]]] = {
    SIGUSR1: lambda rank_id: Notify(rank_id, SIGUSR1),
    SIGUSR2: lambda rank_id: Notify(rank_id, SIGUSR2),
    SIGTSTP: lambda rank_id: SignalGroup(rank_id, SIGSTOP),
    SIGCONT: lambda rank_id: SignalGroup(rank_id, SIGCONT),
}

Step = tuple[State, tuple[Action, ...]]
Handler = Callable[..., Step]  # takes the state and an event of its column's type


def start(rank_ids: tuple[int, ...], grace: float, stop_signum: int = SIGTERM) -> Step:
    """Begin a job of these ranks: `grace` seconds lie between `stop_signum` (SIGTERM or SIGINT) and SIGKILL."""
    return _spawn_next(State(grace=grace, waiting=rank_ids, stop_signum=stop_signum))


def transition(state: State, event: Event) -> Step:
    """Return the state after `event`, and the actions to perform, in order."""
    if isinstance(event, SignalReceived) and event.signum in FORWARDED:
        return _forward(state, event.signum)

    return TRANSITIONS[state.phase][type(event)](state, event)


# --- The cells of the table ------------------------------------------------------------------------------------------


def _ignore(state: State, _event: Event) -> Step:
    return state, ()


def _spawned(state: State, event: Spawned) -> Step:
    return _spawn_next(attrs.evolve(state, spawning=None, leaders=state.leaders | {event.rank_id}))


def _spawned_late(state: State, event: Spawned) -> Step:
    """A spawn was under way when the teardown began: the new rank gets the signal that all others got."""
    is_asked = state.phase is Phase.TERMINATING
    state = attrs.evolve(
        state,
        spawning=None,
        leaders=state.leaders | {event.rank_id},
        stopped=state.stopped | {event.rank_id},
    )

    return state, (AskToStop(event.rank_id, state.stop_signum) if is_asked else SignalGroup(event.rank_id, SIGKILL),)


def _spawn_failed(state: State, event: SpawnFailed) -> Step:
    return _tear_down(attrs.evolve(state, spawning=None), event)


def _spawn_failed_late(state: State, _event: Event) -> Step:
    return _settle(attrs.evolve(state, spawning=None))


def _exited(state: State, event: Exited) -> Step:
    was_running = state.phase is Phase.RUNNING
    state = state.without_leader(event)
    if not event.ending.is_success:
        if event.is_consequence and was_running and state.leaders:
            return attrs.evolve(state, phase=Phase.HOLDING, cause=event), (SetDeadline(HOLD),)
        return _tear_down(state, event)

    asked = (AskToStop(event.rank_id, state.stop_signum),) if event.has_stragglers else ()
    return _settle(state, asked)


def _held(state: State, event: Event) -> Step:
    return _tear_down(state.without_leader(event) if isinstance(event, Exited) else state, None)


def _exited_while_stopping(state: State, event: Exited) -> Step:
    asked = (AskToStop(event.rank_id, state.stop_signum),) if event.has_stragglers else ()
    return _settle(state.without_leader(event), asked)


def _exited_late(state: State, event: Exited) -> Step:
    return _settle(state.without_leader(event))


def _emptied(state: State, event: Emptied) -> Step:
    return _settle(attrs.evolve(state, stragglers=state.stragglers - {event.rank_id}))


def _signalled(state: State, event: SignalReceived) -> Step:
    return _tear_down(attrs.evolve(state, is_interrupted=True, cause=_cause_beside(state, event)), event)


def _ended_from_outside(state: State, event: HangDetected | LimitReached) -> Step:
    return _tear_down(state, event)


def _signalled_again(state: State, event: SignalReceived) -> Step:
    """A signal during the teardown: either it means SIGKILL, or it changes nothing (law 4)."""
    is_again = state.is_interrupted or (event.signum == SIGINT and state.steps_taken > 0)
    state = attrs.evolve(state, is_interrupted=True, cause=_cause_beside(state, event))
    if is_again and event.signum in IMPATIENT_SIGNALS:
        return _kill(attrs.evolve(state, killed_by=event.signum))
    return state, ()


def _signalled_late(state: State, event: SignalReceived) -> Step:
    """A signal after SIGKILL was sent: it becomes the cause if there is none, even if all leaders exited 0."""
    return attrs.evolve(state, cause=_cause_beside(state, event)), ()


def _signalled_after_all(state: State, event: SignalReceived) -> Step:
    """A signal after the end: it can explain the death of a rank, but a success stays a success."""
    return attrs.evolve(state, cause=state.cause and _cause_beside(state, event)), ()


def _next_step(state: State, _event: Event) -> Step:
    steps_taken = state.steps_taken + 1
    if steps_taken == len(BACKOFF):
        return _kill(state)

    actions = (*_ask_all(state), SetDeadline(BACKOFF[steps_taken] * state.grace))
    return attrs.evolve(state, steps_taken=steps_taken), actions


def _asked_ended(state: State, _event: Event) -> Step:
    return state, _ask_all(state)


def _give_up(state: State, _event: Event) -> Step:
    return attrs.evolve(state, phase=Phase.DONE), ()


_IGNORED: Final[Mapping[type[Event], Handler]] = dict.fromkeys(get_args(Event), _ignore)

TRANSITIONS: Final[Mapping[Phase, Mapping[type[Event], Handler]]] = {
    Phase.STARTING: {
        **_IGNORED,
        Spawned: _spawned,
        SpawnFailed: _spawn_failed,
        Exited: _exited,
        Emptied: _emptied,
        SignalReceived: _signalled,
        HangDetected: _ended_from_outside,
        LimitReached: _ended_from_outside,
    },
    Phase.RUNNING: {
        **_IGNORED,
        Exited: _exited,
        Emptied: _emptied,
        SignalReceived: _signalled,
        HangDetected: _ended_from_outside,
        LimitReached: _ended_from_outside,
    },
    Phase.HOLDING: {
        **_IGNORED,
        Exited: _held,
        Emptied: _emptied,
        SignalReceived: _signalled,
        DeadlineReached: _held,
    },
    Phase.TERMINATING: {
        **_IGNORED,
        Spawned: _spawned_late,
        SpawnFailed: _spawn_failed_late,
        Exited: _exited_while_stopping,
        Emptied: _emptied,
        AskedProcessEnded: _asked_ended,
        SignalReceived: _signalled_again,
        DeadlineReached: _next_step,
    },
    Phase.KILLING: {
        **_IGNORED,
        Spawned: _spawned_late,
        SpawnFailed: _spawn_failed_late,
        Exited: _exited_late,
        Emptied: _emptied,
        SignalReceived: _signalled_late,
        DeadlineReached: _give_up,
    },
    Phase.DONE: {**_IGNORED, SignalReceived: _signalled_after_all},
}


# --- What the cells share --------------------------------------------------------------------------------------------


def _spawn_next(state: State) -> Step:
    if not state.waiting:
        return _settle(attrs.evolve(state, phase=Phase.RUNNING))

    rank_id, *rest = state.waiting
    return attrs.evolve(state, spawning=rank_id, waiting=tuple(rest)), (Spawn(rank_id),)


def _ask_all(state: State) -> tuple[Action, ...]:
    return tuple(AskToStop(rank_id, state.stop_signum) for rank_id in sorted(state.alive))


def _forward(state: State, signum: int) -> Step:
    """Hand a signal on to the ranks, unless they were sent SIGKILL: it changes nothing any more."""
    is_over = state.phase in {Phase.KILLING, Phase.DONE}
    return state, () if is_over else tuple(map(FORWARDED[signum], sorted(state.alive)))


def _cause_beside(state: State, event: SignalReceived) -> Cause:
    """Return the cause after the runner has received a signal (law 1)."""
    cause = state.cause
    is_echo = isinstance(cause, Exited) and cause.ending.signum == event.signum and state.steps_taken == 0

    return event if cause is None or is_echo else cause


def _tear_down(state: State, cause: Cause | None) -> Step:
    """Ask every living rank to stop, and start the back-off."""
    state = attrs.evolve(
        state,
        phase=Phase.TERMINATING,
        waiting=(),
        cause=state.cause or cause,
        stopped=state.leaders,
        stop_signum=SIGINT if cause == SignalReceived(SIGINT) else state.stop_signum,
    )

    return _settle(state, (*_ask_all(state), SetDeadline(BACKOFF[0] * state.grace)))


def _kill(state: State) -> Step:
    killed = tuple(SignalGroup(rank_id, SIGKILL) for rank_id in sorted(state.alive))
    return attrs.evolve(state, phase=Phase.KILLING), (*killed, SetDeadline(KILL_WAIT))


def _settle(state: State, actions: tuple[Action, ...] = ()) -> Step:
    """Go on to the next phase if there is nothing left to wait for in this one."""
    if state.waiting or state.spawning is not None or state.leaders:
        return state, actions
    if not state.stragglers:
        return attrs.evolve(state, phase=Phase.DONE), ()
    if state.is_tearing_down:
        return state, actions

    return _tear_down(state, cause=None)

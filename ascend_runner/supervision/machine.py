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
 6. A process that is gone is never signaled: its pid may belong to another by then.
 7. A forwarded SIGUSR1 or SIGUSR2 reaches only processes that handle it: it never kills.
 8. When the first rank to end reports only a lost peer, the others are asked up to `HOLD` later, so that the true
    cause can be printed. That cause (a deadline brought forward), a second end or a stop signal ends the wait.
 9. A request for a checkpoint ends when every rank that it has reached, and that reports checkpoints, has saved or
    ended, or when the time for it is over; then the ranks go on. After a SIGTERM, before the time limit, on an
    unhealthy node and in slow training that is to end, the other ranks are waited for as well, and then all are
    stopped; nothing that happens meanwhile is a first cause. A second SIGTERM begins the stop, a third one kills.

The leader decides the status of its rank, but stragglers have the full grace: in `bash train.sh`, bash dies at once
while the Python process below it is still saving. Stragglers of a leader that exits 0 are asked to stop at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from signal import SIGCONT, SIGINT, SIGKILL, SIGSTOP, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2
from typing import Final, get_args

import attrs

from ascend_runner.guardian.signal_sets import IMPATIENT_SIGNALS
from ascend_runner.supervision import checkpoints
from ascend_runner.supervision.events import (
    AskedProcessEnded,
    AskedToSave,
    CheckpointRequested,
    DeadlineReached,
    Emptied,
    Event,
    Exited,
    HangDetected,
    LimitReached,
    Saved,
    SignalReceived,
    Spawned,
    SpawnFailed,
)
from ascend_runner.supervision.findings import NodeFinding
from ascend_runner.supervision.slowdown import Slowdown
from ascend_runner.supervision.state import Action, AskToStop, Notify, Phase, SetDeadline, SignalGroup, Spawn, State
from ascend_runner.supervision.teardown import BACKOFF, Step, ask_all, cause_beside, kill, settle, tear_down

HOLD: Final = 0.5  # seconds; a rank that fails closes its connections while it still prints and cleans up
# How ranks receive these as well. They have no terminal, so they would ignore SIGTSTP (setpgid(2), orphaned groups).
FORWARDED: Final[Mapping[int, Callable[[int], Action]]] = {
    SIGUSR1: lambda rank_id: Notify(rank_id, SIGUSR1),
    SIGUSR2: lambda rank_id: Notify(rank_id, SIGUSR2),
    SIGTSTP: lambda rank_id: SignalGroup(rank_id, SIGSTOP),
    SIGCONT: lambda rank_id: SignalGroup(rank_id, SIGCONT),
}

Handler = Callable[..., Step]  # takes the state and an event of its column's type


def start(
    rank_ids: tuple[int, ...], grace: float, stop_signum: int = SIGTERM, *, checkpoint_grace: float = 0.0
) -> Step:
    """Begin a job of these ranks.

    `grace` seconds lie between `stop_signum` (SIGTERM or SIGINT) and SIGKILL, and before them `checkpoint_grace`
    seconds in which the ranks can save a checkpoint.
    """
    return _spawn_next(State(grace=grace, waiting=rank_ids, stop_signum=stop_signum, checkpoint_grace=checkpoint_grace))


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
        state, spawning=None, leaders=state.leaders | {event.rank_id}, stopped=state.stopped | {event.rank_id}
    )
    return state, (AskToStop(event.rank_id, state.stop_signum) if is_asked else SignalGroup(event.rank_id, SIGKILL),)


def _spawn_failed(state: State, event: SpawnFailed) -> Step:
    return tear_down(attrs.evolve(state, spawning=None), event)


def _spawn_failed_late(state: State, _event: Event) -> Step:
    return settle(attrs.evolve(state, spawning=None))


def _exited(state: State, event: Exited) -> Step:
    if event.ending.is_success:
        return _ask_stragglers(state, event)
    was_running = state.phase is not Phase.STARTING
    state = state.without_leader(event)
    if event.is_consequence and was_running and state.leaders:
        return attrs.evolve(state, phase=Phase.HOLDING, cause=event), (SetDeadline(HOLD),)
    return tear_down(state, event)


def _held(state: State, event: Event) -> Step:
    return tear_down(state.without_leader(event) if isinstance(event, Exited) else state, None)


def _ask_stragglers(state: State, event: Exited) -> Step:
    """A leader has succeeded, or ended during a teardown: the processes that it leaves behind are asked to stop."""
    asked = (AskToStop(event.rank_id, state.stop_signum),) if event.has_stragglers else ()
    return settle(state.without_leader(event), asked)


def _exited_late(state: State, event: Exited) -> Step:
    return settle(state.without_leader(event))


def _emptied(state: State, event: Emptied) -> Step:
    return settle(attrs.evolve(state, stragglers=state.stragglers - {event.rank_id}))


def _signalled(state: State, event: SignalReceived) -> Step:
    if state.checkpoint_grace and event.signum == SIGTERM and state.phase is Phase.RUNNING:
        return checkpoints.ask_before_stop(state, event)
    return tear_down(attrs.evolve(state, is_interrupted=True, cause=cause_beside(state, event)), event)


def _save_and_stop(state: State, event: NodeFinding | Slowdown) -> Step:
    can_save = state.checkpoint_grace and state.phase is not Phase.STARTING
    return checkpoints.ask_before_stop(state, event) if can_save else tear_down(state, event)


def _exited_while_saving(state: State, event: Exited) -> Step:
    """The end of a rank is its answer; a failure is the cause only if the job was to go on."""
    if state.cause is None and not event.ending.is_success:
        return _exited(state, event)
    asked = (AskToStop(event.rank_id, state.stop_signum),) if event.has_stragglers and state.cause is None else ()
    state, actions = settle(checkpoints.answered(state.without_leader(event), event.rank_id), asked)
    return checkpoints.proceed(state, actions) if state.phase is Phase.CHECKPOINTING else (state, actions)


def _signalled_while_saving(state: State, event: SignalReceived) -> Step:
    """The first SIGTERM gives the ranks the time to save; every other stop signal begins the stop."""
    if state.checkpoint_grace and event.signum == SIGTERM and not state.is_interrupted:
        return checkpoints.ask_before_stop(state, event)
    return _signalled(state, event)


def _hung_while_saving(state: State, event: HangDetected) -> Step:
    return (state, ()) if state.cause else tear_down(state, event)


def _signalled_again(state: State, event: SignalReceived) -> Step:
    """A signal during the teardown: either it means SIGKILL, or it changes nothing (law 4)."""
    is_again = state.is_interrupted or (event.signum == SIGINT and state.steps_taken > 0)
    state = attrs.evolve(state, is_interrupted=True, cause=cause_beside(state, event))
    if is_again and event.signum in IMPATIENT_SIGNALS:
        return kill(attrs.evolve(state, killed_by=event.signum))
    return state, ()


def _signalled_late(state: State, event: SignalReceived) -> Step:
    """A signal after SIGKILL was sent: it becomes the cause if there is none, even if all leaders exited 0."""
    return attrs.evolve(state, cause=cause_beside(state, event)), ()


def _signalled_after_all(state: State, event: SignalReceived) -> Step:
    """A signal after the end: it can explain the death of a rank, but a success stays a success."""
    return attrs.evolve(state, cause=state.cause and cause_beside(state, event)), ()


def _next_step(state: State, _event: Event) -> Step:
    steps_taken = state.steps_taken + 1
    if steps_taken == len(BACKOFF):
        return kill(state)

    actions = (*ask_all(state), SetDeadline(BACKOFF[steps_taken] * state.grace))
    return attrs.evolve(state, steps_taken=steps_taken), actions


def _asked_ended(state: State, _event: Event) -> Step:
    return state, ask_all(state)


def _give_up(state: State, _event: Event) -> Step:
    return attrs.evolve(state, phase=Phase.DONE), ()


_IGNORED: Final[Mapping[type[Event], Handler]] = dict.fromkeys(get_args(Event), _ignore)
_WHILE_RANKS_RUN: Final[Mapping[type[Event], Handler]] = {
    **_IGNORED,
    Exited: _exited,
    Emptied: _emptied,
    SignalReceived: _signalled,
    **dict.fromkeys((HangDetected, LimitReached), tear_down),
    **dict.fromkeys((NodeFinding, Slowdown), _save_and_stop),
}
TRANSITIONS: Final[Mapping[Phase, Mapping[type[Event], Handler]]] = {
    Phase.STARTING: {
        **_WHILE_RANKS_RUN,
        Spawned: _spawned,
        SpawnFailed: _spawn_failed,
        CheckpointRequested: checkpoints.remember,
    },
    Phase.RUNNING: {
        **_WHILE_RANKS_RUN,
        CheckpointRequested: checkpoints.ask,
        AskedToSave: checkpoints.asked_late,
        DeadlineReached: checkpoints.forget,
    },
    Phase.CHECKPOINTING: {
        **_WHILE_RANKS_RUN,
        Exited: _exited_while_saving,
        SignalReceived: _signalled_while_saving,
        HangDetected: _hung_while_saving,
        CheckpointRequested: checkpoints.ask_again,
        AskedToSave: checkpoints.asked,
        Saved: checkpoints.saved,
        DeadlineReached: checkpoints.time_is_over,
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
        Exited: _ask_stragglers,
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
        state = attrs.evolve(state, phase=Phase.RUNNING)
        return checkpoints.ask(state, state.requested) if state.requested and state.leaders else settle(state)

    rank_id, *rest = state.waiting
    return attrs.evolve(state, spawning=rank_id, waiting=tuple(rest)), (Spawn(rank_id),)


def _forward(state: State, signum: int) -> Step:
    """Pass a signal on to the ranks, unless they were sent SIGKILL: after that it has no effect."""
    is_over = state.phase in {Phase.KILLING, Phase.DONE}
    return state, () if is_over else tuple(map(FORWARDED[signum], sorted(state.alive)))

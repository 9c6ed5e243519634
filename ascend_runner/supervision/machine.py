"""The supervision of one attempt of a job as a pure state machine: `transition(state, event) -> (state, actions)`.

A job is a set of ranks, each with a leader (its first process). A rank lives from `Spawned` until its leader has ended
and no straggler is left of its group. Phases only advance, see `state.Phase`.

The laws, which a test checks in every interleaving:
 1. The first cause wins and is never overwritten. What ranks do after they were asked to stop never counts. One
    exception: a rank that dies of the same signal that the runner receives before the first step of the back-off was
    stopped, it did not fail. Some platforms, such as Slurm, signal every process of a job.
 2. A failure or a stop signal ends further spawning; one on another node before the start prevents any.
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
    cause can be printed. That cause (a deadline brought forward), a second end or a stop signal ends the wait. Where
    HCCL is to report it, they are asked up to `REPORT` later, within a grace of `GRACE_WITH_REPORT` or more, of which
    that is a part; then only a second end with another cause ends the wait.
 9. A request for a checkpoint ends when every rank that it has reached, and that reports checkpoints, has saved or
    ended, or when the time for it is over; then the ranks go on. After a SIGTERM, before the time limit, on an
    unhealthy node and in slow training that is to end, the other ranks are waited for as well, and then all are
    stopped; nothing that happens meanwhile is a first cause. A second SIGTERM begins the stop, a third one kills.
10. Where the framework recovers from a failure by itself (`recovery`), a rank that fails while all run stops no other:
    they end by themselves. What they do is no first cause. They are stopped when the time for it is over, and by
    whatever else would stop them.
11. When another node of the job has failed, the ranks are stopped at once, whatever they are waiting for. A stop signal
    that another node passes on is one to this runner, but one that follows is not a second one (law 4).

The leader decides the status of its rank, but stragglers have the full grace: in `bash train.sh`, bash dies at once
while the Python process below it is still saving. Stragglers of a leader that exits 0 are asked to stop at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from signal import SIGCONT, SIGINT, SIGKILL, SIGSTOP, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2
from typing import Final, get_args

import attrs

from ascend_runner.guardian.signal_sets import IMPATIENT_SIGNALS
from ascend_runner.supervision.causes import (
    AnyCause,
    Cause,
    Exited,
    HangDetected,
    LimitReached,
    NodeFinding,
    PeerFailed,
    SignalReceived,
    Slowdown,
    SpawnFailed,
)
from ascend_runner.supervision.events import (
    AskedProcessEnded,
    AskedToSave,
    CheckpointRequested,
    DeadlineReached,
    Emptied,
    Event,
    Saved,
    Spawned,
)
from ascend_runner.supervision.state import (
    Action,
    AskToSave,
    AskToStop,
    CheckpointRequest,
    Notify,
    Phase,
    SetDeadline,
    SignalGroup,
    Spawn,
    State,
)

ANSWER_LIMIT: Final = 300.0  # seconds for the ranks to answer if the user has set no time for that
BACKOFF: Final = (1 / 15, 2 / 15, 4 / 15, 8 / 15)  # shares of the grace between one SIGTERM and the next
KILL_WAIT: Final = 5.0  # seconds; a process that survives SIGKILL for longer is stuck in the kernel (state D)
REPORT: Final = 30.0  # seconds: HCCL takes 20 to detect where a connection is broken, and 10 to tell all ranks
GRACE_WITH_REPORT: Final = 45.0  # seconds: the report, and the usual grace
HOLD: Final = 0.5  # seconds; a rank that fails closes its connections while it still prints and cleans up
# How ranks receive these as well. They have no terminal, so they would ignore SIGTSTP (setpgid(2), orphaned groups).
FORWARDED: Final[Mapping[int, Callable[[int], Action]]] = {
    SIGUSR1: lambda rank_id: Notify(rank_id, SIGUSR1),
    SIGUSR2: lambda rank_id: Notify(rank_id, SIGUSR2),
    SIGTSTP: lambda rank_id: SignalGroup(rank_id, SIGSTOP),
    SIGCONT: lambda rank_id: SignalGroup(rank_id, SIGCONT),
}

Step = tuple[State, tuple[Action, ...]]
Handler = Callable[..., Step]  # takes the state and an event of its column's type


def start(
    rank_ids: tuple[int, ...],
    grace: float,
    stop_signum: int = SIGTERM,
    *,
    checkpoint_grace: float = 0.0,
    recovery: float = 0.0,
) -> Step:
    """Begin a job of these ranks.

    `grace` seconds lie between `stop_signum` (SIGTERM or SIGINT) and SIGKILL, and before them `checkpoint_grace`
    seconds in which the ranks can save a checkpoint. `recovery` seconds lie between a failure and `stop_signum`.
    """
    state = State(grace=grace, waiting=rank_ids, stop_signum=stop_signum, checkpoint_grace=checkpoint_grace)
    return _spawn_next(attrs.evolve(state, recovery=recovery))


def start_stopped(cause: PeerFailed | SignalReceived, grace: float) -> Step:
    """Begin a job that another node has stopped already: it is over at once (law 2)."""
    return State(grace=grace, phase=Phase.DONE, cause=cause), ()


def hold(event: Exited, grace: float) -> float:
    """Return how long the other ranks have to report the cause of a consequence, in seconds."""
    return REPORT if event.has_report and grace >= GRACE_WITH_REPORT else HOLD


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
    return _tear_down(attrs.evolve(state, spawning=None), event)


def _spawn_failed_late(state: State, _event: Event) -> Step:
    return _settle(attrs.evolve(state, spawning=None))


def _exited(state: State, event: Exited) -> Step:
    if event.ending.is_success:
        return _ask_stragglers(state, event)
    was_running = state.phase is not Phase.STARTING
    state = state.without_leader(event)
    if (state.recovery or event.is_consequence) and was_running and state.leaders:
        seconds = state.recovery or hold(event, state.grace)
        return attrs.evolve(state, phase=Phase.HOLDING, cause=event), (SetDeadline(seconds),)
    return _tear_down(state, event)


def _held(state: State, event: Event) -> Step:
    is_report_due = state.held is not None and hold(state.held, state.grace) == REPORT
    if isinstance(event, Exited) and (state.recovery or (is_report_due and event.is_consequence)):
        return _settle(state.without_leader(event))
    if is_report_due:
        state = attrs.evolve(state, grace=state.grace - REPORT)
    return _tear_down(state.without_leader(event) if isinstance(event, Exited) else state, None)


def _watched_while_held(state: State, event: HangDetected | LimitReached | NodeFinding | Slowdown) -> Step:
    return _tear_down(state, event) if state.recovery else (state, ())


def _ask_stragglers(state: State, event: Exited) -> Step:
    """A leader has succeeded, or ended during a teardown: the processes that it leaves behind are asked to stop."""
    asked = (AskToStop(event.rank_id, state.stop_signum),) if event.has_stragglers else ()
    return _settle(state.without_leader(event), asked)


def _exited_late(state: State, event: Exited) -> Step:
    return _settle(state.without_leader(event))


def _emptied(state: State, event: Emptied) -> Step:
    return _settle(attrs.evolve(state, stragglers=state.stragglers - {event.rank_id}))


def _signalled(state: State, event: SignalReceived) -> Step:
    if state.checkpoint_grace and event.signum == SIGTERM and state.phase is Phase.RUNNING:
        return _save_before_stop(state, event)
    is_interrupted = state.is_interrupted or event.node is None
    return _tear_down(attrs.evolve(state, is_interrupted=is_interrupted, cause=_cause_beside(state, event)), event)


def _save_and_stop(state: State, event: AnyCause) -> Step:
    can_save = state.checkpoint_grace and state.phase is not Phase.STARTING
    return _save_before_stop(state, event) if can_save else _tear_down(state, event)


def _exited_while_saving(state: State, event: Exited) -> Step:
    """The end of a rank is its answer; a failure is the cause only if the job was to go on."""
    if state.cause is None and not event.ending.is_success:
        return _exited(state, event)
    asked = (AskToStop(event.rank_id, state.stop_signum),) if event.has_stragglers and state.cause is None else ()
    state, actions = _settle(_answered(state.without_leader(event), event.rank_id), asked)
    return _proceed(state, actions) if state.phase is Phase.CHECKPOINTING else (state, actions)


def _signalled_while_saving(state: State, event: SignalReceived) -> Step:
    """The first SIGTERM gives the ranks the time to save; every other stop signal to this runner begins the stop."""
    if event.node is not None and state.cause:
        return state, ()
    if state.checkpoint_grace and event.signum == SIGTERM and not state.is_interrupted:
        return _save_before_stop(state, event)
    return _signalled(state, event)


def _hung_while_saving(state: State, event: HangDetected) -> Step:
    return (state, ()) if state.cause else _tear_down(state, event)


def _signalled_again(state: State, event: SignalReceived) -> Step:
    """A signal during the teardown: either it means SIGKILL, or it changes nothing (law 4)."""
    is_own = event.node is None
    is_passed_on = isinstance(state.cause, SignalReceived) and not state.is_interrupted
    is_again = state.is_interrupted or (event.signum == SIGINT and state.steps_taken > 0 and not is_passed_on)
    is_interrupted = state.is_interrupted or is_own
    state = attrs.evolve(state, is_interrupted=is_interrupted, cause=_cause_beside(state, event))
    if is_own and is_again and event.signum in IMPATIENT_SIGNALS:
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


# --- The cells of the phase CHECKPOINTING (law 9) ---------------------------------------------------------------------
#
# The ranks are asked with a signal that only processes that handle it receive. Only ranks that have announced it report
# when they have saved; before a stop, the end of another rank is waited for, but otherwise nothing would end that wait.
# A rank that does not handle the signal yet, because it still imports, is asked again and again by the manager. Whether
# it will ever handle it is unknown, so no phase waits for that.


def _remember_request(state: State, event: CheckpointRequested) -> Step:
    """Remember a request that arrives while ranks are being started. They are asked once all have started."""
    return attrs.evolve(state, requested=event), ()


def _ask_to_save(state: State, event: CheckpointRequested) -> Step:
    """Ask all ranks with a living leader. If the time limit is near, they are stopped once they have answered."""
    request = CheckpointRequest(unreached=state.leaders, is_open=True, before_limit=event.limit)
    return _asking(attrs.evolve(state, phase=Phase.CHECKPOINTING, requested=None, checkpoint=request))


def _ask_to_save_again(state: State, event: CheckpointRequested) -> Step:
    """Repeat the request to the ranks that have not answered it, unless a stop is pending: one save answers both."""
    if state.cause:
        return state, ()
    request = attrs.evolve(state.checkpoint, before_limit=event.limit or state.checkpoint.before_limit)
    return _asking(attrs.evolve(state, checkpoint=request))


def _save_before_stop(state: State, event: AnyCause) -> Step:
    """Ask for a checkpoint before a stop. The event becomes the cause of the stop unless there is one already."""
    has_cause, was_asked = state.cause is not None, state.phase is Phase.CHECKPOINTING
    is_interrupted = state.is_interrupted or (isinstance(event, SignalReceived) and event.node is None)
    state = _stopping(attrs.evolve(state, is_interrupted=is_interrupted), event)
    if has_cause:
        return state, ()
    return _asking(state) if was_asked else _ask_to_save(state, CheckpointRequested())


def _asked_to_save(state: State, event: AskedToSave) -> Step:
    """Record which ranks were reached."""
    request, reached = state.checkpoint, event.reached & state.leaders
    request = attrs.evolve(
        request,
        unreached=request.unreached - reached,
        unsaved=request.unsaved | reached,
        can_report=request.can_report | event.can_report,
        is_being_sent=False,
        before_limit=None if event.is_limit_moved else request.before_limit,
    )
    state = attrs.evolve(state, checkpoint=request)
    if reached and request.before_limit:
        state = _stopping(state, request.before_limit)
    return _proceed(state)


def _asked_to_save_late(state: State, event: AskedToSave) -> Step:
    """Wait for ranks that handle the signal only now, if they report what they save."""
    request = state.checkpoint
    if not request.is_open:
        return state, ()
    living = attrs.evolve(request, unsaved=request.unsaved & state.leaders, unreached=request.unreached & state.leaders)
    state, actions = _asked_to_save(attrs.evolve(state, phase=Phase.CHECKPOINTING, checkpoint=living), event)
    return state, (*actions, _deadline(state)) if state.phase is Phase.CHECKPOINTING else actions


def _saved(state: State, event: Saved) -> Step:
    """Record that a rank has saved its part. The request may have reached it through another rank."""
    state = attrs.evolve(state, checkpoint=attrs.evolve(state.checkpoint, is_open=False))
    return _proceed(_answered(state, event.rank_id))


def _answered(state: State, rank_id: int) -> State:
    """Stop waiting for a rank that has saved or ended."""
    request = state.checkpoint
    request = attrs.evolve(request, unreached=request.unreached - {rank_id}, unsaved=request.unsaved - {rank_id})
    return attrs.evolve(state, checkpoint=request)


def _time_to_save_is_over(state: State, _event: DeadlineReached) -> Step:
    """End the wait, and continue or stop."""
    state = _ask_no_more(state, _event)[0]
    return _tear_down(state, None) if state.cause else _settle(attrs.evolve(state, phase=Phase.RUNNING))


def _ask_no_more(state: State, _event: DeadlineReached) -> Step:
    """Ask no more ranks."""
    return attrs.evolve(state, checkpoint=attrs.evolve(state.checkpoint, is_open=False)), ()


def _stopping(state: State, cause: AnyCause) -> State:
    return attrs.evolve(state, cause=state.cause or cause, stopped=state.leaders)


def _asking(state: State) -> Step:
    """Send the request to the ranks that have not answered it."""
    request = state.checkpoint
    ranks = tuple(sorted(request.unsaved | request.unreached))
    state = attrs.evolve(state, checkpoint=attrs.evolve(request, is_being_sent=True))
    return state, (AskToSave(ranks), _deadline(state))


def _deadline(state: State) -> SetDeadline:
    return SetDeadline(state.checkpoint_grace or ANSWER_LIMIT)


def _proceed(state: State, actions: tuple[Action, ...] = ()) -> Step:
    """Continue or stop once every answer has arrived."""
    request = state.checkpoint
    if request.is_being_sent or (request.unsaved if state.cause else request.unsaved & request.can_report):
        return state, actions
    if state.cause:
        return _tear_down(state, None)
    return attrs.evolve(state, phase=Phase.RUNNING), actions


# --- What the cells share --------------------------------------------------------------------------------------------


def _ask_all(state: State) -> tuple[Action, ...]:
    """Return the actions that ask every living rank to stop."""
    return tuple(AskToStop(rank_id, state.stop_signum) for rank_id in sorted(state.alive))


def _tear_down(state: State, cause: Cause | None) -> Step:
    """Ask every living rank to stop, and start the back-off."""
    state = attrs.evolve(
        state,
        phase=Phase.TERMINATING,
        waiting=(),
        cause=state.cause or cause,
        stopped=state.stopped | state.leaders,
        stop_signum=SIGINT if cause == SignalReceived(SIGINT) else state.stop_signum,
    )
    return _settle(state, (*_ask_all(state), SetDeadline(BACKOFF[0] * state.grace)))


def _settle(state: State, actions: tuple[Action, ...] = ()) -> Step:
    """Go on to the next phase if there is nothing left to wait for in this one."""
    if state.waiting or state.spawning is not None or state.leaders:
        return state, actions
    if not state.stragglers:
        return attrs.evolve(state, phase=Phase.DONE), ()
    if state.is_tearing_down:
        return state, actions

    return _tear_down(state, cause=None)


def _cause_beside(state: State, event: SignalReceived) -> Cause:
    """Return the cause after the runner has received a signal (law 1)."""
    cause = state.cause
    is_echo = isinstance(cause, Exited) and cause.ending.signum == event.signum and state.steps_taken == 0
    return event if cause is None or is_echo else cause


def _kill(state: State) -> Step:
    """Send SIGKILL to every living rank."""
    killed = tuple(SignalGroup(rank_id, SIGKILL) for rank_id in sorted(state.alive))
    return attrs.evolve(state, phase=Phase.KILLING), (*killed, SetDeadline(KILL_WAIT))


def _spawn_next(state: State) -> Step:
    if not state.waiting:
        state = attrs.evolve(state, phase=Phase.RUNNING)
        return _ask_to_save(state, state.requested) if state.requested and state.leaders else _settle(state)

    rank_id, *rest = state.waiting
    return attrs.evolve(state, spawning=rank_id, waiting=tuple(rest)), (Spawn(rank_id),)


def _forward(state: State, signum: int) -> Step:
    """Pass a signal on to the ranks, unless they were sent SIGKILL: after that it has no effect."""
    is_over = state.phase in {Phase.KILLING, Phase.DONE}
    return state, () if is_over else tuple(map(FORWARDED[signum], sorted(state.alive)))


# --- The table --------------------------------------------------------------------------------------------------------


_IGNORED: Final[Mapping[type[Event], Handler]] = dict.fromkeys(get_args(Event), _ignore)
_WHILE_RANKS_RUN: Final[Mapping[type[Event], Handler]] = {
    **_IGNORED,
    Exited: _exited,
    Emptied: _emptied,
    SignalReceived: _signalled,
    **dict.fromkeys((HangDetected, LimitReached, PeerFailed), _tear_down),
    **dict.fromkeys((NodeFinding, Slowdown), _save_and_stop),
}
TRANSITIONS: Final[Mapping[Phase, Mapping[type[Event], Handler]]] = {
    Phase.STARTING: {
        **_WHILE_RANKS_RUN,
        Spawned: _spawned,
        SpawnFailed: _spawn_failed,
        CheckpointRequested: _remember_request,
    },
    Phase.RUNNING: {
        **_WHILE_RANKS_RUN,
        CheckpointRequested: _ask_to_save,
        AskedToSave: _asked_to_save_late,
        DeadlineReached: _ask_no_more,
    },
    Phase.CHECKPOINTING: {
        **_WHILE_RANKS_RUN,
        Exited: _exited_while_saving,
        SignalReceived: _signalled_while_saving,
        HangDetected: _hung_while_saving,
        CheckpointRequested: _ask_to_save_again,
        AskedToSave: _asked_to_save,
        Saved: _saved,
        DeadlineReached: _time_to_save_is_over,
    },
    Phase.HOLDING: {
        **_IGNORED,
        Exited: _held,
        Emptied: _emptied,
        SignalReceived: _signalled,
        PeerFailed: _tear_down,
        DeadlineReached: _held,
        **dict.fromkeys((HangDetected, LimitReached, NodeFinding, Slowdown), _watched_while_held),
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

"""The rules of a request for a checkpoint while the ranks run: the cells of the phase CHECKPOINTING (law 9).

The ranks are asked with a signal that only processes that handle it receive. Only those that have announced it report
when they have saved; before a stop, the end of another rank is waited for, but otherwise nothing would end that wait.
A rank that does not handle the signal yet, because it still imports, is asked again and again by the manager. Whether
it will ever handle it is unknown, so no phase waits for that.
"""

from __future__ import annotations

from typing import Final

import attrs

from ascend_runner.supervision.events import (
    AskedToSave,
    CheckpointRequested,
    DeadlineReached,
    LimitReached,
    Saved,
    SignalReceived,
)
from ascend_runner.supervision.findings import NodeFinding
from ascend_runner.supervision.slowdown import Slowdown
from ascend_runner.supervision.state import Action, AskToSave, CheckpointRequest, Phase, SetDeadline, State
from ascend_runner.supervision.teardown import Step, settle, tear_down

ANSWER_LIMIT: Final = 300.0  # seconds for the ranks to answer if the user has set no time for that
SAVE_BEFORE: Final = (SignalReceived, LimitReached, NodeFinding, Slowdown)  # causes that give ranks time to save


def remember(state: State, event: CheckpointRequested) -> Step:
    """Remember a request that arrives while ranks are being started. They are asked once all have started."""
    return attrs.evolve(state, requested=event), ()


def ask(state: State, event: CheckpointRequested) -> Step:
    """Ask all ranks whose leader is alive. If the time limit is near, they are stopped once they have answered."""
    request = CheckpointRequest(unreached=state.leaders, is_open=True, before_limit=event.limit)
    return _asking(attrs.evolve(state, phase=Phase.CHECKPOINTING, requested=None, checkpoint=request))


def ask_again(state: State, event: CheckpointRequested) -> Step:
    """Repeat the request to the ranks that have not answered it, unless a stop is pending: one save answers both."""
    if state.cause:
        return state, ()
    request = attrs.evolve(state.checkpoint, before_limit=event.limit or state.checkpoint.before_limit)
    return _asking(attrs.evolve(state, checkpoint=request))


def ask_before_stop(state: State, event: SignalReceived | NodeFinding | Slowdown) -> Step:
    """Ask for a checkpoint before a stop. The event becomes the cause of the stop unless there is one already."""
    has_cause, was_asked = state.cause is not None, state.phase is Phase.CHECKPOINTING
    is_interrupted = state.is_interrupted or isinstance(event, SignalReceived)
    state = _stopping(attrs.evolve(state, is_interrupted=is_interrupted), event)
    if has_cause:
        return state, ()
    return _asking(state) if was_asked else ask(state, CheckpointRequested())


def asked(state: State, event: AskedToSave) -> Step:
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
    return proceed(state)


def asked_late(state: State, event: AskedToSave) -> Step:
    """Wait for ranks that handle the signal only now, if they report what they save."""
    request = state.checkpoint
    if not request.is_open:
        return state, ()
    living = attrs.evolve(request, unsaved=request.unsaved & state.leaders, unreached=request.unreached & state.leaders)
    state, actions = asked(attrs.evolve(state, phase=Phase.CHECKPOINTING, checkpoint=living), event)
    return state, (*actions, _deadline(state)) if state.phase is Phase.CHECKPOINTING else actions


def saved(state: State, event: Saved) -> Step:
    """Record that a rank has saved its part. The request may have reached it through another rank."""
    state = attrs.evolve(state, checkpoint=attrs.evolve(state.checkpoint, is_open=False))
    return proceed(answered(state, event.rank_id))


def answered(state: State, rank_id: int) -> State:
    """Stop waiting for a rank that has saved or ended."""
    request = state.checkpoint
    request = attrs.evolve(request, unreached=request.unreached - {rank_id}, unsaved=request.unsaved - {rank_id})
    return attrs.evolve(state, checkpoint=request)


def time_is_over(state: State, _event: DeadlineReached) -> Step:
    """End the wait, and continue or stop."""
    state = forget(state, _event)[0]
    return tear_down(state, None) if state.cause else settle(attrs.evolve(state, phase=Phase.RUNNING))


def forget(state: State, _event: DeadlineReached) -> Step:
    """Ask no more ranks."""
    return attrs.evolve(state, checkpoint=attrs.evolve(state.checkpoint, is_open=False)), ()


def _stopping(state: State, cause: SignalReceived | LimitReached | NodeFinding | Slowdown) -> State:
    return attrs.evolve(state, cause=state.cause or cause, stopped=state.leaders)


def _asking(state: State) -> Step:
    """Send the request to the ranks that have not answered it."""
    request = state.checkpoint
    ranks = tuple(sorted(request.unsaved | request.unreached))
    state = attrs.evolve(state, checkpoint=attrs.evolve(request, is_being_sent=True))
    return state, (AskToSave(ranks), _deadline(state))


def _deadline(state: State) -> SetDeadline:
    return SetDeadline(state.checkpoint_grace or ANSWER_LIMIT)


def proceed(state: State, actions: tuple[Action, ...] = ()) -> Step:
    """Continue or stop once every answer has arrived."""
    request = state.checkpoint
    if request.is_being_sent or (request.unsaved if state.cause else request.unsaved & request.can_report):
        return state, actions
    if state.cause:
        return tear_down(state, None)
    return attrs.evolve(state, phase=Phase.RUNNING), actions

"""The steps that the cells of the table share: how a teardown begins, and when nothing is left to wait for."""

from __future__ import annotations

from signal import SIGINT, SIGKILL
from typing import Final

import attrs

from ascend_runner.supervision.events import Cause, Exited, SignalReceived
from ascend_runner.supervision.state import Action, AskToStop, Phase, SetDeadline, SignalGroup, State

KILL_WAIT: Final = 5.0  # seconds; a process that survives SIGKILL for longer is stuck in the kernel (state D)
BACKOFF: Final = (1 / 15, 2 / 15, 4 / 15, 8 / 15)  # shares of the grace between one SIGTERM and the next

Step = tuple[State, tuple[Action, ...]]


def ask_all(state: State) -> tuple[Action, ...]:
    """Return the actions that ask every living rank to stop."""
    return tuple(AskToStop(rank_id, state.stop_signum) for rank_id in sorted(state.alive))


def tear_down(state: State, cause: Cause | None) -> Step:
    """Ask every living rank to stop, and start the back-off."""
    state = attrs.evolve(
        state,
        phase=Phase.TERMINATING,
        waiting=(),
        cause=state.cause or cause,
        stopped=state.stopped | state.leaders,
        stop_signum=SIGINT if cause == SignalReceived(SIGINT) else state.stop_signum,
    )
    return settle(state, (*ask_all(state), SetDeadline(BACKOFF[0] * state.grace)))


def settle(state: State, actions: tuple[Action, ...] = ()) -> Step:
    """Go on to the next phase if there is nothing left to wait for in this one."""
    if state.waiting or state.spawning is not None or state.leaders:
        return state, actions
    if not state.stragglers:
        return attrs.evolve(state, phase=Phase.DONE), ()
    if state.is_tearing_down:
        return state, actions

    return tear_down(state, cause=None)


def cause_beside(state: State, event: SignalReceived) -> Cause:
    """Return the cause after the runner has received a signal (law 1)."""
    cause = state.cause
    is_echo = isinstance(cause, Exited) and cause.ending.signum == event.signum and state.steps_taken == 0
    return event if cause is None or is_echo else cause


def kill(state: State) -> Step:
    """Send SIGKILL to every living rank."""
    killed = tuple(SignalGroup(rank_id, SIGKILL) for rank_id in sorted(state.alive))
    return attrs.evolve(state, phase=Phase.KILLING), (*killed, SetDeadline(KILL_WAIT))

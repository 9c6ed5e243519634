"""Tells whether a job ends with the attempt that runs. Pure.

From then on the time limit of the job decides nothing, so a change of it would have no effect.
"""

from __future__ import annotations

from typing import Final

from ascend_runner.lifecycle.state import Policy
from ascend_runner.supervision.events import LimitReached, SignalReceived
from ascend_runner.supervision.findings import NodeFinding
from ascend_runner.supervision.state import State

NEVER_FOLLOWED: Final = (SignalReceived, LimitReached, NodeFinding)  # causes of an end after which there is no restart


def is_last(state: State, policy: Policy, attempt: int) -> bool:
    """Whether the job ends with this attempt, counted from 0, as far as `state` shows it.

    Ranks that were asked for a checkpoint before the limit are stopped. Whether a failure permits a restart is known
    only when everything of the attempt has ended: until then, an attempt that has failed may be followed by another.
    """
    is_limit_near = state.checkpoint.is_being_sent and state.checkpoint.before_limit is not None
    if is_limit_near or state.is_interrupted or isinstance(state.cause, NEVER_FOLLOWED):
        return True
    if state.cause is None:
        return state.is_tearing_down  # every rank has succeeded
    return attempt >= policy.max_restarts

"""Watches, for the manager, what is asked of a running attempt from outside: to end at the job's time limit."""

from __future__ import annotations

from typing import Optional

from ascend_runner.managed_node import ManagedNode
from ascend_runner.supervision.events import Event, LimitReached
from ascend_runner.supervision.state import Phase, State

RUNNING: frozenset[Phase] = frozenset({Phase.STARTING, Phase.RUNNING})


class JobRequests:
    """The requests to one attempt."""

    def __init__(self, node: ManagedNode) -> None:
        self._clock, self._requests = node.clock, node.requests

    def next_check(self, state: State) -> Optional[float]:
        """Return the moment at which to check again, in seconds of the clock; None: only after a wake-up."""
        return self._requests.deadline if state.phase in RUNNING else None

    def check(self, state: State) -> list[Event]:
        """Return the events that follow from the requests so far."""
        moment = self.next_check(state)
        is_over = moment is not None and self._clock.now() >= moment
        return [LimitReached(self._requests.limit or 0.0)] if is_over else []

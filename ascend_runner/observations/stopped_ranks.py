"""Which ranks the runner has stopped, and which have ended or failed by themselves: decided here for all observers."""

from __future__ import annotations

from collections.abc import Mapping

from ascend_runner.observations.facts import CheckpointEnded, Fact
from ascend_runner.supervision.events import Cause, Ending, Exited
from ascend_runner.supervision.state import State


class StoppedRanks:
    """Follows the facts of one attempt. `rank_ids` are the ranks that were stopped.

    `unsaved` are those that failed when they were to save a checkpoint before a stop, with their endings.
    """

    def __init__(self) -> None:
        self.rank_ids: frozenset[int] = frozenset()
        self.unsaved: Mapping[int, Ending] = {}
        self._ended_before: set[int] = set()  # ranks that had ended when the others were asked to stop
        self._cause: Cause | None = None
        self._is_tearing_down = False

    def observe(self, fact: Fact) -> None:
        """Follow one fact."""
        if isinstance(fact, State):
            self._cause, self._is_tearing_down = fact.cause, fact.is_tearing_down
            # A failure may have ended further ranks in the same moment. After any other cause, such as a signal that
            # the platform sends to the ranks as well, those have been stopped.
            own = self._ended_before if isinstance(fact.cause, Exited) else self.unsaved.keys()
            self.rank_ids = fact.stopped - own
        elif isinstance(fact, Exited) and not self._is_tearing_down:
            self._ended_before.add(fact.rank_id)
        elif isinstance(fact, CheckpointEnded) and self._cause:
            self.unsaved = fact.failed

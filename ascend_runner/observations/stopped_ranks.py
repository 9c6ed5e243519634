"""Which ranks the runner has stopped, and which have ended or failed by themselves: decided here for all observers."""

from __future__ import annotations

from collections.abc import Mapping
from signal import SIGKILL

from ascend_runner.observations.facts import CheckpointEnded, Fact, SignalsSent
from ascend_runner.supervision.causes import Cause, Ending, Exited
from ascend_runner.supervision.state import State


class StoppedRanks:
    """Follows the facts of one attempt.

    `unsaved` are the ranks that failed instead of saving a checkpoint before a stop, with their endings.
    """

    def __init__(self) -> None:
        self.unsaved: Mapping[int, Ending] = {}
        self._asked: frozenset[int] = frozenset()  # to stop
        self._signalled: set[int] = set()  # ranks that were sent a signal to end
        self._ended_before: set[int] = set()  # ranks that had ended when the others were asked to stop
        self._killed: set[int] = set()  # ranks that the runner has sent SIGKILL
        self._killed_by_others: set[int] = set()
        self._cause: Cause | None = None
        self._is_tearing_down = False

    @property
    def rank_ids(self) -> frozenset[int]:
        """The ranks that were stopped.

        A failure may have ended further ranks in the same moment. One that the OOM killer has chosen takes a while to
        end, so its peers may have noticed and ended before. After any other cause, such as a signal that the platform
        sends to the ranks as well, all of these have been stopped.
        """
        is_failure = self._cause is not None and self._cause.ending is not None
        return self._asked - (self._ended_before | self._killed_by_others if is_failure else self.unsaved.keys())

    def observe(self, fact: Fact) -> None:
        """Follow one fact."""
        if isinstance(fact, State):
            self._cause, self._is_tearing_down, self._asked = fact.cause, fact.is_tearing_down, fact.stopped
        elif isinstance(fact, SignalsSent):
            self._killed |= {rank_id for rank_id, signum in fact.signums.items() if signum == SIGKILL}
            self._signalled |= fact.signums.keys() if self._is_tearing_down else set()
        elif isinstance(fact, Exited):
            self._note_end(fact)
        elif isinstance(fact, CheckpointEnded) and self._cause:
            self.unsaved = fact.failed

    def _note_end(self, exited: Exited) -> None:
        if exited.rank_id not in self._signalled:
            self._ended_before.add(exited.rank_id)
        elif exited.ending.signum == SIGKILL and exited.rank_id not in self._killed:
            self._killed_by_others.add(exited.rank_id)

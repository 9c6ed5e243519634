"""Requests and findings that other threads pass on to a running job.

They are stored here and wake the loop of the runner, which reads them, so that nothing polls.
"""

from __future__ import annotations

import threading
from collections import deque
from queue import SimpleQueue
from typing import Protocol, Union

from ascend_runner.lifecycle.state import JobState
from ascend_runner.observations.facts import CheckpointAsked, CheckpointPostponed
from ascend_runner.supervision.findings import FindingKind, NodeFinding
from ascend_runner.supervision.slowdown import Slowdown
from ascend_runner.text import duration

Answer = SimpleQueue[Union[CheckpointAsked, CheckpointPostponed, None]]  # for one answer


class Clock(Protocol):
    """The clock of the runner's loop."""

    def now(self) -> float:
        """Return the time in seconds; it never goes back."""

    def wake(self) -> None:
        """End the current or the next wait of the loop. May be called in any thread."""


class Requests:
    """The requests to one job. `limit` is in seconds since its start (None: no limit).

    Every method may be called in any thread.
    """

    def __init__(
        self,
        clock: Clock,
        limit: float | None = None,
        *,
        has_checkpoint_signal: bool = True,
        checkpoint_grace: float = 0.0,
    ) -> None:
        self.has_checkpoint_signal = has_checkpoint_signal
        self.began = clock.now()  # the start of the job, in seconds of the manager's clock
        self.limit = limit
        self.is_running = False  # whether there are ranks to ask; set by the loop
        self.is_tearing_down = False  # whether the ranks are being stopped; set by the loop
        self.is_ending = False  # no attempt follows, and nothing depends on the time limit any longer
        self.is_held = False  # after its failure: the time limit no longer counts
        self._clock, self._checkpoint_grace = clock, checkpoint_grace
        self._has_new_limit = threading.Event()
        self._checkpoint_requests: deque[Answer] = deque()
        self._unanswered: list[Answer] = []  # requests that the loop has taken
        self._findings: deque[NodeFinding | Slowdown] = deque()

    @property
    def deadline(self) -> float | None:
        """The moment at which the job is stopped, in seconds of the manager's clock, or None if no limit applies."""
        limit = self.limit
        return None if limit is None or self.is_held else self.began + limit

    @property
    def time_left(self) -> float | None:
        """The seconds until then, to the millisecond, or None if there is no limit."""
        deadline = self.deadline
        return None if deadline is None else round(deadline - self._clock.now(), 3)

    def note(self, state: JobState) -> None:
        """Note the state of the job between its attempts, and at its end."""
        self.is_held, self.is_ending = state is JobState.HOLDING, state.is_final

    def ask_for_checkpoint(self) -> Answer:
        """Request a checkpoint from the ranks. Requests made before the ranks receive one count as one.

        The result receives the answer when they were asked or will be, or None if they are stopped before that.

        Raises:
            ValueError: The job has no signal to ask with, or no rank is running, or they are being stopped.
        """
        if not self.is_running:
            why = "the ranks are being stopped" if self.is_tearing_down else "no rank is running"
            raise ValueError(f"{why}, so no checkpoint can be requested")
        if not self.has_checkpoint_signal:
            raise ValueError("the job has no signal to request checkpoints with (--checkpoint-signal none)")
        answer: Answer = SimpleQueue()
        self._checkpoint_requests.append(answer)
        self._clock.wake()
        return answer

    def take_checkpoint_request(self) -> bool:
        """Whether a checkpoint was requested since the last call."""
        taken = [self._checkpoint_requests.popleft() for _ in range(len(self._checkpoint_requests))]
        self._unanswered += taken
        return bool(taken)

    def answer(self, asked: CheckpointAsked | CheckpointPostponed | None) -> None:
        """Answer the requests for a checkpoint that were taken."""
        for request in self._unanswered:
            request.put(asked)
        self._unanswered.clear()

    def take_limit_change(self) -> bool:
        """Whether the time limit was changed since the last call."""
        if not self._has_new_limit.is_set():
            return False
        self._has_new_limit.clear()
        return True

    def pass_on(self, finding: NodeFinding | Slowdown) -> None:
        """Pass on a finding about this node or the training."""
        self._findings.append(finding)
        self._clock.wake()

    def take_findings(self) -> list[NodeFinding | Slowdown]:
        """Return the findings that were passed on since the last call."""
        return [self._findings.popleft() for _ in range(len(self._findings))]

    def take_between_attempts(self, *, only_precheck: bool) -> list[NodeFinding]:
        """Return the findings about this node that were passed on since the last call.

        With `only_precheck`, those that may end an attempt are left to the next one. An attempt that has ended is no
        longer slow.
        """
        found = [one for one in self.take_findings() if isinstance(one, NodeFinding)]
        left = [one for one in found if only_precheck and one.kind is not FindingKind.PRECHECK]
        self._findings.extendleft(reversed(left))
        return [one for one in found if one not in left]

    def set_limit(self, seconds: float | None) -> bool:
        """Set the time limit of the job, in seconds since its start (None: no limit).

        Return whether it was postponed because it would have left less than the time for a checkpoint.

        Raises:
            ValueError: The limit is in the past, or the job is ending, or is held.
        """
        self._refuse_limit()
        elapsed = self._clock.now() - self.began
        if seconds is not None and seconds < elapsed:
            already = f"the job has already run for {duration(elapsed)}"
            raise ValueError(f"the new time limit would be in the past, as {already}; use ascend-job stop to stop it")
        earliest = elapsed + self._checkpoint_grace
        is_postponed = seconds is not None and bool(self._checkpoint_grace) and seconds < earliest
        self.limit = earliest if is_postponed else seconds
        self._has_new_limit.set()
        self._clock.wake()
        return is_postponed

    def change_limit(self, by: float) -> bool:
        """Change the time limit by some seconds, see `set_limit`; a negative number brings it forward.

        Raises:
            ValueError: There is no limit, or the new one is in the past, or the job is ending, or is held.
        """
        self._refuse_limit()
        if self.limit is None:
            raise ValueError("the job has no time limit to adjust; set one first, for example 12h")
        return self.set_limit(self.limit + by)

    def _refuse_limit(self) -> None:
        if self.is_held:
            raise ValueError("the job is held after its failure, so no time limit applies; use ascend-job release")
        if self.is_ending:
            raise ValueError("the job is already ending, so its time limit can no longer be changed")

"""Checks this node before the ranks start, in a thread, while the runner waits for something else.

The start of the ranks does not wait for the check, unless an error must prevent it (--precheck stop).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

from ascend_runner.errors import AscendRunnerError
from ascend_runner.node import bounded
from ascend_runner.problems import Problem, Severity
from ascend_runner.record.facts import Messages
from ascend_runner.supervision.causes import FindingKind, NodeFinding
from ascend_runner.text import counted

LIMIT: Final = 60.0  # seconds; each subject has a limit of its own, but not every file that is read
LOOK_INTERVAL: Final = 0.1  # seconds between two checks for a stop signal

# Each with whether it is steady, which means that ranks do not change it by starting as they do ports and the use of
# NPUs, and with its problems, which are looked for as they are taken.
Subjects = Iterable[tuple[str, bool, Iterable[Problem]]]


class Precheck:
    """Checks this node once, as soon as the runner has to wait."""

    def __init__(
        self,
        look: Callable[[], Subjects],
        pass_on: Callable[[NodeFinding], None],
        messages: Messages,
        *,
        can_stop: bool,
        limit: float = LIMIT,
    ) -> None:
        """`look`, `pass_on` and `messages` are used in a thread.

        With `can_stop`, an error prevents the start if it is found within `limit` seconds.
        """
        self._look, self._pass_on, self._messages = look, pass_on, messages
        self._can_stop, self._limit = can_stop, limit
        self._thread: threading.Thread | None = None
        self._is_over = False
        self._errors: list[str] = []

    def begin(self) -> None:
        """Begin the check unless it has begun. If no thread can be started, warn instead."""
        if not (self._thread or self._is_over):
            try:
                self._thread = bounded.start_thread(self._run)
            except AscendRunnerError as error:
                self._is_over = True
                self._messages.warning(f"pre-check skipped: {error}")

    def end(self, pause: Callable[[float], None]) -> None:
        """Return once the ranks may start: at once, or after the check if an error can prevent the start.

        Raises:
            AscendRunnerError: An error was found that prevents the start.
            StopRequestedError: A stop signal arrived, raised by `pause`.
        """
        if self._can_stop:
            self.begin()
            self._wait(pause)
        elif not (self._thread or self._is_over):
            self._messages.debug("pre-check skipped, because the job did not have to wait")
        self._is_over = True
        if self._can_stop and self._errors:
            number = counted(len(self._errors), "error")
            raise AscendRunnerError(
                f"the pre-check found {number}: {'; '.join(self._errors)}; no rank was started (--precheck stop)"
            )

    def _wait(self, pause: Callable[[float], None]) -> None:
        ends = time.monotonic() + self._limit
        while self._thread and self._thread.is_alive():
            if time.monotonic() >= ends:
                self._messages.warning(
                    f"the pre-check did not finish within {self._limit:g} s; the job starts without its result"
                )
                return
            pause(0.0)
            self._thread.join(LOOK_INTERVAL)

    def _run(self) -> None:
        late: list[str] = []
        with suppress(AscendRunnerError):  # the start meets it as well, and reports it
            late = [one[0] for one in self._look() if not self._has_checked(*one)]
        if late:
            self._messages.debug(f"the ranks started before the pre-check had covered {', '.join(late)}")

    def _has_checked(self, subject: str, is_steady: bool, problems: Iterable[Problem]) -> bool:  # noqa: FBT001
        """Check a subject; return whether that was done in time."""
        for problem in problems if is_steady or not self._is_over else ():
            if is_steady or not self._is_over:
                self._note(subject, problem)
        return is_steady or not self._is_over

    def _note(self, subject: str, problem: Problem) -> None:
        is_error = problem.severity is Severity.ERROR
        finding = NodeFinding(
            subject=f"{subject}: {problem.sentence}",
            sentence=f"{subject}: {problem}",
            at=time.time(),
            kind=FindingKind.PRECHECK,
            is_error=is_error,
        )
        if is_error:
            self._errors.append(finding.subject)
        (self._messages.warning if is_error else self._messages.debug)(f"pre-check: {finding.sentence}")
        self._pass_on(finding)

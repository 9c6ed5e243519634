"""Checks this node before the ranks start, in a thread, while the runner waits for something else.

The start of the ranks does not wait for the check, unless an error must prevent it (--precheck stop).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final, Optional

from ascend_runner.errors import AscendRunnerError
from ascend_runner.host import bounded
from ascend_runner.problems import Problem, Severity
from ascend_runner.supervision.findings import FindingKind, NodeFinding
from ascend_runner.text import counted

LIMIT: Final = 60.0  # seconds; each subject has a limit of its own, but not every file that is read
LOOK_INTERVAL: Final = 0.1  # seconds between two checks for a stop signal
# Subjects that ranks do not change by starting, as they do ports and processes that use NPUs.
STEADY: Final = frozenset({"devices", "software", "other nodes", "space", "limits", "grace"})

Subjects = Iterable[tuple[str, Problem]]  # the problems that are found, each with its subject


class Precheck:
    """Checks this node once, as soon as the runner has to wait."""

    def __init__(
        self,
        look: Callable[[], Subjects],
        pass_on: Callable[[NodeFinding], None],
        warn: Callable[[str], None],
        *,
        can_stop: bool,
        limit: float = LIMIT,
    ) -> None:
        """`look`, `pass_on` and `warn` are called in a thread.

        With `can_stop`, an error prevents the start if it is found within `limit` seconds.
        """
        self._look, self._pass_on, self._warn = look, pass_on, warn
        self._can_stop, self._limit = can_stop, limit
        self._thread: Optional[threading.Thread] = None
        self._is_over = False
        self._errors: list[str] = []

    def begin(self) -> None:
        """Begin the check unless it has begun. There is no check if no thread can be started."""
        if not (self._thread or self._is_over):
            try:
                self._thread = bounded.start_thread(self._run)
            except AscendRunnerError:
                self._is_over = True

    def end(self, pause: Callable[[float], None]) -> None:
        """Return once the ranks may start: at once, or after the check if an error can prevent the start.

        Raises:
            AscendRunnerError: An error was found that prevents the start.
            StopRequestedError: A stop signal arrived, raised by `pause`.
        """
        if self._can_stop:
            self.begin()
            self._wait(pause)
        self._is_over = True
        if self._can_stop and self._errors:
            number = counted(len(self._errors), "error")
            raise AscendRunnerError(
                f"the pre-check has found {number}: {'; '.join(self._errors)}; no rank was started (--precheck stop)"
            )

    def _wait(self, pause: Callable[[float], None]) -> None:
        ends = time.monotonic() + self._limit
        while self._thread and self._thread.is_alive():
            if time.monotonic() >= ends:
                self._warn(f"the pre-check has not ended within {self._limit:g} s; the job starts without its result")
                return
            pause(0.0)
            self._thread.join(LOOK_INTERVAL)

    def _run(self) -> None:
        with suppress(AscendRunnerError):  # the start meets it as well, and reports it
            for subject, problem in self._look():
                if subject in STEADY or not self._is_over:
                    self._note(subject, problem)

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
            self._warn(f"pre-check: {finding.sentence}")
        self._pass_on(finding)

"""Checks this node in a thread: before the ranks start, while the runner waits for something else, or beside them.

The start of the ranks does not wait for the check, unless an error must prevent it (--precheck stop).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

from ascend_runner.errors import AscendRunnerError
from ascend_runner.node import bounded
from ascend_runner.problems import Problem, Severity
from ascend_runner.record.facts import Messages
from ascend_runner.supervision.causes import FindingKind, NodeFinding
from ascend_runner.text import counted

LIMIT: Final = 60.0  # seconds; each subject has a limit of its own, but not every file that is read
LOOK_INTERVAL: Final = 0.1  # seconds between two checks for a stop signal
DELAY: Final = 2.0  # seconds until a check beside the ranks begins: their start comes first, and short jobs need none

# Each with whether it is steady, which means that ranks do not change it by starting as they do ports and the use of
# NPUs, and with its problems, which are looked for as they are taken.
Subjects = Iterable[tuple[str, bool, Iterable[Problem]]]


class Precheck:
    """Checks this node once: as soon as the runner has to wait, or else a moment after the start of the ranks."""

    def __init__(  # noqa: PLR0913  two limits that tests inject
        self,
        look: Callable[[], Subjects],
        pass_on: Callable[[NodeFinding], None],
        messages: Messages,
        *,
        can_stop: bool,
        limit: float = LIMIT,
        delay: float = DELAY,
    ) -> None:
        """`look`, `pass_on` and `messages` are used in a thread.

        With `can_stop`, an error prevents the start if it is found within `limit` seconds. `delay` is in seconds.
        """
        self._look, self._pass_on, self._messages = look, pass_on, messages
        self._can_stop, self._limit, self._delay = can_stop, limit, delay
        self._thread: threading.Thread | None = None
        self._is_over = False
        self._closed = threading.Event()
        self._errors: list[str] = []
        self._warnings = 0

    def begin(self, delay: float = 0.0) -> None:
        """Begin the check after some seconds unless it has begun. If no thread can be started, warn instead."""
        if not (self._thread or self._is_over):
            try:
                self._thread = bounded.start_thread(partial(self._run, delay))
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
        else:
            self.begin(self._delay)
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

    def close(self) -> None:
        """End the check: what it finds after the job is of no use. May be called twice."""
        self._closed.set()

    def _run(self, delay: float) -> None:
        if delay and self._closed.wait(delay):
            return
        try:
            late = [one[0] for one in self._look() if not self._has_checked(*one)]
        except AscendRunnerError:
            return  # the start meets it as well, and reports it
        if self._closed.is_set():
            return
        if late:
            self._messages.debug(f"the ranks started before the pre-check had covered {', '.join(late)}")
        self._pass_on(self._result(late))

    def _result(self, late: Sequence[str]) -> NodeFinding:
        counts = (counted(len(self._errors), "error"), counted(self._warnings, "warning"))
        found = " and ".join(count for count in counts if not count.startswith("0 ")) or "no problems"
        left_out = f" (not checked: {', '.join(late)})" if late else ""
        sentence = f"the pre-check found {found}{left_out}"
        return NodeFinding(subject="pre-check", sentence=sentence, at=time.time(), kind=FindingKind.PRECHECKED)

    def _has_checked(self, subject: str, is_steady: bool, problems: Iterable[Problem]) -> bool:  # noqa: FBT001
        """Check a subject; return whether that was done in time."""
        for problem in problems if is_steady or not self._is_over else ():
            if (is_steady or not self._is_over) and not self._closed.is_set():
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
        else:
            self._warnings += 1
        (self._messages.warning if is_error else self._messages.debug)(f"pre-check: {finding.sentence}")
        self._pass_on(finding)

"""Writes the report of a job as an HTML page.

The page is a convenience, so the runner waits for it only briefly. To load what it needs takes 0.2 s of CPU time, and
several times as long on a busy machine. The modules of this package, a third of that, are loaded soon after the start
of a long job; jinja2 and the templates only when the ranks have been asked to stop or have ended, in the background.
"""

from __future__ import annotations

import os.path
import shlex
import threading
from collections.abc import Callable
from contextlib import suppress
from types import ModuleType
from typing import Final

from ascend_runner import files, programs
from ascend_runner.errors import AscendRunnerError, OutputError
from ascend_runner.node import bounded
from ascend_runner.plan.spec import Attempt, JobSpec
from ascend_runner.record.facts import Fact, SignalsSent
from ascend_runner.report.writing import ReportWriter, WriteQueue
from ascend_runner.supervision.job_machine import JobState
from ascend_runner.supervision.state import Phase, State

LIMIT: Final = 0.5  # seconds that the runner waits for the page when everything else is done
LIMIT_OF_SUCCESS: Final = 5.0  # the same if no one waits for a restart; only --html always writes this page


class PageWriter:
    """Writes the page of one job. An observer of the manager's facts; `attempt` is the newest one."""

    def __init__(self, writes: WriteQueue) -> None:
        self._writes = writes
        self._loading: threading.Thread | None = None
        self._state = State(grace=0.0)  # the state of the newest attempt
        self.attempt: Attempt | None = None

    def close(self) -> None:
        """Let the thread end as soon as the page has been written."""
        self._writes.close()

    def observe(self, fact: Fact, _at: float) -> None:
        """Load what a page needs when the ranks have ended or have been sent a signal to end, if a page is likely.

        Not earlier, because Python runs one thread at a time, and the signal would be delayed.
        """
        if isinstance(fact, State):
            self._state = fact
            is_due = fact.phase is Phase.DONE
        else:
            is_due = isinstance(fact, SignalsSent) and self._state.is_tearing_down
        if is_due and self.attempt and _is_page_likely(self._state, self.attempt):
            self.load_ahead()

    def load_ahead(self) -> None:
        """Load what a page needs, in the background and once. If that fails, writing the page reports it."""

        def load() -> None:
            with suppress(ImportError, OSError):
                _load().compile_templates()

        if self._loading is None:
            with suppress(AscendRunnerError):  # the limit of processes
                self._loading = bounded.start_thread(load)

    def write(self, spec: JobSpec, reports: ReportWriter, tell: Callable[[str], None], limit: float = LIMIT) -> None:
        """Write the page and report its path, or how to write it later if that takes longer than `limit` seconds."""
        report = reports.newest
        written: list[str] = []

        def write_now() -> None:
            if self._loading:
                self._loading.join()  # otherwise both threads would compile the templates, at half the speed
            try:
                page = _load()
            except ImportError as error:
                raise OutputError(f"cannot write {spec.html_path!r}: {error}") from error
            content = page.make(report, spec.report_path)
            try:
                files.write_atomically(spec.html_path, content)
            except OutputError as error:
                here = shlex.quote(os.path.basename(spec.html_path))
                hint = f"; run {_command(reports)} -o {here} elsewhere to write it there" if reports.place else ""
                raise OutputError(f"{error}{hint}") from error
            written.append(spec.html_path)

        self._writes.put(spec.html_path, write_now)
        if not self._writes.wait(limit):
            hint = f"; to write it, run {_command(reports)}" if reports.place else ""
            tell(f"HTML report: not finished within {limit:g} s{hint}")
        elif written:
            tell(f"HTML report: {spec.html_path}")


def _command(reports: ReportWriter) -> str:
    """Return the command that makes the page of the newest report."""
    return f"{programs.command('ascend-job report')} {shlex.quote(reports.place)}"


def load_own_modules() -> None:
    """Load the modules of this package that a page needs, without jinja2."""
    from ascend_runner.views import page_content  # noqa: F401, PLC0415  55 ms that only a page needs


def _is_page_likely(state: State, attempt: Attempt) -> bool:
    spec = attempt.job
    is_stopped = state.cause is not None and state.cause.stop_signal is not None
    if state.cause is None:
        return JobState.SUCCEEDED in spec.files.html_states
    if not is_stopped and attempt.number < spec.restarts.max_restarts:
        return False  # loading would delay the restart
    return (JobState.STOPPED if is_stopped else JobState.FAILED) in spec.files.html_states


def _load() -> ModuleType:
    from ascend_runner.views import page  # noqa: PLC0415  jinja2, which only a page needs

    return page

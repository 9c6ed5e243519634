"""Writes the report of a job as an HTML page.

The page is a convenience, so the runner waits for it only briefly. To load what it needs takes 0.2 s of CPU time, and
several times as long on a busy machine. The modules of this package, a third of that, are loaded soon after the start
of a long job; jinja2 and the templates only when the job ends, in the background.
"""

from __future__ import annotations

import shlex
import threading
from contextlib import suppress
from types import ModuleType
from typing import Callable, Final

from ascend_runner import files
from ascend_runner.errors import AscendRunnerError, OutputError
from ascend_runner.host import bounded
from ascend_runner.plan.job import JobSpec
from ascend_runner.report import document
from ascend_runner.report.disk import Disk
from ascend_runner.report.report_writer import ReportWriter

LIMIT: Final = 0.5  # seconds that the runner waits for the page when everything else is done


class PageWriter:
    """Writes the page of one job."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._loading: threading.Thread | None = None

    def close(self) -> None:
        """Let the thread end as soon as the page has been written."""
        self._disk.close()

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
            files.write_atomically(spec.html_path, page.make(document.encode(report), spec.report_path))
            written.append(spec.html_path)

        self._disk.put(spec.html_path, write_now)
        if not self._disk.wait(limit):
            place = reports.place
            hint = f"; run ascend-job report {shlex.quote(place)} to write it" if place else ""
            tell(f"HTML report: not finished within {limit:g} s{hint}")
        elif written:
            tell(f"HTML report: {spec.html_path}")


def load_own_modules() -> None:
    """Load the modules of this package that a page needs, without jinja2."""
    from ascend_runner.html_report import content, public, sources  # noqa: F401, PLC0415  55 ms that only a page needs


def _load() -> ModuleType:
    from ascend_runner.html_report import page  # noqa: PLC0415  jinja2, which only a page needs

    return page

"""Writes the report of a job as an HTML page.

The page is a convenience, so the runner waits for it only briefly. What it needs takes 0.15 s of CPU time to load: that
happens in the background while the ranks are being stopped.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from contextlib import suppress
from types import ModuleType
from typing import Callable, Final

from ascend_runner import files
from ascend_runner.errors import AscendRunnerError, OutputError
from ascend_runner.host import bounded
from ascend_runner.plan.job import JobSpec
from ascend_runner.report import document
from ascend_runner.report.disk import Disk

LIMIT: Final = 0.5  # seconds that the runner stays for the page when everything else is done


def load_ahead() -> None:
    """Load what a page needs, in the background. If that fails, writing the page reports it."""

    def load() -> None:
        with suppress(ImportError, OSError):
            _load().compile_templates()

    with suppress(AscendRunnerError):  # the limit of processes
        bounded.start_thread(load)


def write(
    spec: JobSpec, report: Mapping[str, object], disk: Disk, tell: Callable[[str], None], limit: float = LIMIT
) -> None:
    """Write the page, and tell where it is, or how to make it if that takes longer than `limit` seconds."""
    written: list[str] = []

    def write_now() -> None:
        try:
            page = _load()
        except ImportError as error:
            raise OutputError(f"cannot write {spec.html_path!r}: {error}") from error
        files.write_atomically(spec.html_path, page.make(document.encode(report), spec.report_path))
        written.append(spec.html_path)

    disk.put(spec.html_path, write_now)
    if not disk.wait(limit):
        command = f"ascend-job report {shlex.quote(spec.job_id)}"
        tell(f"HTML report: not finished within {limit:g} s; run {command} to write it")
    elif written:
        tell(f"HTML report: {spec.html_path}")


def _load() -> ModuleType:
    from ascend_runner.html_report import page  # noqa: PLC0415  jinja2, which only a failure needs

    return page

"""Makes the HTML report of a job, running or ended, from its JSON report and the files beside it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final, Optional

import attrs

from ascend_runner import files
from ascend_runner.errors import SettingsError
from ascend_runner.html_report import page, sources
from ascend_runner.html_report.members import Members
from ascend_runner.job_tool import jobs, snapshot
from ascend_runner.job_tool.snapshot import is_final
from ascend_runner.text import size

EXTENSION: Final = ".html"


def make(word: Optional[str], output: Optional[str], environ: Mapping[str, str], *, is_public: bool) -> str:
    """Write the HTML report of what `jobs.find` finds, or of a JSON report; return a sentence about it.

    Without `output` it is written beside the JSON report, where links lead to the logs.

    Raises:
        OutputError: It cannot be written.
        SettingsError: The arguments contradict each other, or several jobs are meant.
        UnknownJobError: There is no such job.
        UnreadableError: There is no report, or it cannot be read.
    """
    if is_public and not output:
        raise SettingsError("--public requires -o OUT.html, because the file beside the logs is not public")
    if output and not output.endswith(EXTENSION):
        raise SettingsError(f"invalid output file {output!r}: its name must end in {EXTENSION}")
    report, path, is_alive = _read(word, environ)
    found = attrs.evolve(
        sources.gather(report, path),
        has_died=is_alive is False and not is_final(report.text("state")),
        is_public=is_public,
        links_logs=output is None,
    )
    data = page.render(found)
    target = output or os.path.splitext(path)[0] + EXTENSION
    files.write_atomically(target, data)
    return f"wrote {target} ({size(len(data))})"


def _read(word: Optional[str], environ: Mapping[str, str]) -> tuple[Members, str, Optional[bool]]:
    """Return the report that a word means, its path, and whether the runner lives (None: unknown).

    While an attempt runs, the ranks are as the board shows them.
    """
    if word and sources.KIND in os.path.basename(word) and os.path.isfile(word):
        return sources.read_report(word), word, None
    job = jobs.find(word, environ)
    seen = snapshot.take(job)
    path = jobs.with_its_logs(job).path("report", "json")
    report = Members({**seen.report, "ranks": list(seen.ranks)}) if seen.board else sources.read_report(path)
    return report, path, seen.is_alive

"""Makes the HTML report of a job, running or ended, from its JSON report and the files beside it.

Of a job of several nodes it shows the table of their reports instead, and makes the page of the node with the cause.
"""

from __future__ import annotations

import json
import os
from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import Final

import attrs

from ascend_runner import files, report_file
from ascend_runner.errors import SettingsError, UnreadableError
from ascend_runner.members import Members
from ascend_runner.node import terminal
from ascend_runner.text import printable, size
from ascend_runner.tools.job import jobs, node_reports
from ascend_runner.tools.job.jobs import is_final
from ascend_runner.tools.job.node_reports import NodeReports
from ascend_runner.views import page
from ascend_runner.views.page_content import gather

EXTENSION: Final = ".html"


def make(options: Namespace) -> str:
    """Write the HTML report of what `jobs.find` finds, or of a JSON report; return what the command prints.

    Without an output file it is written beside the JSON report, where links lead to the logs. If the reports of several
    nodes of a job are in one directory, or in several given ones, the command prints a table of them, and writes a
    page only to an output file: the page of the node that is the likely cause.

    Raises:
        OutputError: It cannot be written.
        SettingsError: The arguments contradict each other, or several jobs are meant.
        UnknownJobError: There is no such job.
        UnreadableError: There is no report, or it cannot be read.
    """
    output = _output(options)
    words: Sequence[str] = options.jobs
    if several := node_reports.find(words, options.environ):
        return _of_several_nodes(several, output, options)
    if options.json:
        raise SettingsError("--json requires the reports of several nodes")
    report, path, is_alive = _read(words[0] if words else None, options.environ)
    was_killed = is_alive is False and not is_final(report.text("state"))
    found = attrs.evolve(
        gather(report, path), was_killed=was_killed, is_public=options.public, links_logs=output is None
    )
    return _written(output or os.path.splitext(path)[0] + EXTENSION, page.render(found))


def _output(options: Namespace) -> str | None:
    """Return the file to write, None for the default.

    Raises:
        SettingsError: It cannot be the file of a page, or a public page has none.
    """
    output: str | None = options.output
    if options.public and not output:
        raise SettingsError("--public requires -o OUT.html, because the file beside the logs is not public")
    if output and not output.endswith(EXTENSION):
        raise SettingsError(f"invalid output file {output!r}: its name must end in {EXTENSION}")
    return output


def _of_several_nodes(found: NodeReports, output: str | None, options: Namespace) -> str:
    """Return the table of the nodes, and write the page of one of them if there is an output file.

    Raises:
        SettingsError: There is an output file, but no report of a node that is the likely cause.
    """
    if options.json:
        text = json.dumps(node_reports.document(found), indent=1)
    else:
        text = node_reports.screen(found, terminal.columns(terminal.STDOUT) or None).rstrip("\n")
    if output is None:
        return text
    if found.is_open or not found.candidates or not found.candidates[0].path:
        raise SettingsError("-o writes the page of one node, and it is not clear which: specify the JSON report of one")
    path = found.candidates[0].path
    sources = attrs.evolve(gather(report_file.read(path), path), is_public=options.public)
    written = _written(output, page.render(sources))
    return text if options.json else f"{text}\n{written}"


def _written(path: str, data: bytes) -> str:
    """Write a page and return a sentence about it."""
    files.write_atomically(path, data)
    return printable(f"wrote {path} ({size(len(data))})")


def _read(word: str | None, environ: Mapping[str, str]) -> tuple[Members, str, bool | None]:
    """Return the report that a word means, its path, and whether the runner lives (None: unknown).

    Raises:
        SettingsError: Several jobs are meant.
        UnknownJobError: There is no such job.
        UnreadableError: There is no report, or it cannot be read.
    """
    is_report = word and report_file.KIND in os.path.basename(word) and os.path.isfile(word)
    if word and is_report and not jobs.at_path(word):  # a report alone does not show whether its runner is alive
        return report_file.read(word), word, None
    job = jobs.find(word, environ)
    seen = jobs.take(job)
    path = jobs.with_its_logs(job).path("report", "json")
    if seen.why and not seen.live:
        raise UnreadableError(seen.why)
    record = attrs.evolve(seen.record, last_step=seen.last_step)  # its report is older
    return Members(record.encode()), path, seen.is_alive

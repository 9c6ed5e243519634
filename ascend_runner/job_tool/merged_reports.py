"""Makes the report of a job of several nodes, from the reports that they have left in directories."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import Final, Optional

import attrs

from ascend_runner import files
from ascend_runner.errors import SettingsError
from ascend_runner.html_report import merged
from ascend_runner.html_report.merged import MergedSources
from ascend_runner.job_tool import jobs, report_folder
from ascend_runner.job_tool.report_folder import Folder
from ascend_runner.merge import summary, verdict
from ascend_runner.merge.model import Verdict
from ascend_runner.plan.secrets import Masker
from ascend_runner.text import abbreviated, last_lines

LOG_END: Final = 16 * 1024  # bytes


@attrs.frozen
class Merged:
    """The reports of a job, the verdict on it, and the log of the first suspect ("" if unknown) with its last lines."""

    folder: Folder
    verdict: Verdict
    log: str
    log_end: tuple[str, ...]


def find(word: Optional[str], environ: Mapping[str, str]) -> Optional[Merged]:
    """Return what the reports of several nodes say together, or None if a word does not mean such a job.

    Raises:
        SettingsError: Several jobs are meant.
        UnknownJobError: There is no such job.
        UnreadableError: No report can be read.
    """
    if word and os.path.isdir(word):
        return _merged(word) if report_folder.has_several(word) else None
    if word and os.path.isfile(word):
        return None
    job = jobs.find(word, environ, may_be_any_part=True)
    folder = jobs.with_its_logs(job).log_dir
    is_named = word is not None and word == job.name
    if is_named or not job.part or not report_folder.has_several(folder, job.job_id):
        return None
    return _merged(folder, job_id=job.job_id)


def of_several(words: Sequence[str], environ: Mapping[str, str]) -> Merged:
    """Return what the reports say together that several directories, reports and names of jobs lead to.

    Raises:
        SettingsError: They are not those of several nodes, or a word could mean several jobs.
        UnknownJobError: There is no such job.
        UnreadableError: A path has no report of the same job, or cannot be read.
    """
    found = _merged(*(_path(word, environ) for word in words))
    if not found:
        raise SettingsError(f"no final report of a job with several nodes found in {abbreviated(words)}")
    return found


def _path(word: str, environ: Mapping[str, str]) -> str:
    """Return the path that a word names, or else that of the report of a job."""
    if os.path.exists(word):
        return word
    return jobs.with_its_logs(jobs.find(word, environ)).path("report", "json")


def page(found: Merged, *, is_public: bool) -> bytes:
    """Return the HTML page about a job."""
    folder = found.folder
    return merged.render(
        MergedSources(
            job_id=folder.job_id,
            job=folder.job,
            verdict=found.verdict,
            reports=folder.reports,
            table=folder.table,
            log=found.log,
            log_end=found.log_end,
            left_out=folder.left_out,
            made_at=time.time(),
            is_public=is_public,
        )
    )


def _merged(*paths: str, job_id: Optional[str] = None) -> Optional[Merged]:
    """Judge the reports at some paths. Return None if the job has one node, or if no node has ended."""
    folder = report_folder.read(*paths, job_id=job_id)
    if len(folder.job.nodes) == 1 or not any(node.has_report for node in folder.job.nodes):
        return None
    found = verdict.judge(folder.job)
    log = folder.logs.get(summary.rank_of(found.suspects[0]), "") if found.suspects else ""
    return Merged(folder, found, log, _last_lines(log) if log else ())


def _last_lines(path: str) -> tuple[str, ...]:
    return tuple(last_lines(Masker().data(files.read_end(path, LOG_END))))

"""Makes the report of a job of several nodes, from the reports that they have left in directories."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import Final

from ascend_runner import files
from ascend_runner.errors import SettingsError
from ascend_runner.html_report.merged import MergedSources
from ascend_runner.job_tool.job import jobs
from ascend_runner.job_tool.reports import report_folder
from ascend_runner.merge import summary, verdict
from ascend_runner.secrets import Masker
from ascend_runner.text import abbreviated, last_lines

LOG_END: Final = 16 * 1024  # bytes


def find(words: Sequence[str], environ: Mapping[str, str]) -> MergedSources | None:
    """Return the combined reports of several nodes, or None if the command line does not name such a job.

    Several words are directories, reports and names of jobs that lead to reports of one job.

    Raises:
        SettingsError: Several jobs are meant, or several words do not lead to the reports of several nodes.
        UnknownJobError: There is no such job.
        UnreadableError: No report can be read, or one of several paths has no report of the same job.
    """
    if len(words) > 1:
        found = _merged(*(word if _is_path(word, environ) else _report_of(word, environ) for word in words))
        if not found:
            raise SettingsError(f"no final report of a job with several nodes found in {abbreviated(words)}")
        return found
    word = words[0] if words else None
    if word and _is_path(word, environ):
        return _merged(word) if os.path.isdir(word) and report_folder.has_several(word) else None
    job = jobs.find(word, environ, may_be_any_part=True)
    folder = jobs.with_its_logs(job).log_dir
    is_named = word is not None and word == job.name
    if is_named or not job.part or not report_folder.has_several(folder, job.job_id):
        return None
    return _merged(folder, job_id=job.job_id)


def _is_path(word: str, environ: Mapping[str, str]) -> bool:
    """Return whether a word is a path: the name of a job takes precedence, as for all commands."""
    return os.path.exists(word) and all(word not in {job.name, job.job_id} for job in jobs.all_jobs(environ))


def _report_of(word: str, environ: Mapping[str, str]) -> str:
    return jobs.with_its_logs(jobs.find(word, environ)).path("report", "json")


def _merged(*paths: str, job_id: str | None = None) -> MergedSources | None:
    """Judge the reports at some paths. Return None if the job has one node, or if no node has ended."""
    found = report_folder.read(*paths, job_id=job_id)
    if len(found.job.nodes) == 1 or not any(node.has_report for node in found.job.nodes):
        return None
    judged = verdict.judge(found.job)
    log = found.logs.get(summary.rank_of(judged.suspects[0]), "") if judged.suspects else ""
    log_end = last_lines(Masker().data(files.read_end(log, LOG_END))) if log else ()
    return MergedSources(found=found, verdict=judged, log=log, log_end=tuple(log_end), made_at=time.time())

"""Writes scripts that run the ranks of a failed job again, beside its report."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from ascend_runner import files
from ascend_runner.plan import rerun
from ascend_runner.plan.spec import JobSpec
from ascend_runner.report.write_queue import WriteQueue
from ascend_runner.text import printable


def write(job: JobSpec, environ: Mapping[str, str], writes: WriteQueue, limit: float) -> Mapping[int, str]:
    """Write a script for each rank within `limit` seconds; return the commands of those that were written, by rank."""
    written: dict[int, str] = {}

    def write_all() -> None:
        for spec in job.processes:
            path = job.rerun_path(spec)
            files.write_atomically(path, rerun.script(spec, job, environ), files.SCRIPT_MODE)
            written[spec.rank_id] = f"sh {printable(shlex.quote(path))}"

    writes.put(job.log_dir, write_all)
    writes.flush(limit)
    return dict(written)  # a copy, because the thread may still be running

"""Creates the directories and files of a plan before its first process starts."""

from __future__ import annotations

import os
from collections.abc import Callable

from ascend_runner import files
from ascend_runner.errors import RankTableError
from ascend_runner.plan.job import JobSpec, with_table_at
from ascend_runner.preparation import table as tables
from ascend_runner.rank_table.checks import entry as checks


def write(job: JobSpec, warn: Callable[[str], None], *, checks_table: bool) -> JobSpec:
    """Create the directories and files of a plan; return the plan with the actual path of its rank table.

    Raises:
        OutputError: A directory or file cannot be made.
        RankTableError: HCCL would not read the rank table where it had to be written (with `checks_table`).
    """
    for folder in job.folders:
        files.make_folder(folder)
    for path, content in job.host_files.items():
        files.make_folder(os.path.dirname(path))
        files.write_atomically(path, content)
    if not job.table:
        return job

    path = tables.write(job.table, warn)
    if path == job.table.path:
        return job
    problem = checks.name_problem(os.path.realpath(path))
    if problem and checks_table:
        raise RankTableError(f"{problem}; {tables.NO_TABLE_CHECKS}")
    return with_table_at(job, path)

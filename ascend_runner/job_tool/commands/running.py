"""The running job that a command is about, for commands that do something to it or to its ranks."""

from __future__ import annotations

from argparse import Namespace

from ascend_runner.errors import AscendRunnerError
from ascend_runner.job_tool.job import jobs
from ascend_runner.job_tool.job.jobs import FoundJob


class RefusedError(AscendRunnerError):
    """A running job was not changed."""

    exit_status = 1


def find(options: Namespace) -> FoundJob:
    """Return the job that the options name.

    Raises:
        RefusedError: It has ended, or it runs elsewhere.
    """
    job = jobs.find(options.job, options.environ)
    is_alive = job.is_alive()
    if is_alive is False:
        raise RefusedError(f"{job.name} is not running")
    if is_alive is None or not job.is_of_this_machine:
        raise RefusedError(f"{job.name} runs on host {job.host} or in another container; run ascend-job there")
    return job

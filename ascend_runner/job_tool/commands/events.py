"""`ascend-job events`."""

from __future__ import annotations

from argparse import Namespace

from ascend_runner.job_tool.job import jobs
from ascend_runner.job_tool.status import event_lines
from ascend_runner.tool import DONE, write_text


def events(options: Namespace) -> int:
    """Show the events of a job."""
    for line in event_lines.lines(jobs.find(options.job, options.environ), follows=options.follow):
        write_text(f"{line}\n")
    return DONE

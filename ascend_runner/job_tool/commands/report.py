"""`ascend-job report`."""

from __future__ import annotations

from argparse import Namespace

from ascend_runner.job_tool.reports import html_reports
from ascend_runner.tool import DONE, write_text


def report(options: Namespace) -> int:
    """Write the report of a job as an HTML file; of several nodes, also name the one that caused a failure."""
    write_text(f"{html_reports.make(options)}\n")
    return DONE

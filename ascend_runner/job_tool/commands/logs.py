"""`ascend-job logs`."""

from __future__ import annotations

import time
from argparse import Namespace
from typing import Final

from ascend_runner.host import terminal
from ascend_runner.job_tool.job import jobs
from ascend_runner.job_tool.logs import log_viewer
from ascend_runner.job_tool.logs.log_lines import EVERYTHING, LineFilter
from ascend_runner.tool import DONE

DEFAULT_LINES: Final = 10  # lines of each rank's log, as for tail(1)


def show_logs(options: Namespace) -> int:
    """Show the logs of a job."""
    lines = options.lines
    if lines is None:
        lines = EVERYTHING if options.since is not None or options.grep else DEFAULT_LINES
    query = log_viewer.Query(
        ranks=options.ranks,
        since=None if options.since is None else time.time() - options.since,
        line_filter=LineFilter(lines=lines, pattern=options.grep),
        follows=options.follow,
        has_colors=terminal.has_colors(terminal.STDOUT, options.environ),
    )
    job = jobs.find(options.job, options.environ, may_be_any_part=True)
    log_viewer.LogViewer(jobs.parts(job), query, options.tell).run()
    return DONE

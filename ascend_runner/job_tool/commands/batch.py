"""`ascend-job batch`."""

from __future__ import annotations

from argparse import Namespace

from ascend_runner.job_tool.batch import batch as batches
from ascend_runner.tool import write_text


def batch(options: Namespace) -> int:
    """Run the commands of a file one after the other."""
    table, exit_status = batches.run(options.file, options.environ, options.tell, keeps_going=options.keep_going)
    write_text(table)
    return exit_status

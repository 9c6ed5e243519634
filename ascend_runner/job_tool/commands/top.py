"""`ascend-job top`."""

from __future__ import annotations

from argparse import Namespace

from ascend_runner.host import terminal
from ascend_runner.job_tool.commands import status
from ascend_runner.job_tool.commands.extras import MissingExtraError
from ascend_runner.job_tool.job import jobs
from ascend_runner.tool import DONE


def top(options: Namespace) -> int:
    """Show one job until the user quits; without a terminal, show it once."""
    if not terminal.can_move_cursor(options.environ):
        options.json = False
        return status.status(options)
    try:
        from ascend_runner.job_tool.live import show  # noqa: PLC0415  textual, an extra
    except ModuleNotFoundError as error:
        raise MissingExtraError("top", error) from None
    show.show(jobs.find(options.job, options.environ, may_be_any_part=True), options.environ)
    return DONE

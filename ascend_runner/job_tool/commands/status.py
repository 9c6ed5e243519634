"""`ascend-job status` and `list`."""

from __future__ import annotations

import json
import time
from argparse import Namespace
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import attrs

from ascend_runner.host import terminal
from ascend_runner.job_tool.job import jobs, snapshot
from ascend_runner.job_tool.job.snapshot import Condition, Snapshot
from ascend_runner.job_tool.status import screens
from ascend_runner.members import Members
from ascend_runner.services import control
from ascend_runner.tool import DONE, write_text

STATUSES: Final = {
    Condition.RUNNING: 0,
    Condition.SUCCEEDED: 3,
    Condition.UNKNOWN: 4,
    Condition.ENDED_BADLY: 5,
    Condition.RUNNER_KILLED: 5,
}
WORST: Final = (
    Condition.ENDED_BADLY,
    Condition.RUNNER_KILLED,
    Condition.RUNNING,
    Condition.UNKNOWN,
    Condition.SUCCEEDED,
)


def status(options: Namespace) -> int:
    """Show one job, or a line for each of its nodes if the log directory of several is named."""
    nodes = jobs.find_parts(options.job, options.environ)
    if len(nodes) > 1:
        return _status_of_nodes([snapshot.take(node) for node in nodes], options)
    seen = snapshot.take(nodes[0])
    seen = attrs.evolve(seen, limit_at=_limit_at(seen))
    if options.json:
        write_text(json.dumps(screens.document(seen), indent=1) + "\n")
    else:
        write_text(screens.status(seen, time.time(), _width()))
    return STATUSES[seen.condition]


def _status_of_nodes(seen: Sequence[Snapshot], options: Namespace) -> int:
    """Show the nodes of a job. It has ended badly if one of them has, and is running if one of the others is."""
    _show_list(seen, options)
    found = {one.condition for one in seen}
    return next(STATUSES[condition] for condition in WORST if condition in found)


def _limit_at(seen: Snapshot) -> float | None:
    """Return the end of a job's time limit in seconds since the epoch, or None if there is none or it is unknown.

    Without a board, the runner is asked for it, which wakes it.
    """
    if seen.board:
        return seen.board.limit_at
    if not seen.is_alive:
        return None
    with suppress(OSError, ValueError):
        return Members(control.ask(seen.job.run_folder, {"request": "status"})).seconds("limit_at")
    return None


def _width() -> int | None:
    """Return the width of the terminal, or None if the output is a file, which has everything."""
    return terminal.columns(terminal.STDOUT) or None


def list_jobs(options: Namespace) -> int:
    """List the jobs of this machine, those that are running first."""
    seen = [snapshot.take(job) for job in jobs.all_jobs(options.environ)]
    seen.sort(key=lambda one: one.condition is not Condition.RUNNING)
    _show_list(seen, options)
    return DONE


def _show_list(seen: Sequence[Snapshot], options: Namespace) -> None:
    if options.json:
        write_text(json.dumps([screens.document(one) for one in seen], indent=1) + "\n")
    else:
        write_text(screens.jobs(seen, time.time(), _width()) or "no jobs\n")

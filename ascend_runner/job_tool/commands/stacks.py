"""`ascend-job stacks`."""

from __future__ import annotations

import os
from argparse import Namespace

from ascend_runner.errors import SettingsError
from ascend_runner.host import executables, terminal
from ascend_runner.job_tool.commands import running
from ascend_runner.job_tool.commands.running import RefusedError
from ascend_runner.job_tool.job import snapshot
from ascend_runner.job_tool.processes import rank_stacks
from ascend_runner.text import duration, rank_list
from ascend_runner.tool import DONE, write_text


def stacks(options: Namespace) -> int:
    """Show where the ranks of a job are in their programs."""
    job = running.find(options)
    seen = snapshot.take(job)
    found = rank_stacks.leaders(seen)
    wanted = options.ranks or found.keys()
    known = seen.ranks.keys()
    missing = wanted - found.keys()
    if unknown := missing - known if known else ():
        raise SettingsError(f"{job.name} has no {rank_list(unknown)} on this node; it has {rank_list(known)}")
    if not found:
        raise RefusedError(f"no rank of {job.name} is running")
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        raise RefusedError(f"{rank_list(missing)} of {job.name} {verb} not running")
    seconds = rank_stacks.COMPARED if options.seconds is None else options.seconds
    pids = {rank_id: found[rank_id] for rank_id in wanted}
    py_spy = executables.find_py_spy(options.environ.get("PATH", os.defpath))
    if py_spy and seconds and terminal.columns(terminal.STDERR):
        options.tell(f"comparing the stacks for up to {duration(seconds)} ...")
    write_text(rank_stacks.text(pids, py_spy, seconds) + "\n")
    return DONE

"""Runs `ascend-job top` on this terminal."""

from __future__ import annotations

import itertools
import os
from collections.abc import Collection, Mapping
from contextlib import closing, suppress
from typing import Final

from ascend_runner.job_tool.job.jobs import FoundJob
from ascend_runner.job_tool.live.app import Actions, Top
from ascend_runner.job_tool.live.observer import Observer
from ascend_runner.job_tool.live.pager import Pager
from ascend_runner.job_tool.live.view import JobView

LOWEST_PRIORITY: Final = 19  # nice(1): the ranks need the processor more


def show(job: FoundJob, environ: Mapping[str, str]) -> None:
    """Show a job until the user quits. The first frame is drawn at the usual priority, so that it appears soon."""
    looks = itertools.count()
    with closing(Observer(job, environ)) as observer:

        def look(shown: Collection[int]) -> JobView:
            if next(looks) == 1:
                _lower_priority()
            return observer.look(shown)

        pager = Pager(job=job, environ=environ, log_path=observer.log_path)
        Top(look, Actions(log=pager.log, stacks=pager.stacks, events=pager.events)).run()


def _lower_priority() -> None:
    """Lower the priority of all threads: setpriority(2) changes that of one."""
    for tid in os.listdir("/proc/self/task"):
        with suppress(ProcessLookupError):  # it has just ended
            os.setpriority(os.PRIO_PROCESS, int(tid), LOWEST_PRIORITY)

"""Runs `ascend-job top` on this terminal."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import closing
from typing import Final

from ascend_runner.job_tool.jobs import FoundJob
from ascend_runner.job_tool.live.app import Actions, Top
from ascend_runner.job_tool.live.observer import Observer
from ascend_runner.job_tool.live.outside import Outside

LOWEST_PRIORITY: Final = 19  # nice(1): the ranks need the processor more


def show(job: FoundJob, environ: Mapping[str, str]) -> None:
    """Show a job until the user quits."""
    os.setpriority(os.PRIO_PROCESS, 0, LOWEST_PRIORITY)
    with closing(Observer(job, environ)) as observer:
        outside = Outside(job=job, environ=environ, log_path=observer.log_path)
        Top(observer.look, Actions(log=outside.log, stacks=outside.stacks, events=outside.events)).run()

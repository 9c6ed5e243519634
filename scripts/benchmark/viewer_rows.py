"""The rows about `ascend-job`: how fast it shows a job, and what that costs the job."""

from __future__ import annotations

import contextlib
import functools
import shutil
import statistics
import time
from collections.abc import Iterator, Sequence
from os.path import dirname, join
from typing import Final

from ascend_runner.host import memory
from ascend_runner.services.run_folder import RUN_DIR_VARIABLE
from benchmark import measure
from benchmark.launchers import OURS, PROGRAM
from benchmark.lines import Lines
from benchmark.measure import folder
from benchmark.rows import IDLE_SECONDS, LINES_EACH, RANKS
from benchmark.table import Row, count, seconds

VIEWER: Final = join(dirname(PROGRAM), "ascend-job")
RUNS: Final = 11
LOOKS: Final = 5
VIEWERS: Final = 3
BOARD_RUNS: Final = 21


def status() -> Iterator[Row]:
    """Time `ascend-job status`, and count how often looking at a job wakes its runner."""
    with measure.sleeping(OURS, RANKS) as pids:
        samples = [measure.seconds_of([VIEWER, "status", str(pids[0])]) for _ in range(RUNS)]
        before = sum(map(measure.context_switches, pids))
        for _ in range(LOOKS):
            measure.seconds_of([VIEWER, "list"])
            measure.seconds_of([VIEWER, "events", str(pids[0])])
        woken = sum(map(measure.context_switches, pids)) - before

    yield Row(f"ascend-job status of {RANKS} ranks, start to exit", statistics.median(samples), seconds, reach=0.3)
    yield Row(f"  times that list and events, {LOOKS} times each, wake the job", woken, count, reach=0)


def watched() -> Iterator[Row]:
    """Count the system calls of a job whose ranks sleep, while others look at it again and again."""
    with contextlib.ExitStack() as stack:
        pids = stack.enter_context(measure.sleeping(OURS, RANKS))
        time.sleep(3)  # until it is idle
        look = f"while {VIEWER} status {pids[0]}; do sleep 1; done"
        for _ in range(VIEWERS):
            stack.enter_context(measure.started(["sh", "-c", look]))
        calls = measure.system_calls(pids, IDLE_SECONDS)

    what = f"{VIEWERS} x ascend-job status for {IDLE_SECONDS:g} s: system calls of the job"
    yield Row(what, calls, count, reach=0)


def board() -> Iterator[Row]:
    """Time jobs with and without a board: ranks that do nothing, and much output to files in memory."""
    with folder(in_memory=True) as path, folder() as disk:
        if memory.is_tmpfs(disk) or not memory.is_tmpfs(path):
            return
        lines = Lines(path, RANKS, LINES_EACH)
        commands = {"start": ("true",), "output": ("sh", "-c", f"exec cat {lines.path}-$RANK")}

        def run(command: Sequence[str], run_dir: str) -> float:
            shutil.rmtree(f"{path}/log", ignore_errors=True)
            variable = f"{RUN_DIR_VARIABLE}={run_dir}"
            return measure.seconds_of(["env", variable, *OURS.command(f"{path}/log", *command, ranks=RANKS)])

        medians = {
            name: measure.alternate(
                {place: (BOARD_RUNS, functools.partial(run, command, place)) for place in (path, disk)}
            )
            for name, command in commands.items()
        }
    start, output = medians["start"], medians["output"]
    yield Row("what a board adds: start to exit", start[path] - start[disk], seconds, reach=0.001)
    yield Row("  8 ranks write 20 MB each", output[path], seconds, "without", output[disk], 1.01, is_ratio=True)


ROWS: Final = (status, watched, board)

"""The rows about `ascend-job`: how fast it shows a job, what that costs the runner, and how soon a limit is obeyed."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from os.path import dirname, join
from typing import Final

from benchmark import measure
from benchmark.fault_rows import Watch
from benchmark.launchers import OURS, PROGRAM
from benchmark.measure import folder
from benchmark.rows import RANKS
from benchmark.table import Row, count, seconds

VIEWER: Final = join(dirname(PROGRAM), "ascend-job")
RUNS: Final = 11
LOOKS: Final = 5


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


def limit() -> Iterator[Row]:
    """Time from a time limit that has passed, given by `ascend-job limit`, to the end of the last rank."""

    def run() -> float:
        with folder() as path:
            watch = Watch(path)
            with measure.started(OURS.command(f"{path}/log", *watch.rank("echo ready;"), ranks=RANKS)) as popen:
                watch.await_ready(RANKS)
                start = time.monotonic()
                measure.seconds_of([VIEWER, "limit", str(popen.pid), "0"])
                ended = watch.await_end() - start
                popen.wait()
        return ended

    samples = [run() for _ in range(LOOKS)]
    yield Row("time limit changed to the past, all ranks gone", statistics.median(samples), seconds, reach=2.0)
    yield Row(f"  the slowest of {LOOKS}", max(samples), seconds, reach=2.0)


ROWS: Final = (status, limit)

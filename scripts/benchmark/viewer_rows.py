"""The rows about `ascend-job`: how fast it shows a job, and what that costs the job."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import statistics
import subprocess
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from os.path import dirname, join
from typing import Final
from urllib.parse import urlsplit

from ascend_runner.board.board import opened
from ascend_runner.board.layout import NAME
from ascend_runner.node import memory
from ascend_runner.plan.spec import Files, JobSpec, RankSpec
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
START_RUNS: Final = 1001


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


def metrics() -> Iterator[Row]:
    """Time a scrape of what `ascend-job metrics --listen` serves."""
    with measure.sleeping(OURS, RANKS) as pids:
        command = [VIEWER, "metrics", str(pids[0]), "--listen", "0"]
        with measure.started(command, stderr=subprocess.PIPE) as popen:
            assert popen.stderr  # noqa: S101  mypy must know
            url = urlsplit(popen.stderr.readline().decode().split()[-1])
            samples = [_seconds_of_scrape(url.netloc, url.path) for _ in range(RUNS)]
    yield Row(f"ascend-job metrics --listen, a scrape of {RANKS} ranks", statistics.median(samples), seconds, reach=0.2)


def _seconds_of_scrape(server: str, path: str) -> float:
    start = time.monotonic()
    with contextlib.closing(HTTPConnection(server, timeout=measure.LIMIT)) as connection:
        connection.request("GET", path)
        connection.getresponse().read()
    return time.monotonic() - start


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
    """Time how a board begins and ends, and jobs with and without one: much output to files in memory."""
    with folder(in_memory=True) as path, folder() as disk:
        if memory.is_tmpfs(disk) or not memory.is_tmpfs(path):
            return
        lines = Lines(path, RANKS, LINES_EACH)
        command = ("sh", "-c", f"exec cat {lines.path}-$RANK")

        def run(run_dir: str) -> float:
            shutil.rmtree(f"{path}/log", ignore_errors=True)
            variable = f"{RUN_DIR_VARIABLE}={run_dir}"
            return measure.seconds_of(["env", variable, *OURS.command(f"{path}/log", *command, ranks=RANKS)])

        starts = measure.alternate({place: (START_RUNS, functools.partial(_begin, place)) for place in (path, disk)})
        output = measure.alternate({place: (BOARD_RUNS, functools.partial(run, place)) for place in (path, disk)})
    # In a whole start, which takes hundreds of times as long, the difference would be lost.
    yield Row(f"what a board of {RANKS} ranks adds to a start", starts[path] - starts[disk], seconds, reach=0.001)
    yield Row("  8 ranks write 20 MB each", output[path], seconds, "without", output[disk], 1.01, is_ratio=True)


def _begin(place: str) -> float:
    """Time how a board begins and goes again; on a disk, it is only in the memory of this process."""
    ranks = tuple(
        RankSpec(rank_id=rank, local_rank=rank, executable="", argv=(), env={}, cwd="", log_path="", prefix=None)
        for rank in range(RANKS)
    )
    job = JobSpec(
        job_id="job",
        ranks=ranks,
        rank_size=RANKS,
        server_id="",
        pod_name="",
        files=Files(log_dir=""),
    )
    start = time.perf_counter()
    opened(place, job, lambda: None)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(join(place, NAME))
    return time.perf_counter() - start


ROWS: Final = (status, metrics, watched, board)

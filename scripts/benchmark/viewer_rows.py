"""The rows about `ascend-job`: how fast it shows a job, and what that costs the job."""

from __future__ import annotations

import contextlib
import functools
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from os.path import dirname, join
from typing import Final
from urllib.parse import urlsplit

from ascend_runner import activity
from ascend_runner.plan.spec import Files, JobSpec, RankSpec
from ascend_runner.report.recorder import Recorder
from ascend_runner.services import live
from ascend_runner.services.live import Live
from ascend_runner.supervision.events import Spawned
from benchmark import measure
from benchmark.launchers import OURS, PROGRAM
from benchmark.measure import folder
from benchmark.rows import IDLE_SECONDS, RANKS
from benchmark.table import Row, count, seconds

VIEWER: Final = join(dirname(PROGRAM), "ascend-job")
PYTHON: Final = (sys.executable, "-c", "import attrs, orjson")  # 50 ms: `status` is to take 0.15 s
RUNS: Final = 11
LOOKS: Final = 5
VIEWERS: Final = 3
MOST_RANKS: Final = 1024


def status() -> Iterator[Row]:
    """Time `ascend-job status`, and count how often looking at a job wakes its runner."""
    with measure.sleeping(OURS, RANKS) as pids:
        medians = measure.alternate(
            {
                name: (RUNS, functools.partial(measure.seconds_of, command))
                for name, command in (("status", [VIEWER, "status", str(pids[0])]), ("python", PYTHON))
            }
        )
        time.sleep(3)  # until the job is idle
        before = sum(map(measure.context_switches, pids))
        for _ in range(LOOKS):
            measure.seconds_of([VIEWER, "list"])
            measure.seconds_of([VIEWER, "events", str(pids[0])])
        woken = sum(map(measure.context_switches, pids)) - before

    what = f"ascend-job status of {RANKS} ranks, start to exit"
    yield Row(what, medians["status"], seconds, "import attrs, orjson", medians["python"], 3.0, is_ratio=True)
    yield Row(f"  times that list and events, {LOOKS} times each, wake the job", woken, count, reach=0)


def page() -> Iterator[Row]:
    """Time the end of a job that fails, from the cause on the screen to the exit of the runner, with and without page.

    It fails late enough to have loaded ahead what a failure needs.
    """
    fails = "i=0; while [ $i -lt 500 ]; do i=$((i + 1)); echo step $i loss 2.0; done; sleep 1; exit $RANK"

    def run(html: str) -> float:
        with folder() as path:
            command = [*OURS.words(RANKS, path), "--html", html, "sh", "-c", fails]
            with measure.started(command, stderr=subprocess.PIPE) as popen:
                assert popen.stderr  # noqa: S101  mypy must know
                next(line for line in popen.stderr if b" ERROR " in line)
                start = time.monotonic()
                popen.stderr.read()
                popen.wait()
                return time.monotonic() - start

    medians = measure.alternate({html: (RUNS, functools.partial(run, html)) for html in ("failure", "never")})
    what = f"{RANKS} ranks fail: the cause on the screen, to the runner gone"
    yield Row(what, medians["failure"], seconds, "without the page", medians["never"], 0.5)


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
    yield Row(what, calls, count)


def answer() -> Iterator[Row]:
    """Time how a runner answers a viewer, the first time aside, in which what seldom changes is encoded."""
    ranks = tuple(
        RankSpec(rank_id=rank, local_rank=rank, executable="", argv=(), env={}, cwd="", log_path="", prefix=None)
        for rank in range(MOST_RANKS)
    )
    job = JobSpec(
        job_id="job",
        ranks=ranks,
        rank_size=MOST_RANKS,
        server_id="",
        pod_name="",
        files=Files(log_dir=""),
    )
    recorder = Recorder(job)
    shown = Live(job, recorder, lambda: None)
    for rank in range(MOST_RANKS):
        recorder.observe(Spawned(rank, 1 + rank), time.monotonic())
        for cell in range(activity.CELLS):
            shown.activities[rank].add(b"x" * 4096, time.monotonic() + cell * activity.FIRST_CELL)
    samples = []
    for _ in range(RUNS):
        start = time.perf_counter()
        os.close(live.sealed(shown.encode()))
        samples.append(time.perf_counter() - start)
    what = f"the runner's answer to a viewer, {MOST_RANKS} ranks"
    yield Row(what, statistics.median(samples[1:]), seconds, reach=0.01)


ROWS: Final = (status, page, metrics, watched, answer)

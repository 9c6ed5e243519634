"""The rows about `ascend-job top`: when its first frame is drawn, and what it and the job cost while it is open."""

from __future__ import annotations

import fcntl
import functools
import glob
import json
import os
import pty
import re
import select
import statistics
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from benchmark import measure
from benchmark.launchers import OURS
from benchmark.measure import folder
from benchmark.rows import RANKS
from benchmark.table import Row, seconds
from benchmark.viewer_rows import VIEWER

SECONDS: Final = 20.0  # of each measurement
STARTS: Final = 5  # of which the fastest counts
MANY: Final = 1024  # ranks
TURNS: Final = 8  # of a training with and without `top`
TURN: Final = 10.0  # seconds
TRAIN: Final = """
import itertools, time
for step in itertools.count():
    began = time.monotonic()
    sum(number * number for number in range(500_000))
    print(f"iteration {step} elapsed time per iteration (ms): {1000 * (time.monotonic() - began):.3f}", flush=True)
"""
WRITE: Final = """
import itertools, sys, time
for step in itertools.count():
    for rank in range(int(sys.argv[2])):
        with open(f"{sys.argv[1]}/many-proc-rank-{rank}-device-{rank % 8}.txt", "a") as file:
            file.write(f" iteration {step}/ 5000 | elapsed time per iteration (ms): 1000.0 | lm loss: 2.0E+00 |\\n")
    time.sleep(1)
"""


def top() -> Iterator[Row]:
    """Time the first frame of `ascend-job top`, and its CPU: with ranks of this node, and with the logs of many."""
    imports = [sys.executable, "-c", "import textual.app, textual.widget"]
    with measure.sleeping(OURS, RANKS) as pids:
        command = [VIEWER, "top", str(pids[0])]
        textual = min(measure.seconds_of(imports) for _ in range(STARTS))
        first = min(_on_terminal(command, 0.0)[0] for _ in range(STARTS))
        _first, share = _on_terminal(command, SECONDS)
    yield Row("ascend-job top, start to first frame without the import of textual", first - textual, seconds, reach=0.5)
    yield Row(f"  CPU for {RANKS} ranks, seconds of each second", share, seconds, reach=0.03)
    with folder() as path:
        _write_logs(path)
        with measure.started([sys.executable, "-c", WRITE, path, str(MANY)]):
            first = min(_on_terminal([VIEWER, "top", path], 0.0)[0] for _ in range(STARTS))
            _first, share = _on_terminal([VIEWER, "top", path], SECONDS)
    yield Row(f"  first frame for {MANY} ranks of other nodes, likewise", first - textual, seconds, reach=0.5)
    yield Row(f"  CPU for {MANY} ranks of other nodes, whose logs grow", share, seconds, reach=0.1)


def training_beside_top() -> Iterator[Row]:
    """Compare the steps of ranks that use all cores with `ascend-job top` open and without, in turns.

    Steps count from the first frame on: to open `top` once is not what it costs to leave it open.
    """
    steps = measure.alternate(
        {
            "with": (TURNS, functools.partial(_step_seconds, is_watched=True)),
            "without": (TURNS, functools.partial(_step_seconds, is_watched=False)),
        }
    )
    what = f"a step of {RANKS} ranks on all cores beside ascend-job top"
    yield Row(what, steps["with"], seconds, "without", steps["without"], 1.01, is_ratio=True)


def _step_seconds(*, is_watched: bool) -> float:
    """Return the mean time of the steps of a turn, which begins with the first steps or the first frame."""
    with folder() as path:
        command = OURS.command(path, sys.executable, "-S", "-c", TRAIN, ranks=RANKS)
        with measure.started(command) as popen:
            while sum(map(bool, _steps(path).values())) < RANKS:
                time.sleep(0.05)
            begins: dict[str, int] = {}

            def begin() -> None:
                begins.update({log: len(found) for log, found in _steps(path).items()})

            if is_watched:
                _on_terminal([VIEWER, "top", str(popen.pid)], TURN, begin)
            else:
                begin()
                time.sleep(TURN)
            return statistics.mean(step for log, found in _steps(path).items() for step in found[begins[log] :])


def _steps(path: str) -> dict[str, list[float]]:
    """Return the seconds of the steps in each log."""
    logs = glob.glob(f"{path}/*-proc-rank-*.txt")
    return {log: [float(ms) / 1000 for ms in re.findall(rb"\(ms\): ([\d.]+)\n", measure.read(log))] for log in logs}


def _on_terminal(
    command: Sequence[str], lasting: float, on_first_frame: Callable[[], None] = lambda: None
) -> tuple[float, float]:
    """Return the seconds until a program with a screen has drawn ranks, and its share of a core from then on."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 140, 0, 0))
    began = time.monotonic()
    popen = subprocess.Popen(
        command, stdin=slave, stdout=slave, stderr=slave, env={**os.environ, "TERM": "xterm"}, start_new_session=True
    )
    os.close(slave)
    try:
        shown = b""
        while b" ranks" not in shown:
            shown += os.read(master, 1 << 16)
        first = time.monotonic() - began
        on_first_frame()
        before, since = measure.process_seconds(popen.pid), time.monotonic()
        while time.monotonic() - since < lasting:
            if select.select([master], [], [], 1.0)[0]:
                os.read(master, 1 << 16)
        share = (measure.process_seconds(popen.pid) - before) / max(lasting, time.monotonic() - since)
    finally:
        popen.kill()
        popen.wait()
        os.close(master)
    return first, share


def _write_logs(path: str) -> None:
    """Write what another machine leaves of a job in a directory that is shared."""
    names = {"job_id": "many", "part": "", "host": "another", "pid_namespace": "", "run_folder": f"{path}/none"}
    numbers = {"pid": 1, "started": 1, "runner_pid": 2, "began": time.time()}
    ranks = [{"rank_id": rank_id, "local_rank": rank_id % 8, "state": "running"} for rank_id in range(MANY)]
    for name, document in (
        ("run", {**names, **numbers, "log_dir": path, "command": ["train"]}),
        ("report", {"state": "running", "ranks": ranks}),
    ):
        with open(f"{path}/many-{name}.json", "w", encoding="utf-8") as file:
            json.dump(document, file)


ROWS: Final = (top, training_beside_top)

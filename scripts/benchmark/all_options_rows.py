"""The row about the CPU time of a job that uses all options of the life of a job."""

from __future__ import annotations

import os
import signal
import statistics
import sys
import time
from collections.abc import Iterator
from os.path import abspath, dirname, join
from typing import Final

from ascend_runner.guardian import process_tree
from ascend_runner.settings.parsing import HOOKS
from benchmark import measure
from benchmark.inspection_rows import make_node
from benchmark.launchers import OURS_WITH_TABLE, TABLE_RANKS
from benchmark.measure import folder
from benchmark.table import Row, count, percent

WARM_UP: Final = 10.0  # seconds: until the modules for a failure are loaded, and the first inspection is over
SECONDS: Final = 40.0
RUNS: Final = 3
TRAINING: Final = join(dirname(abspath(__file__)), "workers", "training.py")


def all_options() -> Iterator[Row]:
    """Measure the CPU time of all processes but the ranks, which beat and print once a second and save once.

    The ranks start one after the other, so their lines come at different times. Those of a training, whose ranks wait
    for each other, come together and cost less. The median of several runs counts, because CPU time includes the time
    in which the host of a virtual machine does something else.
    """
    samples, saved = zip(*(_run() for _ in range(RUNS)))
    yield Row(f"{TABLE_RANKS} ranks, all options: CPU time", statistics.median(samples), percent, reach=0.005)
    yield Row(f"  the highest of {RUNS}", max(samples), percent)
    yield Row("  ranks that have saved on request, each time", min(saved), count)


def _run() -> tuple[float, int]:
    """Return the CPU time as a part of a core, and the number of ranks that have saved."""
    with folder() as path:
        make_node(path)
        os.mkdir(f"{path}/data")
        os.mkdir(f"{path}/checkpoints")
        command = OURS_WITH_TABLE.command(f"{path}/log", *_options(path), sys.executable, TRAINING, ranks=TABLE_RANKS)
        with measure.started(["env", f"PATH={path}/bin:{os.environ['PATH']}", *command]) as popen:
            time.sleep(WARM_UP)
            before = _cpu_seconds(popen.pid)
            time.sleep(SECONDS / 2)
            popen.send_signal(signal.SIGUSR1)
            time.sleep(SECONDS / 2)
            used = _cpu_seconds(popen.pid) - before
            events = measure.read(f"{path}/log/job-events.jsonl")
    return used / SECONDS, events.count(b"by ranks 0-7 in ") * TABLE_RANKS


def _options(path: str) -> tuple[str, ...]:
    hooks = [word for event in HOOKS for word in ("--hook", f"{event}=true")]
    return (
        *("--job-name", "job", "--workdir", f"{path}/checkpoints"),
        *("--nnodes", "1", "--min-nodes", "1", "--linger", "30"),
        *("--precheck", "warn", "--inspect", "warn"),
        *("--perf-drop", "0.3", "--perf-threshold", "0.8", "--perf-action", "restart"),
        *("--perf-pattern", r"\[train\] step (?P<step>\d+) hw (?P<hardware>[\d.]+) e2e (?P<e2e>[\d.]+)"),
        *("--hang-timeout", "auto", "--hang-action", "restart", "--checkpoint-grace", "60", "--time-limit", "1h"),
        *("--max-restarts", "9", "--restart-on", "75", "--no-restart-on", "3"),
        *("--restart-delay", "0", "--exit-verdict", "--checkpoint-dir", f"{path}/checkpoints", "--hold", "1h"),
        *("--stage", f"{path}/data:{path}/staged", *hooks),
    )


def _cpu_seconds(pid: int) -> float:
    """Return the CPU time of guardian, runner and the processes that help it, and of those that have ended."""
    helpers = [found.pid for found in process_tree.descendants(pid) if not _is_of_a_rank(found.pid)]
    return sum(measure.process_seconds(own) + measure.reaped_seconds(own) for own in (pid, *helpers))


def _is_of_a_rank(pid: int) -> bool:
    return b"\0RANK_ID=" in measure.read(f"/proc/{pid}/environ")


ROWS: Final = (all_options,)

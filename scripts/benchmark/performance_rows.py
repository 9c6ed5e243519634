"""The rows about slow training: how soon it is reported, and what reading the steps costs the output."""

from __future__ import annotations

import functools
import os
import shutil
import statistics
import time
from collections.abc import Iterator
from typing import Final

from benchmark import measure
from benchmark.launchers import OURS
from benchmark.lines import Lines
from benchmark.measure import folder
from benchmark.rows import LINES_EACH, RANKS
from benchmark.table import Row, count, percent, seconds

RUNS: Final = 5
PAIRS: Final = 15  # of runs with and without a pattern
PATTERN: Final = r"\[train\] (?P<step>\d+) hw (?P<hardware>[\d.]+) e2e (?P<e2e>[\d.]+)"
OPTIONS: Final = ("--perf-threshold", "0.8", "--perf-drop", "0.3", f"--perf-pattern={PATTERN}")
GUIDE: Final = "this iteration hardware time is 3201.521 and e2e time is 3317.794921875 ms."


def slow_training() -> Iterator[Row]:
    """Time from the third line above the threshold until the warning; a built-in format, and a pattern."""
    for what, line, option in (
        ("built-in format", GUIDE, "--perf-threshold=0.8"),
        ("pattern", "hw 9 e2e 10", r"--perf-pattern=hw (?P<hardware>\d+) e2e (?P<e2e>\d+)"),
    ):
        samples = [_seconds_to_warning(line, option) for _ in range(RUNS)]
        yield Row(f"third slow step to the warning, {what}", statistics.median(samples), seconds, reach=1.0)
        yield Row(f"  the slowest of {RUNS}", max(samples), seconds, reach=1.0)


def _seconds_to_warning(line: str, option: str) -> float:
    with folder() as path:
        script = f"sleep 1; echo '{line}'; echo '{line}'; date +%s%N >{path}/third; echo '{line}'; sleep 2"
        words = ("--perf-threshold=0.8", option, "sh", "-c", script)
        with open(f"{path}/screen", "wb") as screen:
            command = OURS.command(f"{path}/log", *words, ranks=1)
            with measure.started(command, stdout=screen.fileno(), stderr=screen.fileno()) as popen:
                while b"slow training" not in measure.read(f"{path}/screen"):
                    if popen.poll() is not None:
                        raise RuntimeError("the training was not found slow")
                    time.sleep(0.002)
                return (time.time_ns() - int(measure.read(f"{path}/third"))) / 1e9


def output_with_a_pattern() -> Iterator[Row]:
    """Measure the CPU time of much output with and without reading steps, in turns, with the ranks and the console.

    What a start costs, with ranks that write nothing, is measured likewise and subtracted.
    """
    with folder(in_memory=True) as path:
        lines = Lines(path, RANKS, LINES_EACH)
        writing = ("sh", "-c", f"exec cat {lines.path}-$RANK")

        def run(*words: str) -> float:
            shutil.rmtree(f"{path}/log", ignore_errors=True)
            os.mkdir(f"{path}/log")
            before = measure.children_seconds()
            measure.seconds_with_console(OURS.command(f"{path}/log", *words, ranks=RANKS))
            return measure.children_seconds() - before

        medians = measure.alternate(
            {
                "without": (PAIRS, functools.partial(run, *writing)),
                "with": (PAIRS, functools.partial(run, *OPTIONS, *writing)),
                "start without": (PAIRS, functools.partial(run, "true")),
                "start with": (PAIRS, functools.partial(run, *OPTIONS, "true")),
            }
        )
        run(*OPTIONS, *writing)
        wrong = lines.count_wrong_in_logs(f"{path}/log")

    with_a_pattern, without = medians["with"] - medians["start with"], medians["without"] - medians["start without"]
    yield Row(f"{RANKS} ranks write 20 MB each, a pattern: CPU but the start", with_a_pattern, seconds)
    yield Row("  the same without", without, seconds)
    yield Row("  what the pattern costs", with_a_pattern / without - 1, percent, reach=0.03)
    yield Row("  what they cost at the start", medians["start with"] - medians["start without"], seconds)
    yield Row("  lines missing in files", wrong, count, reach=0)


ROWS: Final = (slow_training, output_with_a_pattern)

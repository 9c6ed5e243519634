"""The rows about a job of several nodes: how soon its pods fail, which its platform restarts, and its report."""

from __future__ import annotations

import contextlib
import shlex
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from benchmark import measure
from benchmark.launchers import OURS
from benchmark.measure import folder
from benchmark.table import Row, count, seconds
from benchmark.viewer_rows import VIEWER
from tests.helpers import node_folders

NODES: Final = 4
MANY_NODES: Final = 128
RUNS: Final = 5
LINGER: Final = 10.0  # seconds
IMPORT: Final = (sys.executable, "-c", "import a_module_that_nobody_has")


def ends(folder: str, commands: Sequence[Sequence[str]]) -> list[float]:
    """Start a node for each command; return how many seconds later each has ended, the first one first."""
    start, found = time.monotonic(), []
    with contextlib.ExitStack() as stack:
        waiting = []
        for node, command in enumerate(commands):
            place = ("--nnodes", str(NODES), "--node-rank", str(node), "--master-addr", "10.0.0.1")
            own = (*place, "--exit-verdict", "--linger", str(LINGER), *command)
            waiting.append(stack.enter_context(measure.started(OURS.command(f"{folder}/{node}", *own, ranks=1))))
        while waiting:
            time.sleep(0.005)
            over = [popen for popen in waiting if popen.poll() is not None]
            found += [time.monotonic() - start] * len(over)
            waiting = [popen for popen in waiting if popen not in over]
    return found


def nodes() -> Iterator[Row]:
    """Time four nodes whose script can start nowhere, and four of which one fails and the others lose it."""

    def fail(path: str) -> list[float]:
        faulty = f"echo 'ValueError: loss is nan'; touch {shlex.quote(path)}/failed; exit 1"
        victim = f"while ! [ -e {shlex.quote(path)}/failed ]; do sleep 0.05; done; echo 'EI0006: [PID: 7] x'; exit 1"
        return ends(path, [("sh", "-c", script) for script in (victim, faulty, victim, victim)])

    hopeless = []
    for _ in range(RUNS):
        with folder() as path:
            hopeless.append(ends(path, [IMPORT] * NODES))
    yield Row(f"{NODES} nodes, ImportError on all: the last has failed", _median(hopeless, -1), seconds, reach=2.0)
    yield Row("  the last after the first", statistics.median(found[-1] - found[0] for found in hopeless), seconds)
    with folder() as path:
        found = fail(path)
    in_time = sum(end - found[0] < LINGER / 2 for end in found)
    yield Row(f"{NODES} nodes, one faulty: failed within half of --linger", in_time, count, reach=1)
    yield Row("  the second after the first", found[1] - found[0], seconds)


def _median(samples: Sequence[Sequence[float]], index: int) -> float:
    return statistics.median(found[index] for found in samples)


def reports() -> Iterator[Row]:
    """Time the table of a large job, from the reports of all its nodes."""
    with folder() as path:
        node_folders.write(Path(path), MANY_NODES, culprit=170, missing=frozenset({77}))
        taken = statistics.median(measure.seconds_of([VIEWER, "report", path]) for _ in range(RUNS))
    yield Row(f"ascend-job report of {MANY_NODES} x {node_folders.EACH} ranks", taken, seconds, reach=2.0)


ROWS: Final = (nodes, reports)

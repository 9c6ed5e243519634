"""The rows about what surrounds the ranks: how fast a held job is released, and what a hook that hangs costs."""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import time
from collections.abc import Iterator
from typing import Final

from ascend_runner.guardian import process_tree
from benchmark import measure
from benchmark.launchers import OURS
from benchmark.measure import folder
from benchmark.rows import RANKS
from benchmark.table import Row, count, seconds

RUNS: Final = 11
IDLE_SECONDS: Final = 10.0
STATUS: Final = 7
HELD: Final = b"  end it "  # begins the last line on the screen of a held job
HOOK_LIMIT: Final = 60.0  # seconds for a hook
HANGING: Final = "trap '' TERM INT; setsid sleep 1000 & sleep 1000; sleep 1000"


@contextlib.contextmanager
def held() -> Iterator[subprocess.Popen[bytes]]:
    """Run a job that has failed and is held."""
    with folder() as path:
        words = ("--hold", "1h", "sh", "-c", f"[ $RANK = 0 ] && exit {STATUS}; exec sleep 1000")
        with measure.started(OURS.command(f"{path}/log", *words, ranks=RANKS), stderr=subprocess.PIPE) as popen:
            assert popen.stderr  # noqa: S101  mypy must know
            for line in popen.stderr:
                if line.startswith(HELD):
                    break
            yield popen
            popen.stderr.close()


def hold() -> Iterator[Row]:
    """Time from SIGTERM to a held job until it is gone, and count how often it is woken before."""
    samples, wrong = [], 0
    for _ in range(RUNS):
        with held() as popen:
            start = time.monotonic()
            popen.terminate()
            wrong += popen.wait() != STATUS
            samples.append(time.monotonic() - start)
    with held() as popen:
        pids = [popen.pid, *process_tree.children(popen.pid)]
        time.sleep(1)  # until both are idle
        before = sum(map(measure.context_switches, pids))
        time.sleep(IDLE_SECONDS)
        switches = sum(map(measure.context_switches, pids)) - before
    yield Row(
        f"SIGTERM to a held job: {RANKS} ranks ended before, the runner gone", statistics.median(samples), seconds
    )
    yield Row(f"  the slowest of {RUNS}", max(samples), seconds, reach=1.0)
    yield Row("  exit statuses that are not the failure's", wrong, count, reach=0)
    yield Row(f"  threads woken in {IDLE_SECONDS:g} s before that (context switches)", switches, count, reach=0)


def hook() -> Iterator[Row]:
    """Time a hook that ignores all signals and has started a process in another session, beyond its 60 seconds."""
    with folder() as path:
        words = ("--hook", f"before-exit=date +%s%N >{path}/began; {HANGING}", "true")
        # Not `started`, whose own limit is as long.
        command = OURS.command(f"{path}/log", *words, ranks=1)
        subprocess.run(command, env=measure.CLEAN, capture_output=True, check=False, timeout=4 * HOOK_LIMIT)
        taken = time.time() - int(measure.read(f"{path}/began")) / 1e9
    left = [found for found in process_tree.descendants(os.getpid()) if found.name == "sleep" and not found.is_zombie]
    yield Row(f"a hook that hangs: the runner gone beyond its {HOOK_LIMIT:g} s", taken - HOOK_LIMIT, seconds, reach=1.0)
    yield Row("  of its processes live on", len(left), count, reach=0)


ROWS: Final = (hold, hook)

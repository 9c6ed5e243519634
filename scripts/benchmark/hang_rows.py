"""The rows about hangs: how late one ends, and what heartbeats cost the runner and the ranks."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterator
from os.path import abspath, dirname, join
from typing import Final

from benchmark import measure
from benchmark.fault_rows import Watch
from benchmark.launchers import OURS
from benchmark.measure import folder
from benchmark.rows import RANKS
from benchmark.table import Row, count, percent, seconds

RUNS: Final = 5
LIMIT: Final = 5.0  # seconds of silence
SECONDS: Final = 10.0  # of heartbeats
# A rank with a flight recorder that does not read its pipe, and one that reads it and dumps nothing.
UNREAD_PIPE: Final = 'pipe="$TORCH_NCCL_DEBUG_INFO_PIPE_FILE$RANK.pipe"; mkfifo "$pipe" && exec 8<>"$pipe";'
NO_DUMP: Final = f"{UNREAD_PIPE} cat <&8 >/dev/null &"
BEATING: Final = join(dirname(abspath(__file__)), "workers", "beating.py")


def hang() -> Iterator[Row]:
    """Time from the moment at which ranks have been silent for --hang-timeout until the last of them is gone."""

    def run(script: str) -> float:
        with folder() as path:
            watch = Watch(path)
            words = ("--hang-timeout", str(LIMIT), *watch.rank(script))
            with measure.started(OURS.command(f"{path}/log", *words, ranks=RANKS)) as popen:
                watch.await_ready(RANKS)
                silent_since = time.monotonic()
                ended = watch.await_end() - silent_since - LIMIT
                popen.wait()
        return ended

    for what, script in (("that hang", ""), ("with an unread pipe", UNREAD_PIPE), ("that never dump", NO_DUMP)):
        samples = [run(f"{script} echo ready;") for _ in range(RUNS)]
        yield Row(
            f"{RANKS} ranks {what}: from the limit to the last exit", statistics.median(samples), seconds, reach=2.0
        )
        yield Row(f"  the slowest of {RUNS}", max(samples), seconds, reach=2.0)


def heartbeats() -> Iterator[Row]:
    """Measure the CPU time of guardian and runner while a rank shows 10,000 times a second that it is alive."""
    for how, what in (("library", "beat() 10,000 times a second"), ("datagrams", "10,000 datagrams a second")):
        with folder() as path:
            words = ("--hang-timeout", "60", sys.executable, BEATING, f"{path}/figures", str(SECONDS + 3), how)
            with measure.started(OURS.command(f"{path}/log", *words, ranks=1)) as popen:
                time.sleep(2)  # until the rank is busy
                before = measure.cpu_seconds(popen.pid)
                time.sleep(SECONDS)
                used = measure.cpu_seconds(popen.pid) - before
                popen.wait()
            calls, mean, longest = map(float, measure.read(f"{path}/figures").split())
        yield Row(f"{what}: CPU time of the runner", used / SECONDS, percent, reach=0.02)
        yield Row("  calls made in a second", round(calls / (SECONDS + 3)), count)
        yield Row("  a call, on average", mean, seconds)
        yield Row("  the longest call", longest, seconds)


ROWS: Final = (hang, heartbeats)

"""The rows about the time limit: how far from it the last rank is gone, also if it is changed while the job runs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Final

from benchmark import measure
from benchmark.fault_rows import Watch
from benchmark.launchers import OURS
from benchmark.measure import folder
from benchmark.rows import RANKS
from benchmark.table import Row, seconds

RUNS: Final = 3
LIMIT: Final = 15.0  # seconds from the start of the job, in which its ranks start on the slowest machine
CHANGES: Final = (("set at the start", LIMIT), ("brought forward while they run", 3600.0), ("extended", 10.0))
JOB: Final = "limit-of-the-benchmark"


def time_limit() -> Iterator[Row]:
    """Time from the moment of --time-limit until the last rank is gone. The ranks end as soon as they are asked."""

    def run(first: float) -> float:
        with folder() as path:
            watch = Watch(path)
            words = ("--time-limit", str(first), "--job-name", JOB, *watch.rank())
            start = time.monotonic()  # of the guardian, some 50 ms before that of the job
            with measure.started(OURS.command(f"{path}/log", *words, ranks=RANKS)) as popen:
                watch.await_ready(RANKS)
                if first != LIMIT:
                    change = (sys.executable, "-m", "ascend_runner.tools.job", "limit", JOB, f"{LIMIT:g}s")
                    subprocess.run(change, check=True, stdout=subprocess.DEVNULL, env=os.environ)
                ended = watch.await_end() - start - LIMIT
                popen.wait()
        return ended

    for what, first in CHANGES:
        samples = [run(first) for _ in range(RUNS)]
        yield Row(f"{RANKS} ranks gone after their time limit, {what}", max(samples), seconds, reach=2.0)
        yield Row("  the earliest", min(samples), seconds)


ROWS: Final = (time_limit,)

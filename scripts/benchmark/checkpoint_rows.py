"""The rows about checkpoints: how many requests are not answered, or answered at different steps."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import attrs

from benchmark import measure
from benchmark.launchers import OURS
from benchmark.measure import folder
from benchmark.table import Row, count

JOBS: Final = 100
REQUESTS: Final = 1000
RANKS: Final = 8  # those that tests/workers/asked.py expects
NO_COPY: Final = 0.02  # seconds after which another request to asked.py is a new one
HERE: Final = Path(__file__).resolve().parent
ASKED: Final = HERE.parents[1] / "tests" / "workers" / "asked.py"


def requested_checkpoints() -> Iterator[Row]:
    """Count the jobs that do not save when they are asked, although data-loading workers do not handle the signal."""
    lost = JOBS - sum(_saves() for _ in range(JOBS))
    yield Row(f"{JOBS} jobs with spawned data-loading workers: not saved", lost, count, reach=0)


def _saves() -> bool:
    """Whether both ranks of a job save after the same step, and end well."""
    with folder() as name:
        path = Path(name)
        command = OURS.command(f"{name}/log", sys.executable, f"{HERE}/workers/loading.py", name, ranks=2)
        with measure.started(command) as popen:
            while len([*path.glob("ready-*")]) < 2 and popen.poll() is None:
                time.sleep(0.01)
            popen.send_signal(signal.SIGUSR1)
            status = popen.wait()
        steps = [saved.read_text() for saved in path.glob("saved-*")]
    return status == 0 and len(steps) == 2 and len(set(steps)) == 1


def same_step() -> Iterator[Row]:
    """Count the steps after which only some of the ranks save; they are uneven, and signalled one after the other."""
    with folder(in_memory=True) as path:
        measure.write(f"{path}/steps", bytes(8 * RANKS + 1))
        commands = [[sys.executable, str(ASKED), path, str(rank)] for rank in range(RANKS)]
        ranks = [Asked(subprocess.Popen(command, stdout=subprocess.PIPE, env=measure.CLEAN)) for command in commands]
        try:
            _request(ranks, f"{path}/requests")
        finally:
            for rank in ranks:
                rank.popen.kill()
                rank.popen.communicate()
    # A signal that is late on a busy machine is another request, which some of the ranks may not have answered yet.
    answered = min(len(rank.steps) for rank in ranks)
    wrong = sum(len(set(steps)) > 1 for steps in zip(*(rank.steps[:answered] for rank in ranks)))
    yield Row(f"{answered} requests to {RANKS} uneven ranks: different steps", wrong, count, reach=0)
    yield Row("  requests without an answer", max(0, REQUESTS - answered), count, reach=0)


@attrs.define
class Asked:
    """A rank, and the steps after which it has saved."""

    popen: subprocess.Popen[bytes]
    _output: bytes = b""

    @property
    def steps(self) -> list[bytes]:
        """Return the complete lines after the first one, which says that the rank is ready."""
        return self._output.split(b"\n")[1:-1]

    def read_until(self, lines: int) -> None:
        """Read what is there, and until there are so many lines, or for LIMIT."""
        assert self.popen.stdout  # noqa: S101  mypy must know
        while True:
            is_missing = self._output.count(b"\n") < lines
            if not select.select([self.popen.stdout], [], [], measure.LIMIT if is_missing else 0)[0]:
                return
            data = os.read(self.popen.stdout.fileno(), 1 << 16)
            if not data:
                return
            self._output += data


def _request(ranks: list[Asked], agreement: str) -> None:
    """Signal each rank, wait until all have saved, and do so again."""
    for rank in ranks:
        rank.read_until(1)
    for _ in range(REQUESTS):
        before = _settled(ranks, agreement)
        for rank in ranks:
            rank.popen.send_signal(signal.SIGUSR1)
        for rank, number in zip(ranks, before):
            rank.read_until(number + 2)
        if any(len(rank.steps) == number for rank, number in zip(ranks, before)):
            return
        time.sleep(NO_COPY)


def _settled(ranks: list[Asked], agreement: str) -> list[int]:
    """Wait until no rank saves, and all have answered what any has answered; return how often each has saved."""
    while True:
        is_saving = _is_saving(agreement)
        for rank in ranks:
            rank.read_until(0)
        before = [len(rank.steps) for rank in ranks]
        if not is_saving and len(set(before)) == 1:
            return before
        time.sleep(0.001)


def _is_saving(agreement: str) -> bool:
    """Whether a rank still saves, or writes that it has saved; a request meanwhile would be the same one."""
    try:
        _forgotten, _requests, _passed, savers, _saved_at = json.loads(measure.read(agreement))
    except ValueError:
        return True
    return bool(savers)


ROWS: Final = (requested_checkpoints, same_step)

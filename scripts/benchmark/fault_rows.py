"""What is measured under faults: how fast all is gone, whether the first cause is named, what a stalled console costs.

Each rank, and whoever it starts, holds one end of a FIFO open: its end of file is the moment when the last has gone.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import os
import random
import re
import select
import signal
import statistics
import subprocess
import time
from typing import TYPE_CHECKING, Final

from ascend_runner.linux import descendants
from benchmark import measure
from benchmark.launchers import OURS, peers
from benchmark.lines import Lines
from benchmark.measure import folder
from benchmark.rows import LINES_EACH, RANKS
from benchmark.table import Row, count, seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmark.launchers import Launcher

RUNS: Final = 11
RACES: Final = 1000
READY: Final = "exec 9>$FIFO; %s printf r >&9; exec sleep 1000"  # a rank, for sh(1)


class Watch:
    """A FIFO that tells when its writers are ready, and when the last of them has gone."""

    def __init__(self, path: str) -> None:
        self.path = os.path.join(path, "fifo")
        os.mkfifo(self.path)
        self._reader = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)

    def rank(self, work: str = "") -> Sequence[str]:
        """Give the words of a rank that does some work first, says that it is ready, and sleeps."""
        return ("sh", "-c", (READY % work).replace("$FIFO", self.path))

    def await_ready(self, ranks: int) -> None:
        """Wait until so many have said that they are ready."""
        while ranks:
            select.select([self._reader], [], [], measure.LIMIT)
            ranks -= len(os.read(self._reader, ranks))

    def await_end(self) -> float:
        """Wait until nobody is left; the moment."""
        while os.read(self._reader, 1) if select.select([self._reader], [], [], measure.LIMIT)[0] else True:
            pass
        return time.monotonic()


def killed_runner() -> Iterator[Row]:
    """Time how long ranks and their children live on after SIGKILL of the launcher; count those that stay."""
    family = "setsid sleep 1000 & setsid sleep 1000 & "

    def sleepers() -> set[int]:
        found = descendants.descendants(os.getpid())
        return {process.pid for process in found if process.name == "sleep" and not process.is_zombie}

    def run(launcher: Launcher) -> tuple[float, int]:
        before = sleepers()  # of a peer, in a row before this one
        with folder() as path:
            watch = Watch(path)
            with measure.started(launcher.command(path, *watch.rank(family), ranks=RANKS)) as popen:
                watch.await_ready(RANKS)
                ours = launcher is OURS
                killed = descendants.children(popen.pid)[0] if ours else popen.pid
                start = time.monotonic()
                os.kill(killed, signal.SIGKILL)
                end = watch.await_end() if ours else start
                popen.wait()
                time.sleep(0 if ours else 1)
            left = sleepers() - before
            for pid in left:
                descendants.send(pid, signal.SIGKILL)
        return end - start, len(left)

    found = [run(OURS) for _ in range(RUNS)]
    left = {peer.name: run(peer)[1] for peer in peers() if not peer.starts_scripts_only}
    what = f"SIGKILL of the runner: {RANKS} ranks and {2 * RANKS} own-session children gone"
    yield Row(what, statistics.median(taken for taken, _left in found), seconds, reach=0.05)
    yield Row(f"  the slowest of {RUNS}", max(taken for taken, _left in found), seconds, reach=0.05)
    most = max(count for _taken, count in found)
    yield Row("  of these processes live on", most, count, "mpirun", left.get("mpirun"), 0)
    yield Row("", most, count, "torchrun", left.get("torchrun"))


def first_cause() -> Iterator[Row]:
    """Count the races in which the wrong rank is named: one fails, each other one 1 to 50 ms later, of that."""
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        wrong = sum(pool.map(_race, range(RACES)))
    yield Row(f"first cause named wrong, in {RACES} races", wrong, count, reach=0)


def _race(seed: int) -> bool:
    """Have one race; whether the wrong rank was named, or the wrong status given."""
    dice = random.Random(seed)
    culprit = dice.randrange(RANKS)
    script = (
        'trap "" TERM; read word <$FIFO-$RANK; [ $word = fail ] && { echo "ValueError: loss is nan"; exit 7; };'
        ' [ $word = complain ] && echo "RuntimeError: Connection reset by peer"; exit 1'
    )
    with folder() as path:
        for rank_id in range(RANKS):
            os.mkfifo(f"{path}/fifo-{rank_id}")
        words = ("sh", "-c", script.replace("$FIFO", f"{path}/fifo"))
        with measure.started(OURS.command(path, *words, ranks=RANKS), stderr=subprocess.PIPE) as popen:
            writers = [os.open(f"{path}/fifo-{rank_id}", os.O_WRONLY) for rank_id in range(RANKS)]
            (runner,) = descendants.children(popen.pid)
            pid = next(pid for pid in descendants.children(runner) if _is_rank(pid, culprit))
            start = time.monotonic()
            os.write(writers[culprit], b"fail\n")
            while (found := descendants.look(pid)) and not found.is_zombie and time.monotonic() - start < measure.LIMIT:
                time.sleep(0.0002)
            start = time.monotonic()
            others = [rank_id for rank_id in range(RANKS) if rank_id != culprit]
            for moment, rank_id in sorted((start + dice.uniform(0.001, 0.05), rank_id) for rank_id in others):
                time.sleep(max(0.0, moment - time.monotonic()))
                with contextlib.suppress(BrokenPipeError):
                    os.write(writers[rank_id], dice.choice((b"complain\n", b"die\n")))
            _, screen = popen.communicate()
            for writer in writers:
                os.close(writer)
    named = re.search(rb"rank (\d+) failed first", screen)
    return named is None or int(named[1]) != culprit or popen.returncode != 7


def _is_rank(pid: int, rank_id: int) -> bool:
    """Whether a process is that rank: numbers of processes begin anew, so that their order says nothing."""
    with open(f"/proc/{pid}/environ", "rb") as environ:
        return b"RANK_ID=%d" % rank_id in environ.read().split(b"\0")


def stalled_console() -> Iterator[Row]:
    """Time ranks that write much, while the console is read and while it is not; not the runner's own end."""
    with folder(in_memory=True) as path:
        lines = Lines(path, RANKS, LINES_EACH)

        def run(*, is_read: bool) -> float:
            with folder(in_memory=True) as place:
                watch = Watch(place)
                script = f"exec 9>{watch.path}; printf r >&9; cat {lines.path}-$RANK"
                command = OURS.command(f"{place}/log", "sh", "-c", script, ranks=RANKS)
                start = time.monotonic()
                with contextlib.ExitStack() as stack:
                    popen = stack.enter_context(measure.started(command, stdout=subprocess.PIPE))
                    assert popen.stdout  # noqa: S101  mypy must know
                    if is_read:
                        reader = stack.enter_context(measure.started(["cat"], stdin=popen.stdout.fileno()))
                    watch.await_ready(RANKS)
                    end = watch.await_end()
                    popen.wait()
                    popen.stdout.close()
                    if is_read:
                        reader.wait()
                return end - start

        medians = measure.alternate(
            {
                "read": (9, functools.partial(run, is_read=True)),
                "stalled": (9, functools.partial(run, is_read=False)),
            }
        )
    what = f"{RANKS} ranks write 20 MB each and end, console stalled"
    yield Row(what, medians["stalled"], seconds, "console read", medians["read"], 1.1, is_ratio=True)


def teardown_in_any_state() -> Iterator[Row]:
    """Time from SIGTERM to the end of the last obeying rank, whatever the console and the disk are like."""

    def run(state: str) -> tuple[float, float]:
        with folder() as path:
            watch = Watch(path)
            rank = watch.rank("head -c 300000 /dev/zero | tr '\\0' '\\n';")
            command = OURS.command(f"{path}/log", *rank, ranks=RANKS)
            if state == "disk full":
                command = ["sh", "-c", 'ulimit -f 1; exec "$@"', "sh", *command]
            is_stalled = state == "console stalled"
            output = subprocess.PIPE if is_stalled else subprocess.DEVNULL
            with measure.started(command, stdout=output, stderr=subprocess.STDOUT if is_stalled else output) as popen:
                watch.await_ready(RANKS)
                start = time.monotonic()
                popen.terminate()
                ended = watch.await_end() - start
                popen.wait()
                gone = time.monotonic() - start
                if popen.stdout:
                    popen.stdout.close()
        return ended, gone

    for state in ("console read", "console stalled", "disk full"):
        found = [run(state) for _ in range(RUNS)]
        what = f"SIGTERM: {RANKS} obeying ranks gone, {state}"
        yield Row(what, statistics.median(ended for ended, _gone in found), seconds, reach=0.05)
        yield Row(f"  the slowest of {RUNS}", max(ended for ended, _gone in found), seconds, reach=0.05)
        yield Row("  the runner gone", statistics.median(gone for _ended, gone in found), seconds)


ROWS: Final = (killed_runner, first_cause, stalled_console, teardown_in_any_state)

"""The rows about faults: how fast all processes end, how often the first cause is right, what a stalled console costs.

Each rank and its children hold a FIFO open for writing; its end of file is the moment when the last of them has ended.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import glob
import json
import os
import random
import select
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Final

from ascend_runner.guardian import process_tree
from benchmark import measure
from benchmark.launchers import OURS, Launcher, peers
from benchmark.lines import Lines
from benchmark.measure import folder
from benchmark.rows import LINES_EACH, RANKS
from benchmark.table import Row, count, seconds

RUNS: Final = 11
RACES: Final = 1000
# What a rank prints that fails, and what its peers print when they lose it; for printf in sh(1).
HEADER: Final = 'Traceback (most recent call last):\\n  File "train.py", line 5, in step\\n'
CAUSES: Final = (
    rf"{HEADER}ValueError: loss is nan\n",
    rf"{HEADER}RuntimeError: NPU out of memory. Tried to allocate 2.00 GiB\n",
    rf"{HEADER}RuntimeError: HCCL function error, error code is 7\nEJ0001: [PID: 7] Failed to initialize HCCP\n",
    rf"{HEADER}KeyError: 3\n" + r"wandb:  lr 0.1\n" * 30,
    r"Fatal Python error: Aborted\n\nCurrent thread 7 (most recent call first):\n  File \"a.py\", line 5 in f\n",
)
LOSSES: Final = (
    rf"{HEADER}    dist.all_reduce(loss)\nRuntimeError: [gloo/pair.cc:534] Connection closed by peer\n",
    rf"{HEADER}    dist.barrier()\ntorch.distributed.DistBackendError: NCCL error in: a.cpp:7, remote process exited\n",
    r"EI0006: [PID: 7] 2026-01-02-03:04:05.006.007 Getting socket times out.\n",
    r"RuntimeError: error code is 507048\nEI0002: [PID: 7] The wait execution of the Notify register times out.\n",
)
READY: Final = "exec 9>$FIFO; %s printf r >&9; exec sleep 1000"  # a rank, for sh(1)


class Watch:
    """A FIFO that shows when its writers are ready and when the last of them has ended."""

    def __init__(self, path: str) -> None:
        self.path = os.path.join(path, "fifo")
        os.mkfifo(self.path)
        self._reader = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)

    def rank(self, work: str = "") -> Sequence[str]:
        """Return the command line of a rank that does some work, reports that it is ready, and sleeps."""
        return ("sh", "-c", (READY % work).replace("$FIFO", self.path))

    def await_ready(self, ranks: int) -> None:
        """Wait until so many ranks are ready."""
        while ranks:
            select.select([self._reader], [], [], measure.LIMIT)
            ranks -= len(os.read(self._reader, ranks))

    def await_end(self) -> float:
        """Wait until no writer is left, and return the time."""
        while os.read(self._reader, 1) if select.select([self._reader], [], [], measure.LIMIT)[0] else True:
            pass
        return time.monotonic()


def killed_runner() -> Iterator[Row]:
    """Time how long ranks and their children outlive SIGKILL of the launcher, and count those that stay."""
    family = "setsid sleep 1000 & setsid sleep 1000 & "

    def sleepers() -> set[int]:
        found = process_tree.descendants(os.getpid())
        return {process.pid for process in found if process.name == "sleep" and not process.is_zombie}

    def run(launcher: Launcher) -> tuple[float, int]:
        before = sleepers()  # left by a peer in an earlier row
        with folder() as path:
            watch = Watch(path)
            with measure.started(launcher.command(path, *watch.rank(family), ranks=RANKS)) as popen:
                watch.await_ready(RANKS)
                ours = launcher is OURS
                killed = process_tree.children(popen.pid)[0] if ours else popen.pid
                start = time.monotonic()
                os.kill(killed, signal.SIGKILL)
                end = watch.await_end() if ours else start
                popen.wait()
                time.sleep(0 if ours else 1)
            left = sleepers() - before
            for pid in left:
                os.kill(pid, signal.SIGKILL)
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
    """Count the races with a wrong first cause: one rank fails, and the others 1 to 50 ms later because of it."""
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        wrong = sum(pool.map(_race, range(RACES)))
    yield Row(f"wrong first cause, in {RACES} races", wrong, count, reach=0)


def _race(seed: int) -> bool:
    """Run one race; return whether the runner named the wrong rank or returned the wrong status."""
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
        with measure.started(OURS.command(path, *words, ranks=RANKS)) as popen:
            writers = [os.open(f"{path}/fifo-{rank_id}", os.O_WRONLY) for rank_id in range(RANKS)]
            (runner,) = process_tree.children(popen.pid)
            pid = next(pid for pid in process_tree.children(runner) if _is_rank(pid, culprit))
            start = time.monotonic()
            os.write(writers[culprit], b"fail\n")
            while (
                (found := process_tree.look(pid)) and not found.is_zombie and time.monotonic() - start < measure.LIMIT
            ):
                time.sleep(0.0002)
            start = time.monotonic()
            others = [rank_id for rank_id in range(RANKS) if rank_id != culprit]
            for moment, rank_id in sorted((start + dice.uniform(0.001, 0.05), rank_id) for rank_id in others):
                time.sleep(max(0.0, moment - time.monotonic()))
                with contextlib.suppress(BrokenPipeError):
                    os.write(writers[rank_id], dice.choice((b"complain\n", b"die\n")))
            popen.wait()
            for writer in writers:
                os.close(writer)
        (report,) = glob.glob(f"{path}/*-report.json")
        cause = json.loads(measure.read(report))["cause"]
    return cause.get("rank_id") != culprit or popen.returncode != 7


def late_cause() -> Iterator[Row]:
    """Count the races with a wrong root cause: one rank fails, and others end 50 to 300 ms before it because of it."""
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        wrong = 0
        for line in pool.map(_late_race, range(RACES)):
            sys.stderr.write(line)
            wrong += bool(line)
    yield Row(f"wrong root cause behind earlier victims, in {RACES} races", wrong, count, reach=0)


def _late_race(seed: int) -> str:
    """Run one race; return a line if the rank is wrong, or the exit status not that of a victim, else ""."""
    dice = random.Random(seed)
    culprit, lag = dice.randrange(RANKS), dice.uniform(0.05, 0.3)
    ignore = dice.choice(('trap "" TERM;', ""))  # it cleans up to the end, or SIGTERM cuts that short
    script = (
        f"if [ $RANK = {culprit} ]; then {ignore} printf '{dice.choice(CAUSES)}'; : >$F/failed;"
        f" until [ -e $F/lost ]; do sleep 0.01; done; read pid <$F/lost;"
        f" while grep -qs ') [RSD]' /proc/$pid/stat; do sleep 0.01; done; sleep {lag:.3f}; exit 7; fi;"
        f" until [ -e $F/failed ]; do sleep 0.01; done; sleep 0.2; printf '{dice.choice(LOSSES)}';"
        " echo $$ >$F/$RANK; mv $F/$RANK $F/lost; exit 1"
    )
    with folder() as path:
        with measure.started(OURS.command(path, "sh", "-c", script.replace("$F", path), ranks=RANKS)) as popen:
            popen.wait()
        (report,) = glob.glob(f"{path}/*-report.json")
        cause = json.loads(measure.read(report))["cause"]
    if cause.get("rank_id") == culprit and popen.returncode == 1:
        return ""
    return f"late_cause: seed {seed}, culprit {culprit}, exit status {popen.returncode}, {json.dumps(cause)}\n"


def _is_rank(pid: int, rank_id: int) -> bool:
    """Whether a process is that rank; pids wrap around, so their order proves nothing."""
    with open(f"/proc/{pid}/environ", "rb") as environ:
        return b"RANK_ID=%d" % rank_id in environ.read().split(b"\0")


def stalled_console() -> Iterator[Row]:
    """Time ranks with much output while the console is read, and while it is not; only until the ranks have ended."""
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
    """Time from SIGTERM to the end of the last rank, for different states of console and disk."""

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


def restart() -> Iterator[Row]:
    """Time from the death of a rank to the first line of the last rank of the next attempt, 2 s after the start."""
    script = (
        "if [ $TORCHELASTIC_RESTART_COUNT = 1 ]; then date +%s%N >$F/up-$RANK; exit 0; fi; : >$F/ready-$RANK;"
        f" [ $RANK = 0 ] || exec sleep 1000; while [ $(ls $F | grep -c ready) -lt {RANKS} ]; do sleep 0.01; done;"
        " sleep 2; date +%s%N >$F/died; exit 7"
    )

    def run(launcher: Launcher) -> float:
        with folder(in_memory=True) as path:
            words = ("--max-restarts", "1", "sh", "-c", script.replace("$F", path))
            measure.seconds_of(launcher.command(f"{path}/log", *words, ranks=RANKS))
            last = max(int(measure.read(name)) for name in glob.glob(f"{path}/up-*"))
            return (last - int(measure.read(f"{path}/died"))) / 1e9

    def run_bare() -> float:
        with folder(in_memory=True) as path:
            start = time.time_ns()
            words = [f"date +%s%N >{path}/up-{rank}" for rank in range(RANKS)]
            pids = [os.posix_spawn("/bin/sh", ["sh", "-c", word], os.environ) for word in words]
            for pid in pids:
                os.waitpid(pid, 0)
            return (max(int(measure.read(name)) for name in glob.glob(f"{path}/up-*")) - start) / 1e9

    launchers = [OURS, *(peer for peer in peers() if peer.name == "torchrun")]
    medians = measure.alternate(
        {
            **{one.name: (11, functools.partial(run, one)) for one in launchers},
            "bare": (11, run_bare),
        }
    )
    what = f"death of a rank to the first line of the last of {RANKS} new ranks"
    yield Row(what, medians[OURS.name], seconds, "torchrun", medians.get("torchrun"), reach=0.1, is_ratio=True)
    yield Row(f"  of this, the start of {RANKS} bare processes", medians["bare"], seconds)


ROWS: Final = (restart, killed_runner, first_cause, late_cause, stalled_console, teardown_in_any_state)

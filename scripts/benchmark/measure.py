"""Ways to measure: alternating runs and their medians, each in an empty directory and a clean environment."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import shutil
import signal
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from ascend_runner.guardian import process_tree
from benchmark.launchers import Launcher

CLEAN: Final = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
LIMIT: Final = 60.0  # seconds that any wait may take
MEMORY: Final = "/dev/shm"  # noqa: S108  a directory with a random name is created in it
MUCH: Final = 2 << 30  # bytes
TICKS: Final = os.sysconf("SC_CLK_TCK")


def alternate(contestants: Mapping[str, tuple[int, Callable[[], float]]]) -> dict[str, float]:
    """Run each contestant so many times, in turns; give the median of each."""
    turns = sorted((number / runs, name) for name, (runs, _run) in contestants.items() for number in range(runs))
    samples: dict[str, list[float]] = {name: [] for name in contestants}
    for _turn, name in turns:
        samples[name].append(contestants[name][1]())

    return {name: statistics.median(found) for name, found in samples.items()}


@contextlib.contextmanager
def folder(*, in_memory: bool = False) -> Iterator[str]:
    """Provide an empty directory, in memory if possible where a disk would distort the result."""
    place = MEMORY if in_memory and os.path.isdir(MEMORY) and shutil.disk_usage(MEMORY).free > MUCH else None
    with tempfile.TemporaryDirectory(prefix="ascend-runner-bench-", dir=place) as path:
        yield path


@contextlib.contextmanager
def started(
    command: Sequence[str],
    *,
    stdin: int = subprocess.DEVNULL,
    stdout: int = subprocess.DEVNULL,
    stderr: int = subprocess.DEVNULL,
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a program, and terminate it at the end of the block or after `LIMIT`."""
    with subprocess.Popen(command, stdin=stdin, stdout=stdout, stderr=stderr, env=CLEAN) as popen:
        # Not wait(timeout): it polls after 1, 2, 4, ... 32 ms, and the times would be sums of these.
        overdue = threading.Timer(LIMIT, popen.terminate)
        overdue.start()
        try:
            yield popen
        finally:
            overdue.cancel()
            popen.terminate()


def seconds_of(command: Sequence[str]) -> float:
    """Time a program from start to exit."""
    start = time.monotonic()
    with started(command) as popen:
        popen.wait()
        return time.monotonic() - start


def seconds_with_console(command: Sequence[str], console: str = os.devnull) -> tuple[float, bytes]:
    """Time a program until `cat` has copied its stdout, a pipe, to a file; give its stderr, too."""
    start = time.monotonic()
    with open(console, "wb") as file, tempfile.TemporaryFile() as errors:
        with started(command, stdout=subprocess.PIPE, stderr=errors.fileno()) as popen:
            assert popen.stdout  # noqa: S101  mypy must know
            with started(["cat"], stdin=popen.stdout.fileno(), stdout=file.fileno()) as reader:
                reader.wait()
            popen.wait()
        seconds = time.monotonic() - start
        errors.seek(0)
        return seconds, errors.read()


@contextlib.contextmanager
def sleeping(launcher: Launcher, ranks: int) -> Iterator[list[int]]:
    """Run a launcher with ranks that sleep; give the pids of its own processes."""
    with folder() as path, started(launcher.command(path, "sleep", "1000", ranks=ranks)) as popen:
        deadline = time.monotonic() + LIMIT
        while True:
            below = list(process_tree.descendants(popen.pid))
            if sum(found.name == "sleep" for found in below) == ranks:
                break
            if time.monotonic() > deadline:
                raise TimeoutError(f"{launcher.name} did not start {ranks} ranks")
            time.sleep(0.05)
        yield [popen.pid, *(found.pid for found in below if found.name != "sleep")]


def pss(pid: int) -> int:
    """Return the proportional set size of a process in bytes (proc(5), smaps_rollup)."""
    found = re.search(rb"^Pss: +(\d+) kB", read(f"/proc/{pid}/smaps_rollup"), re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def context_switches(pid: int) -> int:
    """Count the context switches of all threads of a process; an idle one has none."""
    statuses = [read(f"/proc/{pid}/task/{tid}/status") for tid in os.listdir(f"/proc/{pid}/task")]
    return sum(int(count) for status in statuses for count in re.findall(rb"ctxt_switches:\t(\d+)", status))


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process and of its child, which are the guardian and the runner."""
    return sum(map(process_seconds, (pid, *process_tree.children(pid))))


def process_seconds(pid: int) -> float:
    """Return the CPU time of a process, with that of its threads that have ended."""
    return time.clock_gettime(~pid << 3 | 2)  # clock_getcpuclockid(3), which Python has for threads only


def children_seconds() -> float:
    """Return the CPU time of the programs that have ended, with that of all their processes."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def reaped_seconds(pid: int) -> float:
    """Return the CPU time of the children that a process has waited for."""
    fields = read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return sum(map(int, fields[13:15])) / TICKS


def system_calls(pids: Sequence[int], seconds: float) -> int | None:
    """Return the number of system calls of these processes and their threads in that time, or None without strace."""
    if not shutil.which("strace"):
        time.sleep(seconds)
        return None

    with folder() as path:
        attach = [word for pid in pids for word in ("-p", str(pid))]
        with started(["strace", "-f", "-c", "-o", f"{path}/calls", *attach]) as strace:
            time.sleep(seconds)
            strace.send_signal(signal.SIGINT)
            strace.wait()
        total = re.search(rb" (\d+) +\d* *total", read(f"{path}/calls"))
    return int(total[1]) if total else 0


def read(path: str) -> bytes:
    """Read a file."""
    with open(path, "rb") as file:
        return file.read()


def write(path: str, data: bytes) -> None:
    """Write a file."""
    with open(path, "wb") as file:
        file.write(data)

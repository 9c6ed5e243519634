"""Kill a staging at many points, and check what the next ones make of it.

Half of the points are system calls, from the first to the last one of a staging; the others are in the largest file.
After SIGKILL, two processes stage the same dataset at once: both succeed, one of them at most copies, and the copy is
like the source, without leftovers.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

from ascend_runner.plan.ranks import Stage  # noqa: E402  found by the line above
from ascend_runner.services import staging  # noqa: E402  as above
from ascend_runner.services.staging import PART, StageTask  # noqa: E402  as above
from tests.helpers import data_trees  # noqa: E402  as above

LIMIT = 120.0  # seconds for a file to grow
EVENTS = {"open", "os.rename", "os.mkdir", "os.symlink", "os.chmod", "os.utime", "os.truncate", "os.remove", "os.rmdir"}


class Calls:
    """Counts the system calls of this process, and kills it at one of them."""

    def __init__(self, last: int) -> None:
        self.count = 0
        self._last = last

    def __call__(self, event: str, _arguments: object) -> None:
        """Take note of an audit event."""
        if event in EVENTS:
            self.count += 1
            if self.count == self._last:
                os.kill(os.getpid(), signal.SIGKILL)


def stage(source: Path, copy: Path, result: Path, *, last: int = 0) -> int:
    """Stage in a child, which is killed at its system call number `last`; return its pid.

    It writes the number of bytes that it has copied, and that of its system calls.
    """
    pid = os.fork()
    if pid:
        return pid
    try:
        calls = Calls(last)
        sys.addaudithook(calls)
        task = StageTask(Stage(str(source), str(copy)), threading.Event(), ignore, ignore)
        copied = task.perform().copied
        result.write_text(f"{copied} {calls.count}")
    except BaseException:  # noqa: BLE001  a child must not return
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def ignore(_sentence: str) -> None:
    """Show nothing."""


def is_killed(pid: int) -> bool:
    """Wait for a child; return whether it was killed, and did not succeed."""
    _pid, status = os.waitpid(pid, 0)
    return os.WIFSIGNALED(status)


def kill_at_call(last: int, source: Path, copy: Path, result: Path) -> bool:
    """Kill a staging at a system call; return whether it got there."""
    return is_killed(stage(source, copy, result, last=last))


def kill_in_file(size: int, source: Path, copy: Path, result: Path) -> bool:
    """Kill a staging when so many bytes of a file are copied; return whether it was still copying."""
    pid = stage(source, copy, result)
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline and not result.exists():
        if any(size <= size_of(path) for path in copy.glob(f"{PART}*")):
            break
    os.kill(pid, signal.SIGKILL)
    return is_killed(pid)


def size_of(path: Path) -> int:
    """Return the size of a file; 0 if it was renamed meanwhile."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def resume(source: Path, copy: Path, result: Path) -> tuple[int, list[str]]:
    """Let two processes stage at once; return the bytes that were copied, and what was wrong."""
    results = [result.with_suffix(f".{number}") for number in range(2)]
    pids = [stage(source, copy, path) for path in results]
    statuses = [os.waitpid(pid, 0)[1] for pid in pids]
    if statuses != [0, 0]:
        return 0, [f"statuses {statuses}"]
    copied = [int(path.read_text().split()[0]) for path in results]
    wrong = [] if 0 in copied else [f"both have copied: {copied}"]
    if data_trees.read(source) != data_trees.read(copy):
        wrong.append("the copy differs")
    left = {name for name in os.listdir(copy) if staging.is_own(name)}
    if left != {staging.COMPLETE, staging.MANIFEST, staging.LOCK}:
        wrong.append(f"left: {left}")
    return max(copied), wrong


def play(points: int, top: Path, big: int) -> int:
    """Kill at each point; return 1 if anything was wrong."""
    source = data_trees.make(top / "source", files=100)
    (source / "big").write_bytes(random.Random(0).randbytes(big))
    size = sum(path.stat().st_size for path in source.rglob("*") if path.is_file() and not path.is_symlink())
    os.waitpid(stage(source, top / "whole", top / "whole.txt"), 0)
    calls = int((top / "whole.txt").read_text().split()[1])
    failures = killed = 0
    for point in range(points):
        copy, result = top / f"copy-{point}", top / f"result-{point}"
        share = (point + 1) / points
        kill: Callable[[int, Path, Path, Path], bool] = kill_in_file if point % 2 else kill_at_call
        was_killed = kill(max(1, int(share * (big if point % 2 else calls))), source, copy, result)
        copied, wrong = resume(source, copy, result)
        killed += was_killed
        failures += bool(wrong)
        where = f"{share:.0%} of the {'large file' if point % 2 else 'system calls'}"
        print(f"point {point}, {where}: {copied} of {size} bytes copied afterwards", *wrong, sep="\n  ", flush=True)
        shutil.rmtree(copy)
    print(f"{points} points, {killed} of them before the end, {failures} wrong")
    return 1 if failures else 0


def main() -> int:
    """Read the command line, and play."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=50)
    parser.add_argument("--big", type=int, default=200, help="size of the largest file in MiB")
    parser.add_argument("--dir", help="where dataset and copies are (default: the directory for temporary files)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ascend-runner-chaos-", dir=options.dir) as path:
        return play(options.points, Path(path), options.big << 20)


if __name__ == "__main__":
    sys.exit(main())

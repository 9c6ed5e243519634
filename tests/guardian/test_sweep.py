"""The sweep goes on as long as it makes a difference, and gives up only what cannot be killed."""

from __future__ import annotations

import os
import subprocess
import sys

from ascend_runner.guardian import process_tree, sweep
from tests.helpers.surroundings import CLEAN, permitted
from tests.helpers.waiting import LIMIT

SCRIPT = """
import os, signal
from ascend_runner.guardian import process_tree, sweep
children = []
for _ in range(8):
    pid = os.fork()
    if pid == 0:
        os.closerange(0, 3)
        signal.pause()
        os._exit(0)
    children.append(pid)
found = [process_tree.look(pid) for pid in children]
def kill_all(keep):
    %s
sweep.kill_all = kill_all
print(len(sweep.sweep(seconds=1e-9)))
for pid in process_tree.children(os.getpid()):
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
"""


def swept(kill_all: str) -> str:
    """Sweep eight processes with a limit that has always passed when one is found again; return what was printed."""
    return subprocess.run(
        [sys.executable, "-c", SCRIPT % kill_all],
        env=CLEAN,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=True,
    ).stdout


def test_sweep_goes_on_while_it_finds_others() -> None:
    """Chains of processes are fought until none is left, however long that takes."""
    kill_one = """
    if not found:
        return []
    os.kill(found[-1].pid, signal.SIGKILL)
    return [found.pop()._replace(state='S')]
"""

    assert "0\n" == swept(kill_one)


def test_running_process_is_still_dying() -> None:
    """A process that frees its memory or waits for a processor is found again and again, and is not given up."""
    kill_at_last = """
    found.append(found[0]._replace(state='R'))
    if len(found) > 12:
        for pid in children:
            os.kill(pid, signal.SIGKILL)
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    return found[-1:]
"""

    assert "0\n" == swept(kill_at_last)


def test_process_that_survives_is_given_up() -> None:
    """A process that sleeps in the kernel and is found again after the limit cannot be killed."""
    assert "1\n" == swept("return [found[0]._replace(state='D')]")


def test_nothing_is_reaped_while_the_sweep_is_urgent() -> None:
    """Of a process with threads, waitid(2) may wait for a thread that cannot run before it, for many seconds."""
    permitted("chrt", "--fifo", "1")
    kept = frozenset(process_tree.children(os.getpid()))
    pid = os.spawnv(os.P_NOWAIT, "/bin/true", ["true"])
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)

    assert [] == sweep.kill_all(kept)
    assert (pid, 0) == os.waitpid(pid, 0)

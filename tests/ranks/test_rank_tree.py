"""The processes of a rank as read from /proc, with real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from signal import SIGINT, SIGTERM, SIGUSR1

import pytest

from ascend_runner.guardian import process_tree
from ascend_runner.guardian.process_tree import Descendant
from ascend_runner.ranks import processes
from ascend_runner.supervision.signal_targets import RankProcess
from tests.helpers.waiting import is_gone, wait_until

SLEEP = "import time; print(flush=True); time.sleep(1000)"
WAITS = "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, {15}); print(flush=True); signal.sigwaitinfo({15})"


class Commands:
    """Starts commands that print a line when ready, and kills them with all their descendants."""

    def __init__(self) -> None:
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, *argv: str) -> int:
        """Start a command, wait until it is ready, and return its pid."""
        started = subprocess.Popen(argv, stdout=subprocess.PIPE, start_new_session=True)
        self._started.append(started)
        assert started.stdout
        started.stdout.readline()
        return started.pid

    def close(self) -> None:
        """Kill all commands."""
        for started in self._started:
            pids = [found.pid for found in process_tree.descendants(started.pid)]
            os.killpg(started.pid, 9)
            started.communicate()
            wait_until(lambda pids=pids: all(map(is_gone, pids)))


@pytest.fixture
def commands() -> Iterator[Commands]:
    """Yield a starter of commands."""
    commands = Commands()
    yield commands
    commands.close()


def only(pids: list[int]) -> RankProcess:
    """Return the one process that is found."""
    (found,) = processes.read(below(pids))
    return found


def below(pids: list[int]) -> Iterator[Descendant]:
    """Yield these processes, each with its descendants."""
    for pid in pids:
        found = process_tree.look(pid)
        if found:
            yield found
            yield from process_tree.descendants(pid)


def test_handler(commands: Commands) -> None:
    """A Python handler is detected, and so is its absence."""
    handles = f"import signal; signal.signal(15, print); {SLEEP}"

    assert SIGTERM in only([commands.start(sys.executable, "-c", handles)]).handled
    assert SIGTERM not in only([commands.start(sys.executable, "-c", SLEEP)]).handled


def test_process_that_waits_for_a_signal(commands: Commands) -> None:
    """A process that blocks a signal and sleeps in sigtimedwait handles it."""
    pid = commands.start(sys.executable, "-c", WAITS)
    wait_until(lambda: SIGTERM in only([pid]).handled)

    assert SIGUSR1 not in only([pid]).handled


def test_shell_with_a_trap_and_jobs(commands: Commands) -> None:
    """A shell's trap, its name, and its background jobs' ignored SIGINT are detected."""
    pid = commands.start("/bin/sh", "-c", "trap : TERM; sleep 1000 & echo; wait")
    wait_until(lambda: [True] == [SIGINT in child.ignored for child in only([pid]).children])

    assert only([pid]).is_shell
    assert SIGTERM in only([pid]).handled


def test_tree(commands: Commands) -> None:
    """Children are listed below their parents, and a process that has exited is not listed."""
    shell = only([commands.start("/bin/sh", "-c", "(sleep 1000 & echo; wait) & wait")])

    assert [1] == [len(child.children) for child in shell.children]
    assert () == processes.read(below([shell.pid + (1 << 22)]))

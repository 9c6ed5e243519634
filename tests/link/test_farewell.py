"""When a runner dies, its link process says so at once, and once nothing of it is left, it says that, too."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import attrs

from ascend_runner.link import channel
from tests.helpers.program import WORKERS
from tests.helpers.surroundings import CLEAN
from tests.helpers.waiting import LIMIT, is_gone, wait_until
from tests.link.conftest import Node, Nodes


@attrs.frozen
class Guarded:
    """A guardian with the processes below it."""

    guardian: subprocess.Popen[str]
    runner: int
    link: int
    grandchild: int


@contextmanager
def guarded(nodes: Nodes, what: str = "wait") -> Iterator[tuple[Node, Guarded]]:
    """Run node 0 in this process, and node 1 under a guardian of its own, until both are linked."""
    hub = nodes.open(nodes.settings(0))
    settings = channel.encode(nodes.settings(1)).decode()
    command = [sys.executable, str(WORKERS / "linked.py"), settings, what]
    with subprocess.Popen(
        command, env={**CLEAN, "PYTHONPATH": os.pathsep.join(sys.path)}, stdout=subprocess.PIPE, text=True
    ) as guardian:
        try:
            assert guardian.stdout
            pids = map(int, guardian.stdout.readline().split())
            if what == "wait":
                hub.wait_for(_1="running")
            yield hub, Guarded(guardian, *pids)
        finally:
            guardian.kill()


def test_death_of_a_runner_is_told_twice(nodes: Nodes) -> None:
    """The others hear at once that the runner has died, and once the guardian has killed all else, that it is dead."""
    with guarded(nodes) as (hub, node):
        os.kill(node.guardian.pid, signal.SIGSTOP)
        os.kill(node.runner, signal.SIGKILL)
        hub.wait_for(_1="gone")
        was_left = not is_gone(node.grandchild)
        os.kill(node.guardian.pid, signal.SIGCONT)
        hub.wait_for(_1="dead")
        is_left = not is_gone(node.grandchild)

        assert 137 == node.guardian.wait(LIMIT)
        assert (True, False) == (was_left, is_left)
        assert is_gone(node.link)


def test_frozen_link_process_does_not_delay_the_guardian(nodes: Nodes) -> None:
    """The guardian kills a link process that does not respond, and ends."""
    with guarded(nodes) as (_hub, node):
        os.kill(node.link, signal.SIGSTOP)
        os.kill(node.runner, signal.SIGKILL)

        assert 137 == node.guardian.wait(LIMIT)
        assert is_gone(node.link)
        assert is_gone(node.grandchild)


def test_killed_link_process_does_not_delay_the_guardian(nodes: Nodes) -> None:
    """The guardian does not wait for a link process that has ended."""
    with guarded(nodes) as (hub, node):
        os.kill(node.runner, signal.SIGSTOP)
        os.kill(node.link, signal.SIGKILL)
        os.kill(node.runner, signal.SIGKILL)

        assert 137 == node.guardian.wait(LIMIT)
        assert is_gone(node.grandchild)
        assert "running" == hub.read()["1"]


def test_link_process_does_not_outlive_guardian_and_runner(nodes: Nodes) -> None:
    """If both are killed, the link process says that the runner has died, but not that all are dead, and ends."""
    with guarded(nodes) as (hub, node):
        os.kill(node.guardian.pid, signal.SIGSTOP)
        os.kill(node.runner, signal.SIGKILL)
        node.guardian.kill()
        wait_until(lambda: is_gone(node.link))
        hub.wait_for(_1="gone")
        os.kill(node.grandchild, signal.SIGKILL)
        wait_until(lambda: is_gone(node.grandchild))

        assert "gone" == hub.read()["1"]


def test_link_process_ends_with_its_runner(nodes: Nodes) -> None:
    """A runner that exits leaves no link process, and the guardian waits for none."""
    with guarded(nodes, "exit") as (hub, node):
        assert 0 == node.guardian.wait(LIMIT)
        assert is_gone(node.link)
        hub.wait_for(_1="running")

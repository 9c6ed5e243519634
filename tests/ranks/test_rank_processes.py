"""The processes of ranks, where the contract tests of the manager's protocols do not reach."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from ascend_runner.guardian import process_tree, sweep
from ascend_runner.ranks.processes import RankProcesses
from ascend_runner.supervision.causes import Ending, Exited
from ascend_runner.supervision.events import AskedProcessEnded, Emptied
from tests.helpers.plans import rank_spec
from tests.helpers.waiting import LIMIT, is_gone, wait_until


@pytest.fixture
def processes() -> Iterator[RankProcesses]:
    """Yield a node without ranks."""
    with closing(RankProcesses()) as processes:
        yield processes


def spawn(processes: RankProcesses, folder: Path, script: str) -> None:
    """Start rank 0 as a shell."""
    argv = ("sh", "-c", script)
    spec = rank_spec(executable="/bin/sh", argv=argv, env={"PATH": os.defpath}, cwd=str(folder))
    with open(os.devnull, "wb") as output:
        processes.spawn(spec, output.fileno())


def test_death_of_a_straggler_that_is_no_child_is_noticed(processes: RankProcesses, tmp_path: Path) -> None:
    """Its parent has left the session and gets its SIGCHLD; the watch wakes all the same."""
    spawn(processes, tmp_path, "(sleep 1000 & echo $! >straggler; exec setsid sleep 999) & wait; exit 7")
    wait_until(lambda: [name for name in names() if name == "sleep"] == ["sleep", "sleep"])
    (leader,) = processes.pids().values()
    os.kill(leader, signal.SIGKILL)
    poll = select.poll()
    poll.register(processes.exits, select.POLLIN)
    assert poll.poll(LIMIT * 1000)
    assert ([Exited(0, Ending(signum=signal.SIGKILL), has_stragglers=True)], True) == processes.look()
    assert [] == poll.poll(0)

    os.kill(int((tmp_path / "straggler").read_text()), signal.SIGKILL)
    assert poll.poll(LIMIT * 1000)
    assert [Emptied(0), AskedProcessEnded()] == list(processes.look()[0])
    processes.reap(0)
    while processes.has_escaped():
        processes.kill_escaped()


def test_processes_that_are_not_the_ranks_are_left_alone(tmp_path: Path) -> None:
    """A child that was named to it, and what is below that child, is neither asked, counted, killed nor reaped."""
    pid = os.posix_spawn("/bin/sh", ["sh", "-c", "sleep 1000 & exec setsid sleep 999"], os.environ)
    try:
        wait_until(lambda: names() == ["sleep", "sleep"])
        with closing(RankProcesses({pid})) as processes:
            spawn(processes, tmp_path, "exit 7")
            wait_until(lambda: processes.look()[0])
            processes.ask_escaped(signal.SIGTERM)

            assert (False, False, ()) == (processes.has_killable(), processes.has_escaped(), processes.survivors())
            assert {} == processes.kill_escaped()
            assert (0, 0) == os.waitpid(pid, os.WNOHANG)
            processes.reap(0)
    finally:
        pids = [found.pid for found in process_tree.descendants(os.getpid())]
        for each in pids:
            os.kill(each, signal.SIGKILL)
        wait_until(lambda: all(map(is_gone, pids)))
        sweep.reap_adopted()


def names() -> list[str]:
    """List the names of all processes below this one."""
    return [found.name for found in process_tree.descendants(os.getpid())]

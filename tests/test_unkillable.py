"""Processes that survive SIGKILL: runner and guardian wait for a limited time and report them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ascend_runner.guardian import process_tree
from tests.helpers.program import WORKERS, Program, Run
from tests.helpers.waiting import LIMIT, is_gone, wait_until


@contextmanager
def held(*pids: int, how: str = "--exit") -> Iterator[None]:
    """Keep these processes or threads from dying, or as workers/holder.py says."""
    holder = subprocess.Popen(
        [sys.executable, str(WORKERS / "holder.py"), how, *map(str, pids)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert holder.stdin
    assert holder.stdout
    try:
        answer = holder.stdout.readline()
        if answer != "held\n":
            pytest.skip(f"no process may be traced here: {answer.strip()}")
        yield
    finally:
        holder.stdin.close()
        holder.wait()
        holder.stdout.close()


def threads_of(pid: int) -> set[int]:
    """Return the threads of a process but the first; one that has nothing more to write ends soon."""
    return set(map(int, os.listdir(f"/proc/{pid}/task"))) - {pid}


def is_asleep(thread: int) -> bool:
    """Whether a thread is sleeping."""
    found = process_tree.look(thread)
    return found is not None and found.state == "S"


def named(run: Run) -> list[str]:
    """Return what the warnings report of survivors."""
    return re.findall(r"WARNING still alive after SIGKILL: (.*)\n", run.screen)


def test_runner_names_whom_it_gives_up(program: Program) -> None:
    """A rank and a process outside its session are reported with pid, state and kernel function."""
    run = program.act(2, "1:child=session", "say=ready", "sleep", options=("--grace", "0.3"))
    run.wait_for("ready", times=2)
    rank, other = process_tree.children(run.runner_pid)
    (child,) = process_tree.children(other)
    with held(rank, child):
        run.send(signal.SIGTERM)
        assert 143 == run.finish()
        (told,) = named(run)

    wait_until(lambda: is_gone(rank) and is_gone(child))
    who = r"(\d+) \(python[\d.]*, state [tD](?:, in \w*stop[\w.]*)?\)"
    by_runner = re.fullmatch(rf"rank 0: {who}, {who}|{who}, rank 0: {who}", told)
    assert by_runner, told
    assert {str(rank), str(child)} == set(filter(None, by_runner.groups()))
    assert "still alive after SIGKILL: rank 0" in run.screen
    assert "not_killed" == program.report()["ranks"][0]["state"]
    assert any(str(rank) in warning and str(child) in warning for warning in program.report()["warnings"])
    assert run.lines[-1].startswith(("  ranks", "      ")), "the cause is the last on the screen"


def test_runner_that_does_not_end(program: Program) -> None:
    """A runner whose thread is stuck on a hanging disk: the guardian soon exits with the status of the job."""
    run = program.act(1, "say=ready", f"await={program.folder}/go", "exit=3")
    run.wait_for("ready")
    runner = run.runner_pid
    wait_until(lambda: all(map(is_asleep, threads_of(runner))))  # one that runs Python would keep the others from it
    threads = threads_of(runner)
    with held(*threads, how="--now"):
        (program.folder / "go").touch()
        assert 3 == run.popen.wait(LIMIT)
    run.finish()  # the held threads have kept the screen open
    wait_until(lambda: is_gone(runner))

    (told,) = named(run)
    assert told.startswith(f"{runner} (")


def test_end_under_a_debugger_is_noticed(program: Program) -> None:
    """The kernel reports the end to a debugger first, and to the parent only after the debugger has waited for it."""
    run = program.act(2, "say=ready", f"0:await={program.folder}/go", "0:exit=3", "sleep")
    run.wait_for("ready", times=2)
    with held(process_tree.children(run.runner_pid)[0], how="--watch"):
        (program.folder / "go").touch()

        assert 3 == run.finish()


def test_guardian_names_whom_it_gives_up(program: Program) -> None:
    """If the runner was killed, the guardian reports the survivors."""
    run = program.act(2, "say=ready", "sleep")
    run.wait_for("ready", times=2)
    rank, _other = process_tree.children(run.runner_pid)
    with held(rank):
        os.kill(run.runner_pid, signal.SIGKILL)
        assert 137 == run.finish()

    wait_until(lambda: is_gone(rank))
    (told,) = named(run)
    assert told.startswith(f"{rank} (python")
    assert ", state t" in told

"""Processes that survive SIGKILL: runner and guardian wait for a limited time and report them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from ascend_runner.guardian import process_tree
from tests.helpers.program import WORKERS, Program, Run
from tests.helpers.waiting import LIMIT, is_gone, wait_until


@pytest.fixture(autouse=True, scope="module")
def _may_trace() -> None:
    """Skip where no process may be traced, before a test has started any."""
    with subprocess.Popen(["/bin/sleep", "1000"]) as popen:
        command = [sys.executable, str(WORKERS / "holder.py"), "--now", str(popen.pid)]
        tried = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT, check=False
        )
        popen.kill()
    if tried.stdout != "held\n":
        pytest.skip(f"no process may be traced here: {(tried.stdout + tried.stderr).strip()}")


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
        assert "held\n" == holder.stdout.readline()
        yield
    finally:
        holder.stdin.close()
        holder.wait()
        holder.stdout.close()


def system_calls(pid: int) -> dict[int, str]:
    """Return the system call of each thread of a process, with its arguments (proc(5)); "running" if it runs."""
    calls = {}
    for thread in os.listdir(f"/proc/{pid}/task"):
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            calls[int(thread)] = Path(f"/proc/{pid}/task/{thread}/syscall").read_text()
    return calls


def idle_calls(pid: int) -> dict[int, str]:
    """Wait until every thread of a process waits for something, and return their system calls."""
    found: list[dict[int, str]] = [{}]

    def is_idle() -> bool:
        found.append(system_calls(pid))
        return found[-1] == found[-2] and not any(call.startswith(("running", "-1 ")) for call in found[-1].values())

    wait_until(is_idle)
    return found[-1]


def named(run: Run) -> list[str]:
    """Return what the warnings report of survivors."""
    return re.findall(r"(?:WARNING |; )still alive after SIGKILL: (.*)\n", run.screen)


@pytest.mark.deep
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


@pytest.mark.deep
def test_runner_that_does_not_end(program: Program) -> None:
    """A runner whose thread is stuck on a hanging disk: the guardian soon exits with the status of the job."""
    run = program.act(1, "say=ready", f"await={program.folder}/go", "exit=3")
    run.wait_for("ready")
    runner = run.runner_pid
    go = program.folder / "go"
    while not go.exists():
        calls = idle_calls(runner)
        threads = {*calls} - {runner}
        with held(*threads, how="--now"):
            now = system_calls(runner)
            if any(now.get(thread) != calls[thread] for thread in threads):
                continue  # one runs Python meanwhile, and would keep the others from it
            go.touch()
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

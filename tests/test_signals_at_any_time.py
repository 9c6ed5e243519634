"""Signals at every phase of a job, many in a row, and SIGKILL of one of the two processes: always a clean end."""

from __future__ import annotations

import os
import signal
import sys
from signal import SIGHUP, SIGINT, SIGKILL, SIGQUIT, SIGTERM

import pytest

from ascend_runner.guardian import process_tree
from tests.helpers.program import WORKERS, Program, Run
from tests.helpers.waiting import is_pending, wait_until


def start_held(program: Program, module: str, *command: str) -> Run:
    """Start a run, and wait until it is held at the import of that module."""
    env = {"PYTHONPATH": str(WORKERS), "HOLD_AT": module, "HOLD_DIR": str(program.folder)}
    run = program.start("--nproc-per-node", "2", *command, env=env)
    wait_until((program.folder / "held").exists)
    return run


@pytest.mark.parametrize("signum", [SIGTERM, SIGINT])
def test_before_the_guardian_listens(program: Program, signum: signal.Signals) -> None:
    """The program dies of the signal without a traceback, and nothing was started."""
    run = start_held(program, "ascend_runner.guardian.guard", "/bin/true")
    run.send(signum)

    assert -signum == run.finish()
    assert "" == run.screen


@pytest.mark.deep(quick=3)
@pytest.mark.parametrize("signum", [SIGTERM, SIGINT, SIGHUP, SIGQUIT])
@pytest.mark.parametrize("module", ["ascend_runner.cli", "ascend_runner.settings.command_line"])
def test_while_the_runner_imports(program: Program, module: str, signum: signal.Signals) -> None:
    """The signal stays pending until the runner handles it: no rank is started, and the status is 128 + S."""
    run = start_held(program, module, "/bin/sleep", "1000")
    run.send(signum)
    wait_until(lambda: is_pending(run.runner_pid, signum))
    (program.folder / "go").touch()

    assert 128 + signum == run.finish()
    assert f"ERROR stopped by {signum.name} before any rank was started\n" in run.screen
    assert "Traceback" not in run.screen


@pytest.mark.deep(quick=1)
@pytest.mark.parametrize("signum", [SIGTERM, SIGINT])
def test_while_the_job_is_imported(program: Program, signum: signal.Signals) -> None:
    """The runner handles signals by then, and stops as soon as the modules of a job are there."""
    run = start_held(program, "ascend_runner.manager.manager", "/bin/sleep", "1000")
    os.kill(run.runner_pid, signum)
    (program.folder / "go").touch()

    assert 128 + signum == run.finish()
    assert f"ERROR stopped by {signum.name} before any rank was started\n" in run.screen


@pytest.mark.deep
def test_runner_that_hangs_at_a_disk(program: Program) -> None:
    """While the runner can take note of nothing, the second signal ends it: the guardian kills it."""
    run = start_held(program, "ascend_runner.cli", "/bin/sleep", "1000")
    run.send(SIGTERM)
    wait_until(lambda: is_pending(run.runner_pid, SIGTERM))
    run.send(SIGINT)

    assert 143 == run.finish()


def test_second_signal_while_stacks_are_collected(program: Program) -> None:
    """Slow work of the runner is cut short, so that the ranks are killed now and the report is written."""
    spied, py_spy = program.folder / "spied", program.folder / "py-spy"
    # At half of the limit, stacks are read with --nonblocking.
    py_spy.write_text(f"#!/bin/sh\ncase $* in *--nonblocking*) exit 1; esac\ntouch {spied}\nexec sleep 1000\n")
    py_spy.chmod(0o755)
    (program.folder / "python").symlink_to(sys.executable)  # py-spy is looked for beside the interpreter
    options = ("--nproc-per-node", "2", "--grace", "3600", "--hang-timeout", "0.5", "--log-dir", str(program.log_dir))
    command = [str(program.folder / "python"), "-m", "ascend_runner", *options, "sh", "-c", "trap '' TERM; sleep 1000"]
    run = program.run(command, {"MA_VJ_NAME": "job", "PYTHONPATH": os.pathsep.join(sys.path)})
    wait_until(spied.exists)
    run.send(SIGTERM)
    wait_until(lambda: not is_pending(run.popen.pid, SIGTERM))
    run.send(SIGINT)

    assert 124 == run.finish()
    assert "the runner did not respond" not in run.screen
    assert 124 == program.report()["status"]


@pytest.mark.deep(quick=1)
@pytest.mark.parametrize("signums", [(SIGTERM, SIGINT), (SIGINT, SIGTERM), (SIGTERM, SIGHUP, SIGQUIT, SIGINT, SIGTERM)])
def test_signals_in_a_row(program: Program, signums: tuple[signal.Signals, ...]) -> None:
    """Several signals in a row end the wait for the grace, and the status is that of one of them."""
    run = program.act(4, "ignore=TERM", "child=session", "say=ready", "sleep", options=("--grace", "3600"))
    run.wait_for("ready", times=4)
    for signum in signums:
        run.send(signum)

    assert run.finish() - 128 in signums


@pytest.mark.deep(quick=1)
@pytest.mark.parametrize("whom", ["runner", "guardian"])
@pytest.mark.parametrize("phase", ["spawn", "teardown"])
def test_sigkill_of_one_of_the_two(program: Program, whom: str, phase: str) -> None:
    """Either process leaves nothing behind if the other is killed, between two spawns and during a teardown."""
    grace = "1" if phase == "spawn" else "5"  # neither may end before it is killed
    run = program.act(32, "note=TERM", "child=daemon", "say=ready", "sleep", options=("--grace", grace))
    run.wait_for("ready")
    runner = run.runner_pid
    if phase == "teardown":
        run.send(SIGTERM)
        run.wait_for("got TERM")
    os.kill(runner if whom == "runner" else run.popen.pid, SIGKILL)

    assert (137 if whom == "runner" else -SIGKILL) == run.finish()
    if whom == "guardian":
        os.waitpid(runner, 0)


def test_stopped_rank_while_another_fails(program: Program) -> None:
    """A stopped rank and its child are continued, so that they can end; the first cause stays."""
    run = program.act(
        2, "1:answer=TERM:saved:0", "1:child=plain", "say=ready", f"0:await={program.folder}/go", "0:exit=3", "sleep"
    )
    run.wait_for("ready", times=2)
    _failing, stopped = process_tree.children(run.runner_pid)
    os.killpg(stopped, signal.SIGSTOP)
    wait_until(lambda: (found := process_tree.look(stopped)) and found.state == "T")
    (program.folder / "go").touch()

    assert 3 == run.finish()
    assert b"ready\nsaved\n" == program.log(1)

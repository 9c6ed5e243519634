"""No process of a job outlives it, however it hides; those that cannot be signalled are named."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from ascend_runner.guardian import process_tree
from tests.helpers.program import ACTOR, Program, ending_with_this_process
from tests.helpers.surroundings import CLEAN, permitted
from tests.helpers.waiting import LIMIT, wait_until

SOMEBODY: Final = 60_000  # a user id without processes
# Another user, who may still read an interpreter below /root.
AS_SOMEBODY: Final = (
    "setpriv",
    f"--reuid={SOMEBODY}",
    f"--regid={SOMEBODY}",
    "--clear-groups",
    "--inh-caps=+dac_read_search",
    "--ambient-caps=+dac_read_search",
)

ON_CORE: Final = ("taskset", "--cpu-list")
LOOPS: Final = 4
CHAINS: Final = 16


@pytest.fixture
def as_somebody(tmp_path: Path) -> tuple[str, ...]:
    """Return the command line that starts a program as another user, who may write to the test's directory."""
    words = permitted(*AS_SOMEBODY)
    os.chown(tmp_path, SOMEBODY, SOMEBODY)
    return words


@pytest.mark.deep(quick=1)
@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize("steps", [("headless",), ("chains=16", "say=ready", "sleep")])
def test_process_that_hides(program: Program, steps: tuple[str, ...], *, is_killed: bool) -> None:
    """Processes whose main thread has ended, and chains of processes that each start the next one and end."""
    run = program.act(1, *steps, options=("--grace", "0.2"))
    run.wait_for("ready")
    if is_killed:
        os.kill(run.runner_pid, signal.SIGKILL)
    else:
        run.send(signal.SIGTERM)

    assert (137 if is_killed else 143) == run.finish()
    assert [] == [found for found in process_tree.descendants(os.getpid()) if not found.is_zombie]


@contextmanager
def starved(core: int) -> Iterator[None]:
    """Let busy loops share a core."""
    loops = [subprocess.Popen([*ON_CORE, str(core), "sh", "-c", "while :; do :; done"]) for _ in range(LOOPS)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


@pytest.mark.deep
def test_chains_on_a_starved_machine(program: Program) -> None:
    """Chains are stopped although they have nearly all of the only processor."""
    core = max(os.sched_getaffinity(0))
    under = permitted(*ON_CORE, str(core))
    permitted("chrt", "--fifo", "1")  # needs CAP_SYS_NICE; otherwise the chains may go on for minutes
    run = program.act(1, f"chains={CHAINS}", "say=ready", "sleep", under=under)
    run.wait_for("ready")
    with starved(core):
        os.kill(run.runner_pid, signal.SIGKILL)

        assert 137 == run.finish()
    assert [] == [found for found in process_tree.descendants(os.getpid()) if not found.is_zombie]


@pytest.mark.deep(quick=1)
@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize("hidepid", [1, 2])
def test_process_that_proc_hides(
    program: Program, as_somebody: tuple[str, ...], hidepid: int, *, is_killed: bool
) -> None:
    """Undumpable processes such as ssh-agent, where /proc is mounted with hidepid and the runner is not root."""
    if tuple(map(int, os.uname().release.split(".")[:2])) < (5, 8):
        pytest.skip("hidepid belongs to the PID namespace here, not to the mount")
    script = f'mount -t proc -o hidepid={hidepid} proc /proc && exec "$@"'
    under = (*permitted("unshare", "--mount"), "sh", "-c", script, "sh", *as_somebody)
    steps = ("hide", "stubborn=daemon", "stubborn=plain", "say=ready", "sleep")
    options = ("--nproc-per-node", "2", "--grace", "0.2")
    run = program.start(*options, "env", *ACTOR, *steps, under=under)
    run.wait_for("ready", times=2)
    if is_killed:
        os.kill(run.runner_pid, signal.SIGKILL)
    else:
        run.send(signal.SIGTERM)

    assert (137 if is_killed else 143) == run.finish()
    assert "Traceback" not in run.screen
    assert [] == [found for found in process_tree.descendants(os.getpid()) if not found.is_zombie]


def test_process_of_another_user_is_named_at_once(program: Program, as_somebody: tuple[str, ...]) -> None:
    """A process that was started with sudo(8) can neither be asked nor killed, so nothing is waited for."""
    su = shutil.copy(shutil.which("setpriv") or "", program.folder / "su")
    os.chown(su, 0, 0)
    Path(su).chmod(0o4755)
    command = f"{su} --reuid=0 --regid=0 --clear-groups sleep 1000 & echo ready; exec sleep 1000"
    run = program.start("--nproc-per-node", "1", "--grace", "3600", "sh", "-c", command, under=as_somebody)
    run.wait_for("ready")
    (rank,) = process_tree.children(run.runner_pid)
    wait_until(lambda: any(found.name == "sleep" for found in process_tree.descendants(rank)) or run.popen.poll())
    (foreign,) = process_tree.children(rank)
    wait_until(lambda: os.stat(f"/proc/{foreign}").st_uid == 0)
    run.send(signal.SIGTERM)

    assert 143 == run.popen.wait(LIMIT)
    os.kill(foreign, signal.SIGKILL)
    os.waitpid(foreign, 0)
    run.finish()
    assert f"still alive after SIGKILL: rank 0: {foreign} (sleep" in run.screen


def test_detached_process_of_another_user_is_named(program: Program, as_somebody: tuple[str, ...]) -> None:
    """A daemon that has another user's ids for good is no process that was killed, but one that is still alive."""
    su = shutil.copy(shutil.which("setpriv") or "", program.folder / "su")
    os.chown(su, 0, 0)
    Path(su).chmod(0o4755)
    change = f"{su} --reuid={SOMEBODY + 1} --regid={SOMEBODY} --clear-groups"
    daemon = f"trap '' TERM\n{change} sleep 1000 &\necho $! >pid\nwhile :; do sleep 0.1; done\n"
    (program.folder / "daemon").write_text(daemon)
    script = "setsid sh daemon & until [ -s pid ]; do :; done; exit 7"
    run = program.start("--nproc-per-node", "1", "--grace", "0.5", "sh", "-c", script, under=as_somebody)

    assert 7 == run.popen.wait(LIMIT)
    pid = int((program.folder / "pid").read_text())
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    run.finish()
    named = f"still alive after SIGKILL: {pid} (sleep"
    assert any(warning.startswith(named) for warning in program.report()["warnings"])
    assert named in run.screen
    assert f" {pid} (sleep)" not in run.screen


def test_sweep_does_not_wait_for_another_user() -> None:
    """The guardian returns what it may not kill, whatever its limit."""
    permitted("setpriv", f"--reuid={SOMEBODY}")
    script = f"""
import os, time
from ascend_runner.guardian import process_tree, sweep
process_tree.become_subreaper()
child = os.fork()
if child == 0:
    os.closerange(0, 3)
    time.sleep(1000)
os.setresuid({SOMEBODY}, {SOMEBODY}, {SOMEBODY})
print(child, *(found.pid for found in sweep.sweep(frozenset(), 1e9)))
"""
    ended = subprocess.run(
        [sys.executable, "-c", script], env=CLEAN, capture_output=True, text=True, timeout=LIMIT, check=True
    )
    child, found = map(int, ended.stdout.split())
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)

    assert child == found


@pytest.mark.deep
def test_test_that_is_killed(tmp_path: Path) -> None:
    """The program under test ends with the process that runs the test."""
    if not ending_with_this_process():
        pytest.skip("needs setpriv(1)")
    start = "from tests.helpers.program import *; run = Program(Path()).act(1, 'say=up', 'sleep'); run.wait_for('up')"
    script = f"{start}; print(run.popen.pid, run.runner_pid, flush=True); run.finish()"
    environ = {**CLEAN, "PYTHONPATH": str(Path(__file__).parents[1])}
    with subprocess.Popen([sys.executable, "-c", script], cwd=tmp_path, env=environ, stdout=subprocess.PIPE) as test:
        assert test.stdout
        pids = list(map(int, test.stdout.readline().split()))
        test.kill()

    assert 2 == len(pids)
    wait_until(lambda: not any(map(process_tree.is_alive, pids)))

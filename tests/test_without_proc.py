"""/proc is missing, or belongs to another PID namespace: the ranks are stopped as usual, and no process is left."""

from __future__ import annotations

import os
import shlex
import signal

import pytest

from ascend_runner.guardian import process_tree
from tests.helpers.program import Program, Run
from tests.helpers.surroundings import permitted
from tests.helpers.waiting import LIMIT, is_gone, wait_until

MISSING = ("unshare", "--mount", "sh", "-c", 'umount -l /proc && exec "$@" 7</dev/null', "sh")
OUTER = ("unshare", "--pid", "--fork", "--kill-child")
SURROUNDINGS = [pytest.param(MISSING, id="missing"), pytest.param(OUTER, id="outer")]


def guardian_of(run: Run, under: tuple[str, ...]) -> int:
    """Return the pid of the first process of a run; unshare(1) stays above it if it forks."""
    return process_tree.children(run.popen.pid)[0] if under is OUTER else run.popen.pid


@pytest.mark.deep
@pytest.mark.parametrize("under", SURROUNDINGS)
def test_grace_is_kept(program: Program, under: tuple[str, ...]) -> None:
    """SIGTERM reaches the whole process group of each rank, and what is left of a group has the grace as well."""
    saves = f"trap 'echo asked; until [ -e {program.folder}/go ]; do sleep 0.05; done; echo saved; exit' TERM"
    child = shlex.quote(f"{saves}; echo ready; while :; do sleep 0.05; done")
    run = program.start(
        *("--nproc-per-node", "2", "--grace", "3600", "sh", "-c", f"sh -c {child} & wait"), under=permitted(*under)
    )
    run.wait_for("ready", times=2)
    guardian = guardian_of(run, under)
    ranks = process_tree.children(process_tree.children(guardian)[0])
    os.kill(guardian, signal.SIGTERM)
    run.wait_for("asked", times=2)
    wait_until(lambda: all(map(is_gone, ranks)))
    (program.folder / "go").touch()

    assert 143 == run.finish()
    assert [True] * 2 == [program.log(rank).endswith(b"\nsaved\n") for rank in range(2)]
    assert 1 == run.screen.count("WARNING /proc is missing or belongs to another PID namespace: ")


@pytest.mark.deep(quick=1)
@pytest.mark.parametrize("is_killed", [True, False])
@pytest.mark.parametrize("under", SURROUNDINGS)
def test_nothing_is_left(program: Program, under: tuple[str, ...], *, is_killed: bool) -> None:
    """Processes that ignore SIGTERM or have left their rank's session are killed, also after SIGKILL of the runner."""
    steps = ("stubborn=plain", "stubborn=group", "stubborn=session", "stubborn=daemon", "ignore=TERM", "say=ready")
    run = program.act(2, *steps, "sleep", options=("--grace", "0.2"), under=permitted(*under))
    run.wait_for("ready", times=2)
    guardian = guardian_of(run, under)
    (runner,) = process_tree.children(guardian)
    os.kill(runner if is_killed else guardian, signal.SIGKILL if is_killed else signal.SIGTERM)

    assert (137 if is_killed else 143) == run.finish()
    assert [] == [found for found in process_tree.descendants(os.getpid()) if not found.is_zombie]


def test_other_children_are_left_alone(program: Program) -> None:
    """A background job of a script that calls `exec ascend-runner` survives the job."""
    job = f"until [ -e {program.folder}/go ]; do sleep 0.01; done; echo still here"
    script = f'sh -c {shlex.quote(job)} & exec "$@"'
    run = program.act(1, "exit=3", under=(*permitted(*MISSING), "sh", "-c", script, "sh"))

    assert 3 == run.popen.wait(LIMIT)
    (program.folder / "go").touch()
    run.wait_for("still here")
    wait_until(lambda: all(map(is_gone, process_tree.children(os.getpid()))))


@pytest.mark.deep
def test_inherited_descriptors_are_closed(program: Program) -> None:
    """Without /proc/self/fd, too, the descriptors of the caller do not reach the ranks."""
    command = ("sh", "-c", "( : <&7 ) || echo closed; exit 3")
    run = program.start("--nproc-per-node", "1", *command, under=permitted(*MISSING))

    assert 3 == run.finish()
    assert program.log(0).endswith(b"\nclosed\n")


def test_processes_with_the_same_numbers_are_left_alone(program: Program) -> None:
    """A process with our pid in another PID namespace is not ours, and its children must not be killed."""
    outer = permitted("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
    code = "from ascend_runner.guardian import process_tree as tree, sweep; print(tree.children(1), sweep.sweep())"
    inner = shlex.join(["unshare", "--pid", "--fork", program.python, "-c", code])
    ended = program.shell(shlex.join([*outer, "sh", "-c", f"sleep 1000 & {inner}; kill $!"]))

    assert b"[] []\n" == ended.stdout

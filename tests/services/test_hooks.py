"""Hooks: which facts they get, how they end, and that nothing of them is left."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ascend_runner.errors import StopRequestedError
from ascend_runner.guardian import process_tree, sweep
from ascend_runner.plan.spec import JobSpec
from ascend_runner.services.hooks import Hooks
from tests.helpers import disk
from tests.helpers.plans import job_spec, rank_spec
from tests.helpers.waiting import LIMIT, wait_until

EVENT = "before-exit"


def plan(folder: Path, *commands: str) -> JobSpec:
    """Return the plan of a job with hooks for one event."""
    return job_spec([rank_spec()], log_dir=str(folder), hooks=tuple((EVENT, command) for command in commands))


def patient(_seconds: float) -> None:
    """Wait for the end of a child."""
    os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)


def run(
    folder: Path,
    *commands: str,
    limit: float = LIMIT,
    wait: Callable[[float], None] = patient,
    variables: dict[str, str] | None = None,
) -> list[str]:
    """Run hooks, and return what is said of those that have failed."""
    warnings: list[str] = []
    environ = {**os.environ, "ASCEND_RUNNER_HOOK": "x"}
    job, warn = plan(folder, *commands), warnings.append
    hooks = Hooks(job=job, event=EVENT, environ=environ, info=lambda _sentence: None, warn=warn, limit=limit)
    problems = list(hooks.run(variables or {}, wait))
    assert [] == warnings
    return problems


def log(folder: Path) -> str:
    """Read the log of the hooks."""
    return (folder / f"job-hook-{EVENT}.txt").read_text()


def test_output_and_variables(tmp_path: Path) -> None:
    """A hook is a shell command with its variables and without the runner's options; both outputs are in its log."""
    command = 'echo "$ASCEND_RUNNER_EVENT $ASCEND_RUNNER_STATE"; env | grep -c ASCEND_RUNNER_HOOK >&2; cat'

    assert [] == run(tmp_path, command, variables={"ASCEND_RUNNER_STATE": "failed"})
    assert "before-exit failed\n0\n" == log(tmp_path)


def test_failure_is_told_with_its_last_line(tmp_path: Path) -> None:
    """A hook that fails does not prevent the next one; the sentence has its own last line, without secrets."""
    shown = "hook before-exit failed: {}; see " + str(tmp_path / "job-hook-before-exit.txt")
    commands = ("echo one", "echo 'password=\"abcdefgh\"' >&2; exit 3", "kill -KILL $$", "echo four")

    assert [
        shown.format('exit status 3 (password="***")'),
        shown.format("killed by SIGKILL"),
    ] == run(tmp_path, *commands)
    assert 'one\npassword="abcdefgh"\nfour\n' == log(tmp_path)


def test_hook_that_takes_long_is_announced_once(tmp_path: Path) -> None:
    """While the job waits for it, the screen says for what, and for how long at most."""
    told: list[str] = []

    def tell(sentence: str) -> None:
        told.append(sentence)
        (tmp_path / "told").touch()

    job = plan(tmp_path, f"while ! [ -e '{tmp_path}/told' ]; do sleep 0.01; done")
    hooks = Hooks(job=job, event=EVENT, environ=dict(os.environ), info=tell, warn=pytest.fail, silence=0.0)

    assert [] == list(hooks.run({}, lambda _seconds: None))
    log_path = tmp_path / "job-hook-before-exit.txt"
    assert [f"waiting for hook before-exit (timeout 60 s); see {log_path}"] == told


@pytest.mark.parametrize(
    "command",
    [
        "exec sleep 1000",
        "trap '' TERM INT HUP; sleep 1000; sleep 1000",
        "setsid sleep 1000 & sleep 1000",
        "(trap '' TERM; setsid sh -c 'sleep 1000; true' &) ; exec sleep 1000",
    ],
)
def test_hook_that_hangs_is_killed_with_everything_it_has_started(tmp_path: Path, command: str) -> None:
    """At its limit a hook is killed, and so is what has left its session; nothing may ignore that."""
    before = process_tree.children(os.getpid())
    problems = run(tmp_path, command, limit=0.2, wait=lambda _seconds: None)

    assert [True] == ["timed out after 0.2 s and was killed" in problem for problem in problems]
    assert before == process_tree.children(os.getpid())


def test_stragglers_do_not_outlive_their_hook(tmp_path: Path) -> None:
    """What a hook leaves behind is killed at its end, also after a success."""
    before = process_tree.children(os.getpid())

    assert [] == run(tmp_path, "setsid sleep 1000 & sleep 1000 & exit 0")
    assert before == process_tree.children(os.getpid())


def test_stop_signal_ends_a_hook(tmp_path: Path) -> None:
    """What the wait raises ends the hook at once, and the next one does not start."""
    before = process_tree.children(os.getpid())

    def stopped(_seconds: float) -> None:
        wait_until(lambda: log(tmp_path))
        raise StopRequestedError(15, "SIGTERM")

    with pytest.raises(StopRequestedError):
        run(tmp_path, "echo ready; sleep 1000", "echo another", wait=stopped)
    assert before == process_tree.children(os.getpid())
    assert "ready\n" == log(tmp_path)


def test_processes_beside_a_hook_are_spared(tmp_path: Path) -> None:
    """A child that was there before is not the hook's."""
    pid = os.posix_spawn("/bin/sleep", ["sleep", "60"], {})
    try:
        assert [] == run(tmp_path, "true", wait=lambda _seconds: None)
        assert (0, 0) == os.waitpid(pid, os.WNOHANG)
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)


def test_disk_of_the_log_that_hangs_is_given_up(tmp_path: Path) -> None:
    """The runner goes on, although neither the hook nor its log can be ended."""
    if not disk.is_possible():
        pytest.skip("a disk that hangs needs bindfs(1), /dev/fuse and root")
    before = process_tree.children(os.getpid())
    mounted = disk.Disk(tmp_path)
    mounted.mount()
    warnings: list[str] = []
    job = plan(mounted.path, f"kill -STOP {mounted.pid}; echo lost; exec sleep 1000")
    hooks = Hooks(
        job=job, event=EVENT, environ=dict(os.environ), info=pytest.fail, warn=warnings.append, limit=0.2, silence=LIMIT
    )
    try:
        problems = list(hooks.run({}, lambda _seconds: None))
    finally:
        mounted.unmount()

    assert [True] == ["timed out" in problem for problem in problems]
    wait_until(lambda: not sweep.reap_adopted(keep=frozenset(before)))


def test_log_that_cannot_be_written_is_a_warning(tmp_path: Path) -> None:
    """The hook runs, and its output is lost."""
    warnings: list[str] = []
    job = plan(tmp_path / "missing", f"touch {tmp_path / 'ran'}")
    hooks = Hooks(job=job, event=EVENT, environ=dict(os.environ), info=pytest.fail, warn=warnings.append)
    problems = list(hooks.run({}, patient))

    assert ([], 1, True) == (problems, len(warnings), (tmp_path / "ran").exists())


@pytest.mark.parametrize("fault", ["LOSE", "HANG"])
def test_disk_of_the_log_before_a_hook(tmp_path: Path, fault: str) -> None:
    """The warning tells a disk that is gone from one that hangs; the hook runs."""
    if not disk.is_possible():
        pytest.skip("a disk that hangs needs bindfs(1), /dev/fuse and root")
    warnings: list[str] = []
    mounted = disk.Disk(tmp_path)
    mounted.mount()
    job = plan(mounted.path, f"touch {tmp_path / 'ran'}")
    hooks = Hooks(job=job, event=EVENT, environ=dict(os.environ), info=pytest.fail, warn=warnings.append)
    mounted.inject(fault)
    try:
        problems = list(hooks.run({}, patient))
    finally:
        mounted.unmount()

    (warning,) = warnings
    assert (fault == "HANG") is ("no response from its disk" in warning)
    assert warning.endswith("; the output of the hook is lost")
    assert ([], True) == (problems, (tmp_path / "ran").exists())

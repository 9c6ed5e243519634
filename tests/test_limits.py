"""Limits reached half-way: descriptors, processes, the environment. Started ranks are stopped."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.helpers.program import WORKERS, Program
from tests.helpers.surroundings import CLEAN, permitted

LONGEST = 128 * 1024  # bytes of one string that a program is started with, its end included (execve(2))
NOBODYS = 54321  # a user without processes


@pytest.fixture
def elsewhere() -> Iterator[Program]:
    """Return a way to run the program as another user, who can read the interpreter and write its directory."""
    folder = Path(tempfile.mkdtemp(prefix="ascend-runner-test-"))
    folder.chmod(0o777)
    program = Program(folder)
    yield program
    program.close()
    shutil.rmtree(folder)


@pytest.mark.deep(quick=3)
@pytest.mark.parametrize("limit", [*range(5, 50), 60, 62, 64, 66])
def test_descriptors(program: Program, limit: int) -> None:
    """RLIMIT_NOFILE reached at any point: 125, the cause in one sentence, and no process left."""
    run = program.start("--verbose", "--nproc-per-node", "16", "sleep", "1000", under=limited(f"-n {limit}"))

    assert 125 == run.finish()
    assert "too many open files" in run.screen
    assert "Traceback" not in run.screen
    if limit >= 60:
        assert "DEBUG rank 0 has pid " in run.screen
        assert ": too many open files (RLIMIT_NOFILE, see ulimit -n)\n" in run.screen


@pytest.mark.deep(quick=2)
@pytest.mark.parametrize("limit", [1, 2, 3, 4, 10])
def test_processes(elsewhere: Program, limit: int) -> None:
    """The same for RLIMIT_NPROC, reached by the guardian, a thread or a rank."""
    run = elsewhere.start("--verbose", "--nproc-per-node", "16", "sleep", "1000", under=with_processes(limit))

    assert 125 == run.finish()
    assert "(RLIMIT_NPROC, see ulimit -u, " in run.screen
    assert "Traceback" not in run.screen
    if limit >= 10:
        assert "DEBUG rank 0 has pid " in run.screen
        assert ": resource temporarily unavailable (RLIMIT_NPROC, see ulimit -u, " in run.screen


@pytest.mark.deep(quick=2)
@pytest.mark.parametrize("limit", [2, 3, 4, 5, 6])
def test_processes_of_simulated_nodes(elsewhere: Program, limit: int) -> None:
    """The same with --simulate, for the runner of a node or a process of it."""
    run = elsewhere.start("--simulate", "2x2", "sleep", "1000", under=with_processes(limit))

    assert 125 == run.finish()
    assert "(RLIMIT_NPROC, see ulimit -u, " in run.screen
    assert "Traceback" not in run.screen


@pytest.mark.parametrize("module", ["ascend_runner.errors", "ascend_runner.cli", "ascend_runner.manager.manager"])
def test_memory(program: Program, module: str) -> None:
    """Memory that runs out at an import of the guardian or of the runner: the same."""
    env = {"PYTHONPATH": str(WORKERS), "EXHAUSTED_AT": module}
    run = program.start("--nproc-per-node", "2", "true", env=env)

    assert 125 == run.finish()
    assert "ERROR cannot run: not enough memory (RLIMIT_AS, see ulimit -v" in run.screen
    assert "Traceback" not in run.screen


def test_no_process_and_no_screen(elsewhere: Program) -> None:
    """125 even if the guardian cannot start anything and stderr is closed."""
    closed = ("sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh")

    assert 125 == elsewhere.start("--nproc-per-node", "1", "true", under=(*with_processes(1), *closed)).finish()


def test_long_strings_in_the_environment(program: Program) -> None:
    """Strings of 128 KiB reach the ranks whole."""
    values = {name: "x" * (LONGEST - len(f"{name}=") - 1) for name in ("LONG_0", "LONG_1", "LONG_2")}
    run = program.start("--nproc-per-node", "2", "sh", "-c", "echo ${#LONG_0} ${#LONG_1} ${#LONG_2}", env=values)

    assert 0 == run.finish()
    assert b"131064 131064 131064\n" == program.log(0) == program.log(1)


def test_no_room_for_the_ranks_variables(program: Program) -> None:
    """125 and the cause if the runner's environment just fits, and that of the ranks does not."""
    small = permitted("prlimit", "--stack=1048576")  # a quarter of it is for words and variables (execve(2))

    def variables(size: int) -> dict[str, str]:
        return {"LONG": "x" * (LONGEST - 100), "FILL": "x" * size}

    def fits(size: int) -> bool:
        words = [*small, "/bin/true", *["x" * 64] * 6]  # about as long as the runner's
        env = {**CLEAN, **variables(size)}
        return subprocess.run(words, env=env, stderr=subprocess.DEVNULL, check=False).returncode == 0

    run = program.start("--nproc-per-node", "2", "true", env=variables(largest(fits)), under=small)

    assert 125 == run.finish()
    assert "cannot start rank 0: argument list too long" in run.screen


def largest(fits: Callable[[int], bool]) -> int:
    """Find the largest size that fits."""
    low, high = 0, LONGEST - 100
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


@pytest.mark.deep(quick=1)
@pytest.mark.parametrize("name", ["MA_VJ_NAME", "BATCH_JOB_ID"])
def test_long_job_id(program: Program, name: str) -> None:
    """An impossible file name is an error of one sentence."""
    run = program.start("--nproc-per-node", "2", "true", env={name: "x" * 100_000})

    assert 125 == run.finish()
    assert "file name too long" in run.screen
    assert "Traceback" not in run.screen


def with_processes(limit: int) -> tuple[str, ...]:
    """Return the words that start a program as a user with a limit of processes."""
    user = f"{NOBODYS + os.getpid() % 1000}"
    capability = "+dac_read_search"  # the interpreter may stand in a directory of root's
    ids = ("--reuid", user, "--regid", user, "--clear-groups")
    another = permitted("setpriv", *ids, "--inh-caps", capability, "--ambient-caps", capability)
    return (*another, "prlimit", f"--nproc={limit}:{limit}")


def limited(options: str) -> tuple[str, ...]:
    """Return the words that start a program under a shell's limits."""
    return ("sh", "-c", f'ulimit {options} && exec "$@"', "sh")

"""The program runs beside another job, in a deleted directory, and beside files named like modules of Python."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys

import pytest

from tests.helpers.program import Program
from tests.helpers.surroundings import permitted


def test_second_job_of_the_same_name_is_refused(program: Program) -> None:
    """A second job that would write the same log files ends with 125, and the first one is not affected."""
    first = program.act(1, "answer=TERM:saved:0", "say=ready", "sleep")
    first.wait_for("ready")
    second = program.act(1, "say=second")

    assert 125 == second.finish()
    assert "--log-dir" in second.screen
    first.send(signal.SIGTERM)
    assert 143 == first.finish()
    assert b"ready\nsaved\n" == program.log(0)


def test_earlier_log_is_kept(program: Program) -> None:
    """A job that is run again keeps the log file of its first run under another name."""
    assert 0 == program.act(1, "say=first").finish()
    assert 0 == program.act(1, "say=second").finish()

    assert b"second\n" == program.log(0)
    assert b"first\n" == (program.log_dir / "run-1" / "job-proc-rank-0-device-0.txt").read_bytes()


def test_deleted_working_directory_is_an_error(program: Program) -> None:
    """In a deleted working directory the program ends with 125 and one error, without a traceback."""
    command = f"mkdir gone; cd gone; rmdir ../gone; exec {program.python} -m ascend_runner --nproc-per-node 1 true"
    ended = program.shell(command)

    assert 125 == ended.returncode
    assert 1 == ended.stdout.count(b"\n")
    assert b" ERROR " in ended.stdout


@pytest.mark.deep(quick=1)
@pytest.mark.parametrize("workdir", ["inherit", "/"])
def test_entry_without_a_name_in_the_environment(program: Program, workdir: str) -> None:
    """An entry without a name, which some container runtimes pass, is dropped."""
    words = ["-m", "ascend_runner", "--nproc-per-node", "1", "--workdir", workdir, "--log-dir", "log", "true"]
    code = f"""
import ctypes, os
def strings(*texts):
    return (ctypes.c_char_p * (len(texts) + 1))(*map(os.fsencode, texts), None)
program = {program.python!r}
ctypes.CDLL(None).execve(os.fsencode(program), strings(program, *{words!r}), strings("=x", "PATH=/usr/bin:/bin"))
"""
    ended = program.shell(f"exec {program.python} -c {shlex.quote(code)}")

    assert (0, False) == (ended.returncode, b"Traceback" in ended.stdout), ended.stdout


def test_modules_in_the_working_directory_are_not_imported(program: Program) -> None:
    """`python -m ascend_runner` works beside a subprocess.py or select.py of the user."""
    for name in ("subprocess", "select", "signal", "json", "fcntl"):
        (program.folder / f"{name}.py").write_text("raise SystemExit('not me')")

    assert 3 == program.act(1, "exit=3").finish()


@pytest.mark.deep(quick=1)
@pytest.mark.parametrize("value", ["abc", ":", "1:2:3", "1:999", "-1:-1", "1:99999999999999999999"])
def test_variable_that_looks_like_a_call_of_launch(program: Program, value: str) -> None:
    """A value of ASCEND_RUNNER_LAUNCH that `launch()` has not set is ignored with a warning."""
    run = program.start("--nproc-per-node", "1", "true", env={"ASCEND_RUNNER_LAUNCH": value})

    assert 0 == run.finish()
    assert "WARNING ignoring unknown variable ASCEND_RUNNER_LAUNCH" in run.screen


@pytest.mark.deep(quick=1)
@pytest.mark.parametrize("stdin", ["", "<&-"])
def test_empty_dev(program: Program, stdin: str) -> None:
    """In a container without /dev/null the program says that this is missing, not that the command is."""
    permitted("unshare", "--mount")
    words = f"{program.python} -m ascend_runner --nproc-per-node 1 --log-dir log true"
    ended = program.shell(f"unshare --mount sh -c 'mount -t tmpfs none /dev && exec {words} {stdin}'")

    assert 125 == ended.returncode
    assert b"/dev/null" in ended.stdout
    assert b"Traceback" not in ended.stdout


@pytest.mark.deep(quick=1)
@pytest.mark.parametrize("how", ["PYTHONPATH", "current directory"])
def test_modules_that_are_meant_for_the_ranks(program: Program, how: str) -> None:
    """Modules named like Python's own, or like those of the runner's libraries, reach the ranks alone, unchanged.

    Those that `python -m` itself imports, before the runner's first statement, are a limit that README names.
    """
    code = "import runpy, sys; print(*sys.modules)"
    too_early = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True).stdout
    names = {"typing", "signal", "select", "errno", "json", "threading", "subprocess", "attr", "attrs", "orjson"}
    for name in names.difference(too_early.split()):
        (program.folder / f"{name}.py").write_text("raise RuntimeError\n")
    env = {"PYTHONPATH": str(program.folder)} if how == "PYTHONPATH" else {}
    run = program.start("--nproc-per-node", "1", "sh", "-c", 'echo "path=$PYTHONPATH"', env=env)

    assert 0 == run.finish()
    assert f"path={env.get('PYTHONPATH', '')}\n".encode() == program.log(0)

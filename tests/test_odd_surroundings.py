"""The program runs beside another job, in a deleted folder, and beside files named like modules of Python."""

from __future__ import annotations

import shlex
import signal

import pytest

from tests.helpers.program import Program


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

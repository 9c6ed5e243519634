"""Where users start it: beside another job, in a deleted folder, beside files named like Python's own modules."""

from __future__ import annotations

import shlex
import signal
from typing import TYPE_CHECKING

import pytest

from ascend_runner.linux.log_file import LogFile, Rotation

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Program


def test_second_job_of_the_same_name_is_refused(program: Program) -> None:
    """Two jobs must not write the same logs: the second ends with 125, the first one's log is whole."""
    first = program.act(1, "answer=TERM:saved:0", "say=ready", "sleep")
    first.wait_for("ready")
    second = program.act(1, "say=second")

    assert second.finish() == 125
    assert "is being written by another job of the same name: choose another --log-dir" in second.screen
    first.send(signal.SIGTERM)
    assert first.finish() == 143
    assert program.log(0) == b"ready\nsaved\n"


def test_earlier_log_is_kept(program: Program) -> None:
    """A job that is run again puts the log of its first run aside, and loses nothing."""
    assert program.act(1, "say=first").finish() == 0
    assert program.act(1, "say=second").finish() == 0

    assert program.log(0) == b"second\n"
    assert (program.log_dir / "job-proc-rank-0-device-0.run-1.txt").read_bytes() == b"first\n"


def test_deleted_folder_is_one_sentence(program: Program) -> None:
    """Started in a folder that is gone, it says so, with 125 and without a traceback."""
    command = f"mkdir gone; cd gone; rmdir ../gone; exec {program.python} -m ascend_runner --nproc-per-node 1 true"
    ended = program.shell(command)

    assert ended.returncode == 125
    assert b"ERROR the current folder cannot be used: no such file or directory; change to another\n" in ended.stdout
    assert b"Traceback" not in ended.stdout


@pytest.mark.parametrize("workdir", ["inherit", "/"])
def test_entry_without_a_name_in_the_environment(program: Program, workdir: str) -> None:
    """Whoever started the container may have put one there; it is dropped, and the job runs."""
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


def test_users_modules_do_not_shadow_pythons(program: Program) -> None:
    """`python -m ascend_runner` beside a subprocess.py or select.py of the user's runs all the same."""
    for name in ("subprocess", "select", "signal", "json", "fcntl"):
        (program.folder / f"{name}.py").write_text("raise SystemExit('not me')")

    assert program.act(1, "exit=3").finish() == 3


def test_failing_close_is_told_and_harmless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Network file systems tell at close what they could not write: it is said, and nothing stops for it."""
    told: list[str] = []
    log = LogFile(str(tmp_path / "log"), Rotation(), told.append)

    def close(_fd: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr("os.close", close)
        log.close()

    assert [f"closing '{tmp_path}/log' failed: input/output error; its last lines may be missing"] == told

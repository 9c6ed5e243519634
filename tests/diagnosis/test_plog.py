"""The newest plog of a rank, and the errors in it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ascend_runner.diagnosis import failed_rank
from ascend_runner.diagnosis.failed_rank import Plog

ERROR = "[ERROR] HCCL(4711,python3):2026-03-18-10:33:52.113.403 [hccl_socket_manager.cc:797] wait socket timeout"
NOISE = "[INFO] RUNTIME(4711,python3):2026-03-18-10:33:50.000.000 started"


def write(folder: Path, kind: str, name: str, text: str, written_at: float = 1000.0) -> str:
    """Write a plog with this modification time and return its path."""
    path = folder / kind / "plog" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, (written_at, written_at))
    return str(path)


def test_first_error(tmp_path: Path) -> None:
    """The first ERROR line of the newest file is returned, with the lines that follow it."""
    write(tmp_path, "debug", "plog-1_20260318.log", f"{ERROR} old\n", 1000)
    path = write(tmp_path, "debug", "plog-1_20260319.log", f"{NOISE}\n{ERROR}\n[ERROR] next\n", 2000)

    assert Plog(path, (ERROR, "[ERROR] next")) == failed_rank.newest(str(tmp_path))


def test_nothing_there(tmp_path: Path) -> None:
    """A rank that never loaded CANN has no plog."""
    assert failed_rank.newest(str(tmp_path)) is None
    assert failed_rank.newest(str(tmp_path / "missing")) is None


def test_no_errors(tmp_path: Path) -> None:
    """A plog without errors is returned, too."""
    path = write(tmp_path, "debug", "plog-1_1.log", f"{NOISE}\n")

    assert Plog(path) == failed_rank.newest(str(tmp_path))


def test_errors_in_the_run_log(tmp_path: Path) -> None:
    """If only the run log contains errors, it is chosen."""
    write(tmp_path, "debug", "plog-1_1.log", "")
    path = write(tmp_path, "run", "plog-1_1.log", f"{ERROR}\n")

    assert Plog(path, (ERROR,)) == failed_rank.newest(str(tmp_path))


def test_earlier_run(tmp_path: Path) -> None:
    """Files written before the start of the rank belong to an earlier run."""
    write(tmp_path, "debug", "plog-1_1.log", f"{ERROR}\n", written_at=1000)

    assert failed_rank.newest(str(tmp_path), since=1500) is None


def test_folder_of_all_ranks(tmp_path: Path) -> None:
    """In a directory shared by all ranks, only the files of the rank's processes count."""
    path = write(tmp_path, "debug", "plog-4711_1.log", f"{ERROR}\n", 1000)
    write(tmp_path, "debug", "plog-47_1.log", f"{ERROR} of another\n", 2000)

    assert Plog(path, (ERROR,)) == failed_rank.newest(str(tmp_path), pids=(4711,))
    assert failed_rank.newest(str(tmp_path), pids=(5,)) is None


@pytest.mark.parametrize("name", ["plog-1_1.log.gz", "x-plog-1_1.log", "plog-a_1.log", "device-1_1.log"])
def test_other_files(tmp_path: Path, name: str) -> None:
    """Files with other names do not count."""
    write(tmp_path, "debug", name, f"{ERROR}\n")

    assert failed_rank.newest(str(tmp_path)) is None


def test_special_files(tmp_path: Path) -> None:
    """A symlink, a directory or a FIFO in place of a file is neither followed nor waited for."""
    folder = tmp_path / "debug" / "plog"
    folder.mkdir(parents=True)
    secret = tmp_path / "secret"
    secret.write_text(ERROR)
    (folder / "plog-1_1.log").symlink_to(secret)
    (folder / "plog-2_1.log").mkdir()
    os.mkfifo(folder / "plog-3_1.log")

    assert failed_rank.newest(str(tmp_path)) is None


def test_error_far_into_the_file(tmp_path: Path) -> None:
    """The first error is found after megabytes of other lines, and the lines returned are bounded."""
    noise = f"{NOISE}\n" * 50_000
    path = write(tmp_path, "debug", "plog-1_1.log", noise + f"{ERROR}\n" + noise)
    found = failed_rank.newest(str(tmp_path))

    assert found
    assert (path, ERROR) == (found.path, found.errors[0])
    assert len(found.errors) <= failed_rank.ERRORS_LIMIT

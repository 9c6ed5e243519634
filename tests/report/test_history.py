"""The history of a user's jobs: bounded, private, and no concern of a job."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from ascend_runner.node.bounded import Patience
from ascend_runner.report import history
from ascend_runner.report.history import History
from ascend_runner.report.writing import WriteQueue
from tests.helpers.waiting import wait_until

REPORT = {"state": "failed", "status": 7, "ended_at": "2026-11-28T07:00:00+00:00", "cause": None, "ranks": [{}] * 1000}


def run_file(began: float = 1_795_000_000.5, **members: object) -> bytes:
    """Return what a runner says of its job."""
    return json.dumps({"began": began, "host": "h", "pid": 7, "command": ["true"], **members}).encode()


def record(folder: Path | str, content: bytes, report: object = REPORT) -> list[str]:
    """Keep the record of a job that has ended; return the warnings."""
    warnings: list[str] = []
    one = History(str(folder), WriteQueue(Patience(warn=warnings.append)))
    one.begin(content)
    one.finish(report)  # type: ignore[arg-type]
    return warnings


@pytest.mark.parametrize(
    ("expected", "environ"),
    [
        ("/home/u/.local/state/ascend-runner/history", {"HOME": "/home/u"}),
        ("/state/ascend-runner/history", {"HOME": "/home/u", "XDG_STATE_HOME": "/state"}),
        ("", {"HOME": "/home/u", "XDG_STATE_HOME": "relative"}),
        ("", {}),
    ],
)
def test_directory(expected: str, environ: dict[str, str]) -> None:
    """It is that of the XDG Base Directory Specification, which ignores relative paths."""
    assert expected == history.folder(environ)


def test_record_of_an_ended_job(tmp_path: Path) -> None:
    """It has how the job ended, without its ranks, and nobody else can read it."""
    assert [] == record(tmp_path / "state/ascend-runner", run_file())

    (path,) = (tmp_path / "state/ascend-runner").iterdir()
    assert {"state", "status", "ended_at", "cause"} == json.loads(path.read_bytes())[history.END].keys()
    assert (0o600, 0o700) == tuple(stat.S_IMODE(one.stat().st_mode) for one in (path, path.parent))


def test_number_and_size_are_bounded(tmp_path: Path) -> None:
    """The oldest records go first, and a long command is cut."""
    for number in range(history.MOST_JOBS + 5):
        (tmp_path / f"{number:017.6f}-h-1.json").write_bytes(b"{}")
    record(tmp_path, run_file(command=["x" * 900, *map(str, range(100_000))]))
    names = sorted(os.listdir(tmp_path))
    (tmp_path / "0000000009.000000-h-1.json").write_bytes(bytes(history.MOST_BYTES))
    record(tmp_path, run_file(began=1_795_000_001.5))

    assert history.MOST_JOBS == len(names)
    assert ("0000000006.000000-h-1.json", "1795000000.500000-h-7.json") == (names[0], names[-1])
    assert (tmp_path / names[-1]).stat().st_size < history.LONGEST_COMMAND + 1000
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < history.MOST_BYTES


def test_renamed_job_has_one_record(tmp_path: Path) -> None:
    """A job that learns its node from the rank table replaces its record."""
    one = History(str(tmp_path), WriteQueue(Patience()))
    one.begin(run_file())
    one.begin(run_file(began=1_795_000_000.9, part="-node-1"))
    one.finish({})

    (path,) = tmp_path.iterdir()
    assert "-node-1" == json.loads(path.read_bytes())["part"]


def test_home_that_cannot_be_used(tmp_path: Path) -> None:
    """No directory, a file in its place, or one of another user: there is no record and no warning."""
    (tmp_path / "file").touch()
    (tmp_path / "other").mkdir()
    warnings = record("", run_file()) + record(tmp_path / "file/x", run_file())
    if os.geteuid() == 0:
        os.chown(tmp_path / "other", 65534, 65534)
        warnings += record(tmp_path / "other/x", run_file())

    assert [] == warnings
    assert [] == [*(tmp_path / "other").iterdir()]


def test_running_job_is_recorded(tmp_path: Path) -> None:
    """A machine that loses power has the record of a job that ran then."""
    one = History(str(tmp_path), WriteQueue(Patience()))
    one.begin(run_file())
    wait_until(lambda: [*tmp_path.iterdir()])
    one.finish({})

"""The directory of a job, which the runner and its ranks share while they run."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import sys
import tempfile
from pathlib import Path

import pytest

from ascend_runner.guardian import process_tree
from ascend_runner.services import run_folder
from tests.helpers.package_source import PACKAGE
from tests.helpers.plans import job_spec, rank_spec
from tests.helpers.program import WORKERS, Program


@pytest.fixture
def tmp_path(in_memory: Path) -> Path:
    """Return a directory whose path is short enough for sockets, also for `program`."""
    return in_memory


def test_directory_is_private_and_goes_with_the_run(tmp_path: Path) -> None:
    """It is this user's alone, in the place that a variable names, and removed with what is in it."""
    environ = {run_folder.RUN_DIR_VARIABLE: str(tmp_path / "run")}
    with run_folder.opened(environ, pytest.fail) as first, run_folder.opened(environ, pytest.fail) as second:
        Path(first, "checkpoint-requests").touch()
        modes = [stat.S_IMODE(os.stat(path).st_mode) for path in (tmp_path / "run", first, second)]

    assert [0o700] * 3 == modes
    assert first != second
    assert [] == os.listdir(tmp_path / "run")


def test_directories_of_killed_runs_are_removed(tmp_path: Path) -> None:
    """Directories with free locks are removed; those of living runs stay."""
    environ = {run_folder.RUN_DIR_VARIABLE: str(tmp_path)}
    (tmp_path / "run-killed").mkdir()
    with run_folder.opened(environ, pytest.fail) as living, run_folder.opened(environ, pytest.fail):
        left = os.listdir(tmp_path)

    assert "run-killed" not in left
    assert os.path.basename(living) in left


def test_directories_of_others_stay_as_they_are(tmp_path: Path) -> None:
    """The place for run directories may hold other ones, whose content is nobody's business."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "precious").touch()
    with run_folder.opened({run_folder.RUN_DIR_VARIABLE: str(tmp_path)}, pytest.fail):
        pass

    assert (tmp_path / "data" / "precious").exists()


def test_directory_that_another_run_removes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another run may take a new directory for abandoned: a second one in the same place is made."""
    make, made = tempfile.mkdtemp, []

    def taken(**options: str) -> str:
        made.append(make(**options))
        if len(made) == 1:
            os.rmdir(made[0])
        return made[-1]

    monkeypatch.setattr(tempfile, "mkdtemp", taken)
    with run_folder.opened({run_folder.RUN_DIR_VARIABLE: str(tmp_path)}, pytest.fail) as folder:
        assert made[1:] == [folder]


def test_job_file_stays_until_there_are_newer_ones(tmp_path: Path) -> None:
    """Of a job that has ended or was killed only its records stay, and only those of the newest jobs are kept."""
    environ = {run_folder.RUN_DIR_VARIABLE: str(tmp_path)}
    for number in range(run_folder.JOBS_KEPT + 5):
        with run_folder.opened(environ, pytest.fail) as folder:
            job_file = Path(folder, run_folder.JOB_FILE)
            job_file.write_text(f"{number}")
            os.utime(job_file, (number, number))
            Path(folder, "checkpoint-requests").touch()
    killed = tmp_path / "run-killed"
    killed.mkdir()
    (killed / "job.json").write_text("killed")
    (killed / run_folder.REPORT_FILE).write_text("killed")
    (killed / "control").touch()
    with run_folder.opened(environ, pytest.fail):
        pass
    left = {path: path.read_text() for path in tmp_path.glob("*/*")}

    assert {"killed", *map(str, range(6, run_folder.JOBS_KEPT + 5))} == set(left.values())
    assert {run_folder.JOB_FILE, run_folder.REPORT_FILE} == {path.name for path in left}


def test_job_file_tells_where_the_job_is(tmp_path: Path) -> None:
    """It names the first process, the one that called, and its identity; secrets in the command are masked."""
    job = job_spec([rank_spec()], log_dir="/logs", job_id="train")
    content = run_folder.write_job_file(job, str(tmp_path), ("python", "train.py", "--api-key", "abc"))
    record = json.loads(content)

    found = process_tree.look(os.getppid())
    assert found
    assert (os.getppid(), found.started) == (record["pid"], record["started"])
    assert ("train", "", "/logs", str(tmp_path)) == tuple(
        record[name] for name in ("job_id", "part", "log_dir", "run_folder")
    )
    assert ["python", "train.py", "--api-key", "***"] == record["command"]
    assert content == (tmp_path / run_folder.JOB_FILE).read_bytes()


def test_each_attempt_has_its_own_files(program: Program) -> None:
    """The directory lives as long as the job; an attempt finds nothing in it that an earlier one has made there."""
    env = {run_folder.RUN_DIR_VARIABLE: str(program.folder / "run")}
    script = 'ls -m "$(dirname "$NOTIFY_SOCKET")"; touch "$(dirname "$NOTIFY_SOCKET")/mine"; exit 7'
    options = ("--nproc-per-node", "1", "--max-restarts", "1", "--hang-timeout", "1h")
    run = program.start(*options, "sh", "-c", script, env=env)

    assert 7 == run.finish()
    assert 2 == run.screen.count("[rank 0] control, job.json, notify-0\n")
    assert ["job.json"] == [path.name for path in (program.folder / "run").glob("*/*")]


def test_places_of_others_are_not_used(tmp_path: Path) -> None:
    """For a link, a directory that others can write to, a relative or long path: the next one, and a warning."""
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "link").symlink_to(tmp_path)
    good = {"XDG_RUNTIME_DIR": str(tmp_path)}
    for name in (str(tmp_path / "open"), str(tmp_path / "link"), "relative", "/" + "x" * 100, "/proc/1/x"):
        warnings: list[str] = []
        with run_folder.opened({run_folder.RUN_DIR_VARIABLE: name, **good}, warnings.append) as folder:
            assert folder.startswith(f"{tmp_path}/ascend-runner/")
        assert [f"cannot use {run_folder.RUN_DIR_VARIABLE}={name}"] == [line.partition(":")[0] for line in warnings]


def test_ranks_save_at_the_same_step(program: Program) -> None:
    """SIGUSR1 to the runner asks all ranks, which run at their own pace, for a checkpoint after one step."""
    env = {"PYTHONPATH": str(PACKAGE.parent), run_folder.RUN_DIR_VARIABLE: str(program.folder / "run")}
    run = program.start("--nproc-per-node", "4", sys.executable, str(WORKERS / "saves.py"), env=env)
    run.wait_for("ready", times=4)
    run.send(signal.SIGUSR1)

    assert 0 == run.finish()
    assert 1 == len(set(re.findall(r"saved (\d+)", run.screen)))
    assert 4 == run.screen.count("saved ")
    assert ["job.json"] == [path.name for path in (program.folder / "run").glob("*/*")]

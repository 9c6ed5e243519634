"""The directories of earlier runs in ./logs: which ones are removed, and which ones never."""

from __future__ import annotations

import fcntl
import itertools
import json
import os
from pathlib import Path

import pytest

from ascend_runner.plan.spec import JobSpec
from ascend_runner.ranks.log_folder import REMOVE_LIMIT, remove_old
from tests.helpers.plans import job_spec, rank_spec

FILES = (
    "train.lock",
    "train-report.json",
    "train-events.jsonl",
    "train-proc-rank-0-device-0.txt",
    "train-rerun-rank-0.sh",
)


def name_of(number: int, job_id: str = "train") -> str:
    """Return the name of the directory of a run."""
    return f"{job_id}-20261122-0304{number:02}.123456"


def lay(logs: Path, number: int, *, ended: int | None = None) -> Path:
    """Lay out the directory of a run, with CANN's logs, a rank table and an empty working directory."""
    folder = logs / name_of(number)
    (folder / "train" / "ascend" / "process_log" / "rank_0").mkdir(parents=True)
    (folder / "train" / "ascend" / "process_log" / "rank_0" / "plog-1.log").touch()
    (folder / "device0").mkdir()
    (folder / "rank_table").mkdir()
    (folder / "rank_table" / "jobstart_hccl.json").touch()
    for name in FILES:
        (folder / name).touch()
    os.utime(folder / "train-report.json", (number if ended is None else ended,) * 2)
    return folder


def job(logs: Path, keep: int = 2) -> JobSpec:
    """Make a job whose own directory is the newest."""
    own = lay(logs, 59)
    link = str(logs / "latest")
    return job_spec([rank_spec()], job_id="train", log_dir=str(own), log_runs=keep, newest_link=link)


def left(logs: Path) -> list[str]:
    """Return the seconds in the names of the directories that are left, but for the job's own."""
    return sorted(path.name.partition(".")[0][-2:] for path in logs.iterdir() if "59." not in path.name)


def test_runs_that_ended_first_are_removed(tmp_path: Path) -> None:
    """The newest runs by their end stay, whenever they began, and the job's own is not one of them."""
    made = job(tmp_path)
    for number, ended in ((1, 40), (2, 20), (3, 30), (4, 4)):
        lay(tmp_path, number, ended=ended)
    removed = remove_old(made, pytest.fail)

    assert ["01", "03"] == left(tmp_path)
    assert (str(tmp_path / name_of(2)), str(tmp_path / name_of(4))) == removed


def test_newest_success_stays(tmp_path: Path) -> None:
    """The newest run that succeeded stays, whatever has run since, and an older one does not."""
    made = job(tmp_path, keep=1)
    for number, state in ((1, "succeeded"), (2, "succeeded"), (3, "failed"), (4, "stopped"), (5, "failed")):
        report = lay(tmp_path, number) / "train-report.json"
        report.write_text(json.dumps({"state": state}))
        os.utime(report, (number, number))
    remove_old(made, pytest.fail)

    assert ["02", "05"] == left(tmp_path)


def test_few_runs_stay(tmp_path: Path) -> None:
    """Up to the number of runs to keep, nothing is removed."""
    made = job(tmp_path)
    lay(tmp_path, 1)
    lay(tmp_path, 2)
    remove_old(made, pytest.fail)

    assert ["01", "02"] == left(tmp_path)


def test_run_that_has_not_ended_stays(tmp_path: Path) -> None:
    """A lock that another runner holds keeps its directory, with every file in it."""
    made = job(tmp_path, keep=1)
    running = lay(tmp_path, 1)
    lay(tmp_path, 2)
    lay(tmp_path, 3)
    with open(running / "train.lock", "rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        remove_old(made, pytest.fail)

    assert ["01", "03"] == left(tmp_path)
    assert {*FILES, "train", "device0", "rank_table"} == {path.name for path in running.iterdir()}


@pytest.mark.parametrize(
    "other", ["notes.txt", "device0/checkpoint.pt", "rank_table/mine.json", "other-report.json", "train.py"]
)
def test_what_a_run_has_not_made_stays(other: str, tmp_path: Path) -> None:
    """A directory with anything else in it stays as it is."""
    made = job(tmp_path, keep=1)
    kept = lay(tmp_path, 1)
    (kept / other).touch()
    before = sorted(kept.rglob("*"))
    lay(tmp_path, 2)
    remove_old(made, pytest.fail)

    assert before == sorted(kept.rglob("*"))


def test_other_directories_stay(tmp_path: Path) -> None:
    """Directories of other jobs, of runs that are about to begin, without a lock, and symlinks are not touched."""
    made = job(tmp_path, keep=1)
    elsewhere = lay(tmp_path / "elsewhere", 1)
    (tmp_path / name_of(1)).symlink_to(elsewhere)
    (lay(tmp_path, 2) / "train-report.json").unlink()
    (lay(tmp_path, 3) / "train.lock").unlink()
    lay(tmp_path, 4).rename(tmp_path / name_of(4, "other"))
    lay(tmp_path, 5).rename(tmp_path / "train-best")
    lay(tmp_path, 6)
    before = sorted(tmp_path.rglob("*"))
    remove_old(made, pytest.fail)

    assert before == sorted(tmp_path.rglob("*"))
    assert (elsewhere / "train-report.json").exists()


def test_removing_is_bounded_in_time(tmp_path: Path) -> None:
    """When the time is over the rest stays, and the next run continues, also with a directory that is half removed."""
    made = job(tmp_path, keep=1)
    for number in (1, 2, 3):
        lay(tmp_path, number)
    before = len([*tmp_path.rglob("*")])
    ticks = itertools.count(step=REMOVE_LIMIT * 0.6)
    remove_old(made, pytest.fail, clock=lambda: next(ticks))
    assert ["01", "02", "03"] == left(tmp_path)
    assert 0 < before - len([*tmp_path.rglob("*")]) < len(FILES)
    remove_old(made, pytest.fail)

    assert ["03"] == left(tmp_path)


def test_removal_by_another_runner(tmp_path: Path) -> None:
    """A directory that another runner has removed meanwhile is not a failure."""
    made = job(tmp_path, keep=1)
    gone = lay(tmp_path, 1)
    lay(tmp_path, 2)
    lay(tmp_path, 3)

    def clock() -> float:
        if gone.exists():
            gone.rename(tmp_path / "gone")
        return 0.0

    remove_old(made, pytest.fail, clock=clock)
    assert [False, True] == [(tmp_path / name_of(number)).exists() for number in (2, 3)]


def test_failure_is_a_warning(tmp_path: Path) -> None:
    """An error of the disk is reported in one sentence, and the job starts."""
    warnings: list[str] = []
    remove_old(job_spec([rank_spec()], log_dir=str(tmp_path / "gone" / "train-1"), newest_link="x"), warnings.append)

    assert [f"cannot remove an earlier run from '{tmp_path}/gone': no such file or directory"] == warnings

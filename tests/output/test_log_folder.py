"""The log folder of a job: who may write to it, and what is moved before anything is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from ascend_runner.errors import OutputError
from ascend_runner.output import log_folder
from ascend_runner.plan.job import JobSpec
from tests.helpers.plans import job_spec, rank_spec


def job(folder: Path, ranks: tuple[int, ...] = (0, 1), **changes: object) -> JobSpec:
    """Make a job of some ranks that logs to a folder."""
    return job_spec([rank_spec(rank) for rank in ranks], log_dir=str(folder), **changes)


def names(folder: Path) -> set[str]:
    """Return the names in a folder."""
    return {path.name for path in folder.iterdir()}


def enter(made: JobSpec) -> list[str]:
    """Enter and leave the log folder of a job; return the warnings."""
    warnings: list[str] = []
    with log_folder.entered(made, warnings.append):
        return warnings


def test_all_files_of_an_earlier_run_are_put_aside(tmp_path: Path) -> None:
    """Logs, also of ranks that this run does not have, report, HTML and scripts move; other jobs' files stay."""
    ours = {
        "job-proc-rank-0-device-0.txt",
        "job-proc-rank-7-device-7.txt",
        "job-proc-rank-7-device-7.txt.2",
        "job-proc-scheduler.txt",
        "job-report.json",
        "job-report.html",
        "job-rerun-rank-7.sh",
    }
    others = {"job2-report.json", "other-job-report.json", "job", "job-report-node-1.json", "job.txt"}
    for name in ours | others:
        (tmp_path / name).touch()

    assert [] == enter(job(tmp_path))
    assert ours == names(tmp_path / "run-1")
    assert {*others, "run-1", "job.lock"} == names(tmp_path)


def test_files_of_other_nodes_stay(tmp_path: Path) -> None:
    """On several nodes that share a folder each one moves the files of its own ranks, on whatever device they were."""
    own = {"job-proc-rank-8-device-3.txt", "job-report-rank-8.json", "job-rerun-rank-8.sh"}
    others = {"job-proc-rank-0-device-0.txt", "job-report-pod-0.json", "job-rerun-rank-0.sh"}
    for name in own | others:
        (tmp_path / name).touch()
    enter(job(tmp_path, (8,), rank_size=16, pod_name="pod-1"))

    assert own == names(tmp_path / "run-1")
    assert {*others, "run-1", "job-rank-8.lock"} == names(tmp_path)


def test_folder_in_use_is_refused_and_left_alone(tmp_path: Path) -> None:
    """The second start of a running job moves nothing, and names the way out."""
    with log_folder.entered(job(tmp_path), pytest.fail):
        (tmp_path / "job-report.json").touch()
        assert log_folder.is_in_use(job(tmp_path))
        with pytest.raises(OutputError) as caught:
            enter(job(tmp_path))
        enter(job(tmp_path, job_id="other"))

    assert {"job-report.json", "job.lock", "other.lock"} == names(tmp_path)
    assert log_folder.busy_sentence(job(tmp_path)) == str(caught.value)
    assert "--log-dir" in str(caught.value)
    assert not log_folder.is_in_use(job(tmp_path))


def test_question_makes_nothing(tmp_path: Path) -> None:
    """Whether a folder is in use is asked without making anything."""
    assert not log_folder.is_in_use(job(tmp_path / "missing"))
    assert [] == list(tmp_path.iterdir())


def test_lock_is_no_symlink(tmp_path: Path) -> None:
    """A symlink in the place of the lock is refused, and not followed."""
    (tmp_path / "job.lock").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(OutputError):
        enter(job(tmp_path))
    assert {"job.lock"} == names(tmp_path)

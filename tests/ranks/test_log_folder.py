"""The log directory of a job: its lock, and the files that are moved before anything is written."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from itertools import count
from pathlib import Path

import pytest

from ascend_runner.errors import OutputError
from ascend_runner.plan.spec import JobSpec
from ascend_runner.ranks import log_folder
from ascend_runner.ranks.log_folder import MOVE_LIMIT, put_aside
from tests.helpers.plans import job_spec, rank_spec


def job(folder: Path, ranks: tuple[int, ...] = (0, 1), **changes: object) -> JobSpec:
    """Make a job of some ranks that logs to a directory."""
    return job_spec([rank_spec(rank) for rank in ranks], log_dir=str(folder), **changes)


def names(folder: Path) -> set[str]:
    """Return the names in a directory."""
    return {path.name for path in folder.iterdir()}


def enter(made: JobSpec) -> list[str]:
    """Enter and leave the log directory of a job; return the warnings."""
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
        "job-flight-recorder-torch_npu-rank-7",
        "job-flight-recorder-torch_npu-rank-7_py_traceback",
    }
    others = {"job2-report.json", "other-job-report.json", "job", "job-report-node-1.json", "job.txt"}
    for name in ours | others:
        (tmp_path / name).touch()

    assert [] == enter(job(tmp_path))
    assert ours == names(tmp_path / "run-1")
    assert {*others, "run-1", "job.lock"} == names(tmp_path)


DUMP = "job-flight-recorder-torch-rank-"


def test_files_of_other_nodes_stay(tmp_path: Path) -> None:
    """Of several nodes that share a directory, each moves the files of its own ranks, on whatever device they were."""
    own = {"job-proc-rank-8-device-3.txt", "job-report-rank-8.json", "job-rerun-rank-8.sh", f"{DUMP}8"}
    others = {"job-proc-rank-0-device-0.txt", "job-report-pod-0.json", "job-rerun-rank-0.sh", f"{DUMP}0"}
    for name in own | others:
        (tmp_path / name).touch()
    enter(job(tmp_path, (8,), rank_size=16, pod_name="pod-1"))

    assert own == names(tmp_path / "run-1")
    assert {*others, "run-1", "job-rank-8.lock"} == names(tmp_path)


@pytest.mark.parametrize("is_first", [True, False])
def test_first_part_that_waits_puts_everything_aside(tmp_path: Path, *, is_first: bool) -> None:
    """A part without a number moves all files of earlier runs, but only its own once another part is running."""
    own, others = (
        {"job-report-here.json"},
        {"job-report.json", "job-report-node-1.json", "job-proc-rank-9-device-1.txt"},
    )
    for name in own | others:
        (tmp_path / name).touch()
    other = job(tmp_path, (8,), rank_size=16)
    with nullcontext() if is_first else log_folder.entered(other, pytest.fail):
        enter(job(tmp_path, (), rank_size=0, server_id="here", is_placed=False))

    assert (own | others if is_first else own) == names(tmp_path / "run-1")


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
    """Asking whether a directory is in use creates nothing."""
    assert not log_folder.is_in_use(job(tmp_path / "missing"))
    assert [] == list(tmp_path.iterdir())


def test_lock_is_no_symlink(tmp_path: Path) -> None:
    """A symlink in the place of the lock is refused, and not followed."""
    (tmp_path / "job.lock").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(OutputError):
        enter(job(tmp_path))
    assert {"job.lock"} == names(tmp_path)


# --- The directories of earlier runs ----------------------------------------------------------------------------------


NAMES = ("job-proc-rank-0-device-0.txt", "job-report.json")


def run(folder: Path, content: str, names: tuple[str, ...] = NAMES) -> tuple[str, ...]:
    """Put aside what is there, then write this run's files."""
    left = put_aside(str(folder), names.__contains__)
    for name in names:
        (folder / name).write_text(content)
    return left


def content_of(folder: Path) -> list[str]:
    """Read the files of a run."""
    return [(folder / name).read_text() for name in NAMES if (folder / name).exists()]


def test_first_run_moves_nothing(tmp_path: Path) -> None:
    """If there are no files of the job, no directory is created."""
    assert () == run(tmp_path, "one")
    assert sorted(NAMES) == sorted(path.name for path in tmp_path.iterdir())


def test_each_run_has_a_folder(tmp_path: Path) -> None:
    """All files of a run move together, and the number rises with each run."""
    for content in ("one", "two", "three"):
        run(tmp_path, content)

    assert ["three", "three"] == content_of(tmp_path)
    assert [["one", "one"], ["two", "two"]] == [content_of(tmp_path / name) for name in ("run-1", "run-2")]


def runs(folder: Path, states: str, keep: int, warn: Callable[[str], None] = pytest.fail) -> list[str]:
    """Run a job once for each letter, "S" for a success, and return what the starts say of removed runs."""
    said = []
    for letter in states:
        with log_folder.entered(job(folder, (0,), log_runs=keep), warn) as removal:
            (folder / "job-proc-rank-0-device-0.txt").write_text(letter)
            (folder / "job-run.json").write_text('{"pid": 1}')
            report = {"state": "succeeded" if letter == "S" else "failed"}
            (folder / "job-report.json").write_text(json.dumps(report))
        said += [removal] if removal else []
    return said


@pytest.mark.parametrize(
    ("states", "kept"),
    [
        ("FFFFFF", {4, 5}),
        ("SFFFFF", {1, 4, 5}),  # the only success, however old it is
        ("SSFFFF", {2, 4, 5}),  # only the newest success
        ("SFFFSF", {4, 5}),  # it is among the newest runs
    ],
)
def test_newest_runs_and_the_newest_success_are_kept(states: str, kept: set[int], tmp_path: Path) -> None:
    """Older directories are deleted, and their numbers are not reused; the newest success is never deleted."""
    runs(tmp_path, states, keep=2)

    assert {f"run-{number}" for number in kept} == {path.name for path in tmp_path.glob("run-*")}


def test_each_removal_is_said(tmp_path: Path) -> None:
    """A start names the directories that it removes, and how many are kept by which option."""
    said = runs(tmp_path, "FFFF", keep=2)

    kept = "the newest 2 and the newest success are kept (--log-runs)"
    assert [f"removed 1 earlier run from '{tmp_path}' (run-1): {kept}"] == said


@pytest.mark.parametrize(("failed", "is_kept"), [("job-report-node-1.json", False), ("other-report.json", True)])
def test_success_is_one_on_all_nodes(failed: str, *, is_kept: bool, tmp_path: Path) -> None:
    """A run in which another node of the job has failed is no success; another job in its directory does not matter."""
    runs(tmp_path, "SF", keep=9)
    (tmp_path / "run-1" / failed).write_text('{"state": "failed"}')
    runs(tmp_path, "FF", keep=1)

    assert is_kept is (tmp_path / "run-1" / "job-report.json").exists()


def test_nodes_that_share_a_folder_choose_the_same_number(tmp_path: Path) -> None:
    """Each node moves its own files, into the directory of the same run, whichever comes first."""
    other = ("job-proc-rank-8-device-0.txt", "job-report-node-1.json")
    for content in ("one", "two"):
        run(tmp_path, content)
        run(tmp_path, content, other)
    run(tmp_path, "three", other)

    assert {*NAMES, *other} == {path.name for path in (tmp_path / "run-1").iterdir()}
    assert set(other) == {path.name for path in (tmp_path / "run-2").iterdir()}


def test_files_of_others_stay(tmp_path: Path) -> None:
    """Deleting an earlier run keeps files of other jobs."""
    runs(tmp_path, "FF", keep=1)
    (tmp_path / "run-1" / "notes").touch()
    runs(tmp_path, "F", keep=1)

    assert ["notes"] == [path.name for path in (tmp_path / "run-1").iterdir()]


def test_store_on_which_a_rename_copies(tmp_path: Path) -> None:
    """When moving takes too long the rest is left in its place and named; the report moves first."""
    run(tmp_path, "one")
    ticks = count(step=MOVE_LIMIT * 0.6)
    left = put_aside(str(tmp_path), NAMES.__contains__, clock=lambda: next(ticks))

    assert ("job-proc-rank-0-device-0.txt",) == left
    assert (tmp_path / "job-proc-rank-0-device-0.txt").exists()
    assert (tmp_path / "run-1" / "job-report.json").exists()


def test_folder_that_cannot_be_written(tmp_path: Path) -> None:
    """An error of the disk is raised."""
    run(tmp_path, "one")
    (tmp_path / "run-1").write_text("in the way")

    with pytest.raises(OutputError, match="run-1"):
        put_aside(str(tmp_path), NAMES.__contains__)

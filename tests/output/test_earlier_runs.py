"""How the files of earlier runs are put aside."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest

from ascend_runner.errors import OutputError
from ascend_runner.output.earlier_runs import MOVE_LIMIT, PutAside, put_aside

NAMES = ("job-proc-rank-0-device-0.txt", "job-report.json")


def run(folder: Path, content: str, names: tuple[str, ...] = NAMES, keep: int = 10) -> PutAside:
    """Put aside what is there, then write this run's files."""
    done = put_aside(str(folder), names.__contains__, keep=keep)
    for name in names:
        (folder / name).write_text(content)
    return done


def content_of(folder: Path) -> list[str]:
    """Read the files of a run."""
    return [(folder / name).read_text() for name in NAMES if (folder / name).exists()]


def test_first_run_moves_nothing(tmp_path: Path) -> None:
    """Where nothing of the job is there, no folder is made."""
    assert PutAside() == run(tmp_path, "one")
    assert sorted(NAMES) == sorted(path.name for path in tmp_path.iterdir())


def test_each_run_has_a_folder(tmp_path: Path) -> None:
    """All files of a run move together, and the number rises with each run."""
    for content in ("one", "two", "three"):
        run(tmp_path, content)

    assert ["three", "three"] == content_of(tmp_path)
    assert [["one", "one"], ["two", "two"]] == [content_of(tmp_path / name) for name in ("run-1", "run-2")]


def test_only_the_newest_runs_are_kept(tmp_path: Path) -> None:
    """Older folders go, and numbers are not used again."""
    for number in range(6):
        run(tmp_path, str(number), keep=2)

    assert ["run-4", "run-5"] == sorted(path.name for path in tmp_path.glob("run-*"))


def test_nodes_that_share_a_folder_choose_the_same_number(tmp_path: Path) -> None:
    """Each node moves its own files, into the folder of the same run, whichever comes first."""
    other = ("job-proc-rank-8-device-0.txt", "job-report-node-1.json")
    for content in ("one", "two"):
        run(tmp_path, content)
        run(tmp_path, content, other)
    run(tmp_path, "three", other)

    assert {*NAMES, *other} == {path.name for path in (tmp_path / "run-1").iterdir()}
    assert set(other) == {path.name for path in (tmp_path / "run-2").iterdir()}


def test_files_of_others_stay(tmp_path: Path) -> None:
    """A folder that is thinned out keeps what is not this job's."""
    run(tmp_path, "one")
    run(tmp_path, "two")
    (tmp_path / "run-1" / "notes").touch()
    run(tmp_path, "three", keep=1)

    assert ["notes"] == [path.name for path in (tmp_path / "run-1").iterdir()]


def test_store_on_which_a_rename_copies(tmp_path: Path) -> None:
    """When moving takes too long the rest is left in its place and named."""
    run(tmp_path, "one")
    ticks = count(step=MOVE_LIMIT * 0.6)
    done = put_aside(str(tmp_path), NAMES.__contains__, keep=10, clock=lambda: next(ticks))

    assert PutAside(str(tmp_path / "run-1"), ("job-report.json",)) == done
    assert (tmp_path / "job-report.json").exists()


def test_folder_that_cannot_be_written(tmp_path: Path) -> None:
    """The error of the disk is handed on."""
    run(tmp_path, "one")
    (tmp_path / "run-1").write_text("in the way")

    with pytest.raises(OutputError, match="run-1"):
        put_aside(str(tmp_path), NAMES.__contains__, keep=10)

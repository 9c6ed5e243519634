"""The relative script among the words of a command, and the directories that options name."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ascend_runner.errors import SettingsError
from ascend_runner.job.command import check_checkpoint_dir, relative_script


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("./train.py", "./train.py"),
        ("bin/train", "bin/train"),
        ("python train.py --lr 1", "train.py"),
        ("/usr/bin/python3.9 -u -W ignore train.py", "train.py"),
        ("python -O train.py", "train.py"),
        ("numactl -N 0 python train.py", "train.py"),
        ("nice ./train.sh", "./train.sh"),
        ("bash -x run.sh", "run.sh"),
        ("bash -eo pipefail run.sh", "run.sh"),
        ("bash -o pipefail -c train", ""),
        ("python /job/train.py", ""),
        ("python -m train", ""),
        ("bash -c train", ""),
        ("train train.py", ""),
        ("python", ""),
    ],
)
def test_relative_script(command: str, expected: str) -> None:
    """The script is the command itself, or the first argument of an interpreter that is not an option."""
    assert expected == relative_script(command.split())


# --- --checkpoint-dir: a directory, or one that the training can create -----------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Make a directory with a file and a link to nothing."""
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("nothing")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("file", "is not a directory"),
        ("link", "is not a directory"),
        ("file/saved", "cannot be created: '{}/file' is not a directory"),
        ("link/a/b", "cannot be created: '{}/link' is not a directory"),
    ],
)
def test_checkpoint_dir_that_cannot_be_a_directory_is_refused(folder: Path, name: str, sentence: str) -> None:
    """The sentence names the path that is in the way."""
    with pytest.raises(SettingsError) as refused:
        check_checkpoint_dir(f"{folder}/{name}", pytest.fail)

    assert f"--checkpoint-dir '{folder}/{name}' {sentence.format(folder)}" == str(refused.value)


def test_checkpoint_dir_of_which_nothing_exists_is_refused() -> None:
    """It is mistyped or its file system is not mounted; root could create it, and the container would take it along."""
    with pytest.raises(SettingsError, match="nor does any directory above it"):
        check_checkpoint_dir("/no-such-directory-of-ascend-runner/a/b", pytest.fail)


def test_checkpoint_dir_that_nobody_can_create_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be missing at the first checkpoint, hours after the start."""
    monkeypatch.setattr(os, "access", lambda *_: False)

    check_checkpoint_dir(str(folder), pytest.fail)
    with pytest.raises(SettingsError, match="is not writable"):
        check_checkpoint_dir(f"{folder}/a/b", pytest.fail)


def test_missing_checkpoint_dir_is_noted(folder: Path) -> None:
    """A training creates it, or the name is wrong: the job starts, and the user can see it."""
    notes: list[str] = []
    for path in ("", str(folder), f"{folder}/a", f"{folder}/a/b"):
        check_checkpoint_dir(path, notes.append)

    assert [f"--checkpoint-dir '{folder}/{name}' does not exist yet" for name in ("a", "a/b")] == [
        note.partition(";")[0] for note in notes
    ]

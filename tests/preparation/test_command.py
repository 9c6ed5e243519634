"""The relative script among the words of a command."""

from __future__ import annotations

import pytest

from ascend_runner.preparation.command import relative_script


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("./train.py", "./train.py"),
        ("bin/train", "bin/train"),
        ("python train.py --lr 1", "train.py"),
        ("/usr/bin/python3.9 -u -W ignore train.py", "train.py"),
        ("bash -x run.sh", "run.sh"),
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

"""The full disks."""

from __future__ import annotations

from pathlib import Path

from ascend_runner.node import disks


def test_full_disks(tmp_path: Path) -> None:
    """A disk is named once, if less is left on it than is needed; what has no blocks is never full."""
    (tmp_path / "a").mkdir()
    paths = [str(tmp_path), str(tmp_path / "a"), "/proc", "/missing", "a\0b"]

    assert () == disks.full(paths, scarce=0)
    assert (str(tmp_path),) == disks.full(paths, scarce=1 << 60)


def test_paths_in_a_command() -> None:
    """A command's words name the disks that it writes to, with or without an option, relative to its directory."""
    found = set(disks.named_in(["python", "train.py", "--save=/data/out", "runs/x.pt", "--lr=1e-3"], "/job"))

    assert {"/data/out", "/data", "/job/runs/x.pt", "/job/runs"} == found

"""Which disks are full."""

from __future__ import annotations

from pathlib import Path

from ascend_runner.evidence import disks


def test_full_disks(tmp_path: Path) -> None:
    """A path is named once, if less is left on its disk than is needed; what has no blocks is never full."""
    paths = [str(tmp_path), str(tmp_path), "/proc", "/missing"]

    assert () == disks.full(paths, scarce=0)
    assert (str(tmp_path),) == disks.full(paths, scarce=1 << 60)

"""Which of the disks that a job uses are full."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Final

from ascend_runner.host import bounded

SCARCE: Final = 1024 * 1024  # bytes; a disk with less left is full for any log or checkpoint
LIMIT: Final = 1.0  # seconds; a network disk may not respond


def full(paths: Iterable[str], scarce: int = SCARCE, *, is_cut: Callable[[], bool] = bounded.never) -> tuple[str, ...]:
    """Return the paths on disks with less than `scarce` bytes, or no files, left for the user."""
    found: list[str] = []

    def work() -> None:
        found.extend(path for path in dict.fromkeys(paths) if _is_full(path, scarce))

    bounded.call(LIMIT, work, is_cut)
    return tuple(found)


def _is_full(path: str, scarce: int) -> bool:
    try:
        disk = os.statvfs(path)
    except OSError:
        return False  # missing, or not ours to see
    if not disk.f_blocks:
        return False  # a file system without blocks, such as /proc
    return disk.f_bavail * disk.f_frsize < scarce or bool(disk.f_files and not disk.f_favail)

"""Finds the full disks among those that a job uses."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Final

from ascend_runner.host import bounded

SCARCE: Final = 1024 * 1024  # bytes; a disk with less left is full for any log or checkpoint
LIMIT: Final = 1.0  # seconds; a network disk may not respond


def full(paths: Iterable[str], scarce: int = SCARCE, *, is_cut: Callable[[], bool] = bounded.never) -> tuple[str, ...]:
    """Return the first path on each disk that has fewer than `scarce` bytes, or no inodes, left for the user."""
    found: dict[int, str] = {}

    def work() -> None:
        for path in paths:
            with suppress(OSError, ValueError):  # missing, not accessible, or not a path
                if _is_full(path, scarce):
                    found.setdefault(os.stat(path).st_dev, path)

    bounded.call(LIMIT, work, is_cut)
    return tuple(found.copy().values())  # a copy, because the thread may still be running


def named_in(words: Iterable[str], cwd: str) -> Iterator[str]:
    """Yield the paths that a command's words name ("--save=/data/out"), and the directories that hold them."""
    for word in words:
        path = os.path.join(cwd, word.rpartition("=")[2])
        if "/" in word:
            yield from (path, os.path.dirname(path))


def _is_full(path: str, scarce: int) -> bool:
    disk = os.statvfs(path)
    if not disk.f_blocks:
        return False  # a file system without blocks, such as /proc
    return disk.f_bavail * disk.f_frsize < scarce or bool(disk.f_files and not disk.f_favail)

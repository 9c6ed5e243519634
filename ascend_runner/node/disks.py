"""File systems: their types, their free space, and whether the missing part of a path can be created."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Final

import attrs

from ascend_runner import files
from ascend_runner.errors import OutputError
from ascend_runner.node import bounded
from ascend_runner.node.bounded import PATIENT, Patience

TMPFS: Final = 0x01021994
RELEASE_LIMIT: Final = 0.2  # seconds; longer only on a disk that hangs


def release(lock: int) -> None:
    """Close the descriptor of a lock, although its disk may be gone.

    On a disk that hangs, the lock is held until the disk responds or this process ends.
    """
    bounded.on_disk(RELEASE_LIMIT, partial(os.close, lock))


def type_of(path: str) -> int:
    """Return the type of the file system that has a file, or 0 if it is unknown."""
    status = ctypes.create_string_buffer(256)  # a struct statfs, which is shorter, and begins with the type
    failed = ctypes.CDLL(None).statfs(os.fsencode(path), status)
    return 0 if failed else ctypes.c_long.from_buffer(status).value


@attrs.frozen(kw_only=True)
class Space:
    """What is left on a file system for its users."""

    free: int  # bytes
    size: int  # bytes, 0: there is no limit
    free_inodes: int
    inodes: int  # 0: the file system creates them as needed


def measure(path: str) -> Space:
    """Measure the file system that has a file.

    Raises:
        OSError: There is no such file, or the file system does not respond.
    """
    found = os.statvfs(path)
    return Space(
        free=found.f_bavail * found.f_frsize,
        size=found.f_blocks * found.f_frsize,
        free_inodes=found.f_favail,
        inodes=found.f_files,
    )


def nearest_folder(path: str) -> str:
    """Return the path if it is a directory, or else the nearest directory above it."""
    while not os.path.isdir(path) and path != os.path.dirname(path):
        path = os.path.dirname(path)
    return path


def nearest(path: str) -> str:
    """Return the path if it exists, or else the nearest directory above it that does."""
    step = os.path.abspath(path)
    while not os.path.lexists(step):
        step = os.path.dirname(step)
    return step


def check_folders(paths: Iterable[str]) -> None:
    """Check that directories can be created, as far as that is known without creating them, or checking permissions.

    Of those with the same parent that does not exist either, only the first is checked: each rank has one.

    Raises:
        OutputError: A directory must not be used, or a file is in its place.
    """
    missing: set[str] = set()
    for path in paths:
        parent = os.path.dirname(os.path.abspath(path))
        if parent in missing:
            continue
        files.refuse_foreign(path)
        above = nearest(path)
        if not os.path.isdir(above):
            raise OutputError(f"cannot create the directory {path!r}: {above!r} is not a directory")
        if not os.path.lexists(parent):
            missing.add(parent)


SCARCE: Final = 1024 * 1024  # bytes; a disk with less left is full for any log or checkpoint
LIMIT: Final = 1.0  # seconds; a network disk may not respond


def full(paths: Iterable[str], scarce: int = SCARCE, patience: Patience = PATIENT) -> tuple[str, ...]:
    """Return the first path on each disk that has fewer than `scarce` bytes, or no inodes, left for the user."""
    found: dict[int, str] = {}

    def work() -> None:
        for path in paths:
            with suppress(OSError, ValueError):  # missing, not accessible, or not a path
                if _is_full(path, scarce):
                    found.setdefault(os.stat(path).st_dev, path)

    bounded.call(LIMIT, work, patience.is_hurried)
    return tuple(found.copy().values())  # a copy, because the thread may still be running


def named_in(words: Iterable[str], cwd: str) -> Iterator[str]:
    """Yield the paths that a command's words name ("--save=/data/out"), and the directories that hold them."""
    for word in words:
        path = os.path.join(cwd, word.rpartition("=")[2])
        if "/" in word:
            yield from (path, os.path.dirname(path))


def _is_full(path: str, scarce: int) -> bool:
    disk = measure(path)
    if not disk.size:
        return False  # a file system without blocks, such as /proc
    return disk.free < scarce or bool(disk.inodes and not disk.free_inodes)

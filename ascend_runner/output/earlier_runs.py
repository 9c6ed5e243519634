"""Moves the files of earlier runs into `run-<n>` directories below the log directory, and keeps the newest few.

A run's logs, report and scripts belong together: what is read as the newest must never be a file of an older run.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable
from typing import Final

import attrs

from ascend_runner import files

# Seconds. On a disk a rename takes microseconds; on an object store it copies the file.
MOVE_LIMIT: Final = 10.0

_RUN_FOLDER: Final = re.compile(r"run-([1-9][0-9]{0,8})")


@attrs.frozen
class PutAside:
    """What became of the files of the earlier run: the folder that they are in ("" where there was none).

    `left` are those that were still in their place when the time was over.
    """

    folder: str = ""
    left: tuple[str, ...] = ()


def put_aside(
    log_dir: str, is_ours: Callable[[str], bool], *, keep: int, clock: Callable[[], float] = time.monotonic
) -> PutAside:
    """Move the files of an earlier run, whose names are ours, into a folder of their own.

    The folder's number is one above the highest that has any of ours, so that the nodes of a job that share a log
    folder choose the same one for each run. Of the folders that have any of ours, the newest `keep` stay.

    Raises:
        OutputError: the folder cannot be made.
        OSError: a file cannot be moved; those that were moved stay where they are.
    """
    earlier = _ours(log_dir, is_ours)
    if not earlier:
        return PutAside()

    numbers = [number for number in _numbers(log_dir) if _ours(_folder(log_dir, number), is_ours)]
    folder = _folder(log_dir, max(numbers, default=0) + 1)
    files.make_folder(folder)
    deadline = clock() + MOVE_LIMIT
    for index, name in enumerate(earlier):
        if clock() >= deadline:
            return PutAside(folder, tuple(earlier[index:]))
        os.rename(os.path.join(log_dir, name), os.path.join(folder, name))

    for number in sorted(numbers, reverse=True)[max(0, keep - 1) :]:
        _remove(_folder(log_dir, number), is_ours)
    return PutAside(folder)


def _remove(folder: str, is_ours: Callable[[str], bool]) -> None:
    """Remove a run's files, and the folder where nothing else is in it: another node's or job's files stay."""
    for name in _ours(folder, is_ours):
        path = os.path.join(folder, name)
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path, ignore_errors=True)
        else:
            os.unlink(path)
    if not _listdir(folder):
        os.rmdir(folder)


def _ours(folder: str, is_ours: Callable[[str], bool]) -> list[str]:
    return sorted(filter(is_ours, _listdir(folder)))


def _numbers(log_dir: str) -> list[int]:
    return [int(found[1]) for name in _listdir(log_dir) if (found := _RUN_FOLDER.fullmatch(name))]


def _folder(log_dir: str, number: int) -> str:
    return os.path.join(log_dir, f"run-{number}")


def _listdir(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []

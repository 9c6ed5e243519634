"""Finds the logs of a job, and reads each as one stream of bytes, even while it is rotated.

A log is a file and its rotated ones (`output.log_file`). The open file is followed rather than its path, so that
nothing is lost or read twice if the file is renamed between two reads.
"""

from __future__ import annotations

import itertools
import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from typing import Final, Optional

import attrs

from ascend_runner import files
from ascend_runner.errors import UnreadableError, reason

BLOCK: Final = 256 * 1024  # bytes of a read
FIRST_BLOCK: Final = 8 * 1024  # at the end of a file, before larger ones: it is usually enough
COMPARED: Final = 4096  # bytes that tell two files apart
# "2026-11-22 09:47:36" in any of the usual forms, near the beginning of a line.
_STAMP: Final = re.compile(rb"^[^\n]{0,80}?(20\d\d)[-/](\d\d)[-/](\d\d)[ T_-](\d\d):(\d\d):(\d\d)", re.MULTILINE)
Start = Callable[[int], Optional[int]]  # takes an open file, returns the offset to begin at; None: in an earlier file


@attrs.frozen(order=True)
class RankLog:
    """The log of a rank, or of an auxiliary process, which has a name and a negative number."""

    rank_id: int
    title: str
    path: str


def find_logs(log_dir: str, job_id: str) -> list[RankLog]:
    """Return the logs of all ranks of a job in a directory, in their order; several nodes may share it.

    Raises:
        UnreadableError: The directory cannot be read.
    """
    pattern = re.compile(rf"{re.escape(job_id)}-proc-(?:rank-(\d{{1,9}})-device-\d+|([^.]+))\.txt")
    try:
        names = os.listdir(log_dir)
    except OSError as error:
        raise UnreadableError(f"cannot read the directory {log_dir!r}: {reason(error)}") from error
    found = [(pattern.fullmatch(name), os.path.join(log_dir, name)) for name in names]
    return sorted(
        RankLog(int(match[1]), f"rank {int(match[1])}", path) if match[1] else RankLog(-1, match[2], path)
        for match, path in found
        if match
    )


class LogReader:
    """Reads one log. A file that is missing has no bytes yet. All methods raise OSError if a file cannot be read."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd = -1
        self._offset = 0
        self._later: list[int] = []  # the files after the one that is read, the next one first

    def close(self) -> None:
        """Close the files. May be called twice."""
        for fd in (self._fd, *self._later):
            if fd >= 0:
                os.close(fd)
        self._fd, self._later = -1, []

    def begin(self, start: Start) -> None:
        """Choose where to begin: `start` is asked for the newest file first. Otherwise it is the very beginning."""
        earlier = self._newer()
        while earlier:
            fd = earlier.pop()
            offset = start(fd)
            if offset is not None or not earlier:
                self._fd, self._offset = fd, offset or 0
                break
            self._later.insert(0, fd)
        for fd in earlier:
            os.close(fd)

    def read(self) -> Iterator[bytes]:
        """Yield what was written since the last call."""
        while True:
            yield from self._rest_of_file()
            if not self._later:
                self._later = self._newer()
                yield from self._rest_of_file()  # what was written just before the file was renamed
            if not self._later:
                return
            self._go_on_with(self._later.pop(0))

    def _rest_of_file(self) -> Iterator[bytes]:
        if self._fd < 0:
            return
        if os.fstat(self._fd).st_size < self._offset:  # it was emptied
            self._offset = 0
        while data := os.pread(self._fd, BLOCK, self._offset):
            self._offset += len(data)
            yield data

    def _go_on_with(self, fd: int) -> None:
        old, self._fd = self._fd, fd
        if old >= 0:
            is_same = not self._later and _is_copy(old, fd, self._offset)
            self._offset = self._offset if is_same else 0
            os.close(old)

    def _newer(self) -> list[int]:
        """Open the files that are newer than the one that is read, and return them, the oldest first.

        The newest is opened first: a file that is renamed meanwhile is found twice, but none is missed.
        """
        own = _identity(self._fd) if self._fd >= 0 else None
        found: dict[tuple[int, int], int] = {}
        for number in itertools.count():
            fd = _open(f"{self._path}.{number}" if number else self._path)
            if fd is None and number:
                break
            if fd is None:  # it is just being renamed, or was removed
                continue
            identity = _identity(fd)
            if identity == own or identity in found:
                os.close(fd)
            else:
                found[identity] = fd
            if identity == own:
                break
        return [*reversed(found.values())]


def last_lines(count: int) -> Start:
    """Begin with the last lines of a log."""
    missing = count

    def start(fd: int) -> int | None:
        nonlocal missing
        position = size = os.fstat(fd).st_size
        block = FIRST_BLOCK
        while position and missing:
            end, position = position, max(0, position - block)
            block = min(BLOCK, 4 * block)
            data = os.pread(fd, end - position, position)
            at = len(data) - 1 if end == size else len(data)  # no line begins after the last newline
            while missing and (at := data.rfind(b"\n", 0, max(0, at))) >= 0:
                missing -= 1
                if not missing:
                    return position + at + 1
        missing -= 1 if size and missing else 0  # the first line of the file
        if missing:
            return None
        return 0 if count else size

    return start


def lines_since(at: float, note: Callable[[], None]) -> Start:
    """Begin with the lines that were written since a time, in seconds since the epoch.

    These are the lines after the last one that begins with an earlier local time. A file that was not written since
    then is left out. If no line of a file has a time, all of it may have been written since then: `note` is called.
    """
    digits = time.strftime("%Y%m%d%H%M%S", time.localtime(at)).encode()

    def start(fd: int) -> int | None:
        status = os.fstat(fd)
        if status.st_mtime < at:
            return status.st_size
        end, has_times, block = status.st_size, False, FIRST_BLOCK
        while end:
            begin, block = max(0, end - block), min(BLOCK, 4 * block)
            data = os.pread(fd, end - begin, begin)
            cut = data.find(b"\n") + 1 if begin else 0  # the first line is whole in the next block
            stamps = [(b"".join(found.groups()), found.end()) for found in _STAMP.finditer(data, cut)]
            earlier = [place for stamp, place in stamps if stamp < digits]
            if earlier:
                newline = data.find(b"\n", earlier[-1])
                return begin + newline + 1 if newline >= 0 else end
            has_times = has_times or bool(stamps)
            end = begin + cut if begin + cut < end else begin
        if not has_times and status.st_size:
            note()
        return None

    return start


def _open(path: str) -> int | None:
    """Open a log file. Return None if it does not exist."""
    try:
        fd = os.open(path, files.READ_FLAGS)
    except FileNotFoundError:
        return None
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    return None


def _identity(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino


def _is_copy(old: int, new: int, size: int) -> bool:
    """Whether a file has the content of one that was removed: the runner creates a removed log again."""
    is_removed = not os.fstat(old).st_nlink and os.fstat(new).st_size >= size
    return is_removed and os.pread(old, COMPARED, 0) == os.pread(new, COMPARED, 0)[: os.fstat(old).st_size]

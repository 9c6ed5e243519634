"""A disk that fails, hangs or accepts few bytes at a time, as a test requires."""

from __future__ import annotations

import os
import threading

from ascend_runner.ranks.log_file import Disk
from tests.helpers.waiting import LIMIT


class FakeDisk(Disk):
    """The real disk, except for what a test has set."""

    def __init__(self) -> None:
        self.bytes_per_write = 1 << 30
        self.writes_until_error = -1  # then ENOSPC
        self.close_error = 0
        self.answers = threading.Event()  # cleared: writes hang
        self.answers.set()
        self.is_hanging = threading.Event()  # set while a write hangs
        self._lost: dict[int, int] = {}  # open files of a lost disk, and the error of each call on them
        self._open: set[int] = set()

    def lose(self, error: int) -> None:
        """Make every call on the currently open files fail."""
        self._lost = dict.fromkeys(self._open, error)

    def write(self, fd: int, data: memoryview) -> int:
        """Write as many bytes as the disk accepts at a time."""
        if not self.answers.is_set():
            self.is_hanging.set()
            self.answers.wait(LIMIT)
            self.is_hanging.clear()
        self._check(fd)
        if self.writes_until_error == 0:
            raise OSError(28, "No space left on device")
        self.writes_until_error -= 1
        return super().write(fd, data[: self.bytes_per_write])

    def status(self, fd: int) -> os.stat_result:
        """Return the status of an open file."""
        self._open.add(fd)
        self._check(fd)
        return super().status(fd)

    def close(self, fd: int) -> None:
        """Close a file."""
        super().close(fd)
        self._lost.pop(fd, None)
        if self.close_error:
            raise OSError(self.close_error, os.strerror(self.close_error))

    def _check(self, fd: int) -> None:
        if fd in self._lost:
            raise OSError(self._lost[fd], os.strerror(self._lost[fd]))

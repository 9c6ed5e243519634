"""Waits for changes: of the files in a directory by inotify(7), and of a job's end by the lock of its runner.

Where the kernel cannot tell, as on a disk that other machines write to, the waiting ends after `INTERVAL`.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import select
import struct
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from ascend_runner import files
from ascend_runner.host import bounded
from ascend_runner.host.terminal import STDOUT
from ascend_runner.job_tool.job import snapshot
from ascend_runner.job_tool.job.jobs import FoundJob
from ascend_runner.job_tool.job.snapshot import Condition

INTERVAL: Final = 1.0  # seconds
IN_MODIFY: Final = 0x2  # sys/inotify.h
IN_MOVED_TO: Final = 0x80
IN_CREATE: Final = 0x100
IN_Q_OVERFLOW: Final = 0x4000
EVENT: Final = struct.Struct("iIII")  # watch, mask, cookie, length of the name
GOING_ON: Final = {Condition.RUNNING, Condition.UNKNOWN}
QUEUE: Final = 64 * 1024  # bytes of events that are read at once


class FileWatch:
    """Waits for changes of a file, or of the files in a directory."""

    def __init__(self, path: str, *, is_local: bool) -> None:
        """The kernel reports all changes if `is_local`: no other machine writes to it."""
        self._fd = _inotify(path) if is_local else -1

    def close(self) -> None:
        """Close the watch. Closing it again has no effect."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def wait(self, seconds: float | None, *others: int) -> set[str] | None:
        """Return the names of the files that have changed, or None if any may have, at the latest after `seconds`.

        It also returns when the other end of one of the `others` is closed.

        Raises:
            BrokenPipeError: The reader of standard output has gone.
        """
        poll = select.poll()
        for fd in (STDOUT, *others):
            poll.register(fd, 0)  # POLLERR and POLLHUP are always reported
        if self._fd < 0:
            seconds = min(INTERVAL, INTERVAL if seconds is None else seconds)
        else:
            poll.register(self._fd, select.POLLIN)
        ready = dict(poll.poll(None if seconds is None else seconds * 1000))
        if ready.get(STDOUT, 0) & select.POLLERR:
            raise BrokenPipeError
        if self._fd < 0:
            return None
        return _names(os.read(self._fd, QUEUE)) if self._fd in ready else set()


class JobEnd:
    """Detects that all parts of a job have ended: their runners are gone, or their reports say so."""

    def __init__(self, parts: Iterable[FoundJob]) -> None:
        self._running = list(parts)
        self.locks: list[int] = []  # at most one: the end of a pipe that is closed when a runner ends

    def has_come(self) -> bool:
        """Whether the job has ended."""
        while self._running:
            part = self._running[-1]
            is_alive = part.is_alive()
            if is_alive and not self.locks:
                self.locks = _pipe_until_unlocked(part.run_folder)
            if is_alive or (is_alive is None and snapshot.take(part).condition in GOING_ON):
                return False
            self.close()
            self._running.pop()
        return True

    def close(self) -> None:
        """Close the pipe. May be called twice."""
        for fd in self.locks:
            os.close(fd)
        self.locks = []


def _pipe_until_unlocked(folder: str) -> list[int]:
    """Return the end of a pipe that is closed when the lock on a directory is free; none if it cannot be opened."""
    try:
        fd = os.open(folder, files.FOLDER_FLAGS)
    except OSError:
        return []
    reader, writer = os.pipe2(os.O_CLOEXEC)

    def wait() -> None:
        with suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_SH)
        os.close(fd)
        os.close(writer)

    bounded.start_thread(wait)
    return [reader]


def _inotify(path: str) -> int:
    """Watch a directory; return the file with the events, or -1 if no more watches are allowed."""
    libc = ctypes.CDLL(None)
    fd: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if fd >= 0 and libc.inotify_add_watch(fd, os.fsencode(path), IN_MODIFY | IN_MOVED_TO | IN_CREATE) < 0:
        os.close(fd)
        return -1
    return fd


def _names(events: bytes) -> set[str] | None:
    """Return the names in some events, or None if there were too many of them."""
    names: set[str] = set()
    position = 0
    while position < len(events):
        _watch, mask, _cookie, length = EVENT.unpack_from(events, position)
        position += EVENT.size + length
        if mask & IN_Q_OVERFLOW:
            return None
        names.add(os.fsdecode(events[position - length : position].rstrip(b"\0")))
    return names

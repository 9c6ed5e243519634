"""Blocking writes to standard output and standard error, and what follows when one fails.

O_NONBLOCK cannot replace them: it belongs to the open file, which other processes on the same terminal share.
"""

from __future__ import annotations

import errno
import os
import select
import stat
import time
from collections.abc import Callable
from typing import Final

STDOUT: Final = 1
STDERR: Final = 2
PIECE: Final = 512 * 1024  # bytes of one write
LAST_PIECE: Final = 32 * 1024  # bytes of one write at the end: small, so that a slow pipe shows that it still moves


class StandardOutputs:
    """Writes whole blocks. An output whose reader is gone takes no more; neither does stdout after any error."""

    def __init__(
        self, on_failure: Callable[[OSError], None], write: Callable[[int, memoryview], int] = os.write
    ) -> None:
        """`on_failure` is called once if stdout fails, unless nobody reads it any more."""
        self.moved_at = 0.0  # when a write last began or took something, in seconds of the monotonic clock
        self.piece_size = PIECE
        self._on_failure = on_failure
        self._write_some = write
        self._closed: set[int] = set()

    def is_closed(self, fd: int) -> bool:
        """Whether nothing is written to `fd` any more."""
        return fd in self._closed

    def write(self, fd: int, block: bytes | memoryview) -> None:
        """Write a block. Blocks for as long as the other end does not read."""
        self.moved_at = time.monotonic()
        rest = memoryview(block)
        while rest and fd not in self._closed:
            try:
                written = self._write_some(fd, rest[: self.piece_size])
            except BlockingIOError:  # another process has set O_NONBLOCK on the terminal
                _wait_until_writable(fd)
                continue
            except OSError as error:
                self._fail(fd, error)
                return
            rest = rest[written:]
            self.moved_at = time.monotonic()

    def _fail(self, fd: int, error: OSError) -> None:
        """Close stdout for good, and stderr only if its reader is gone: a full disk may have room for the next line."""
        # A terminal that was closed gives EIO, and so does a bad disk.
        is_reader_gone = error.errno == errno.EPIPE or (error.errno == errno.EIO and stat.S_ISCHR(os.fstat(fd).st_mode))
        if is_reader_gone or fd == STDOUT:
            self._closed.add(fd)
        if fd == STDOUT and not is_reader_gone:
            self._on_failure(error)


def _wait_until_writable(fd: int) -> None:
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    poll.poll()

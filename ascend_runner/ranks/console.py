"""The console: a bounded queue of lines, and one thread that writes it to standard output and standard error.

A write to a terminal under Ctrl-S, or to a pipe without a reader, blocks for any length of time. Only the console's
thread ever blocks in one, and at the end the process exits without waiting for it. O_NONBLOCK cannot replace the
thread: it is a flag of the open file, which other processes on the terminal share.

If the queue is full, lines of ranks are skipped. Before that, whoever brings them waits for at most `ROOM_LIMIT`, and
only for a console that moves, so that a fast one, such as a file, shows every line of ranks that print even faster.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import stat
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final, Union

from ascend_runner.errors import AscendRunnerError
from ascend_runner.node import bounded
from ascend_runner.node.terminal import STDERR, STDOUT

JOINED: Final = 4096  # bytes of pieces that are written at once, so that a short line costs one system call
PIECE: Final = 512 * 1024  # bytes of one write
LAST_PIECE: Final = 32 * 1024  # bytes of one write at the end: small, so that a slow pipe shows that it still moves
PIPE_SIZE: Final = 1024 * 1024  # bytes; the kernel's default limit for users (fs.pipe-max-size)
F_SETPIPE_SZ: Final = 1031  # linux/fcntl.h; in Python's fcntl from 3.10 on
F_GETPIPE_SZ: Final = 1032

QUEUE_LIMIT: Final = 64 * 1024 * 1024  # bytes
ROOM_LIMIT: Final = 0.01  # seconds to wait for room, too few for a slow console to slow the ranks
STALL_LIMIT: Final = 1.0  # seconds without a byte written, at the end, after which the console counts as stalled
DRAIN_LIMIT: Final = 5.0  # seconds, at the end, for a console that is slow but still moves

Data = Union[bytes, memoryview]
Block = tuple[int, Data]  # the fd to write to, and the data


class Console:
    """Writes blocks in the order given. A stalled, slow or closed console loses lines on the console only."""

    def __init__(
        self,
        skipped_notice: Callable[[int], bytes],
        failure_notice: Callable[[OSError], bytes],
        *,
        write: Callable[[int, memoryview], int] = os.write,
        room_limit: float = ROOM_LIMIT,
    ) -> None:
        """Take two functions that format messages for stderr.

        `skipped_notice(lines)` replaces lines of ranks that did not fit into the queue, `failure_notice(error)` follows
        a failed write to stdout.
        """
        self.has_lost_text = False  # whether some of the printed text (`print`) could not be written
        self._skipped_notice = skipped_notice
        self._failure_notice = failure_notice
        self._write_some = write
        self._room_limit = room_limit
        self._piece_size = PIECE
        self._moved_at = 0.0  # when the first block was queued, or a write last took bytes (s, monotonic clock)
        self._closed: set[int] = set()  # file descriptors that no longer accept data
        self._changed = threading.Condition()  # guards the attributes below
        self._blocks: deque[Block] = deque()
        self._queued = 0  # bytes, of the blocks and of the one that is being written
        self._skipped_lines = 0
        self._cursor: tuple[int, bytes] | None = None  # the rank whose unfinished line the cursor is on, and its end
        self._has_text = False
        self._is_closing = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread.

        Raises:
            AscendRunnerError: The limit of processes is reached.
        """
        # With the default of 64 KiB, writer and reader of a pipe on a busy machine keep waiting for each other.
        grow_pipe(STDOUT)
        self._thread = bounded.start_thread(self._run)

    def wait_for_room(self, size: int) -> bool:
        """Return whether the queue has room for `size` bytes; if it is full, wait for a console that moves."""
        if self._has_room(size):  # without the lock, which each line would take twice
            return True
        with self._changed:
            return self._wait_for_room(size)

    def skip(self, lines: int) -> None:
        """Count lines of ranks that are not shown."""
        with self._changed:
            self._skipped_lines += lines

    def show(self, rank_id: int, pieces: Iterable[Data], continued: int | None = None) -> None:
        """Queue lines of a rank for stdout; if there is no room, count them instead.

        The last one may be unfinished. If the first one continues it, `continued` is the length of its prefix, which is
        left out if no other output was written in between.
        """
        blocks: list[Block] = [(STDOUT, piece) for piece in pieces if piece]
        if not blocks:
            return
        size = sum(len(piece) for _fd, piece in blocks)
        if size <= JOINED:
            blocks = [(STDOUT, b"".join(piece for _fd, piece in blocks))]
        with self._changed:
            if not self._wait_for_room(size):
                self._skipped_lines += _count_lines(blocks)
                return
            self._put_skipped_notice()
            self._move_cursor(rank_id, is_continued=continued is not None)
            if continued is not None:
                blocks[0] = (STDOUT, self._without_prefix(blocks[0][1], continued))
            self._put(*blocks)
            end = bytes(blocks[-1][1][-1:])
            if end:
                self._cursor = None if end == b"\n" else (rank_id, end)

    def print(self, text: str) -> None:
        """Queue text of no rank for stdout. Undecodable bytes of the environment are escaped."""
        with self._changed:
            self._has_text = True
            self._put((STDOUT, text.encode(errors="backslashreplace")))

    def show_message(self, line: bytes) -> None:
        """Queue a line of the runner's own for stderr, even if the queue is full."""
        with self._changed:
            self._put_skipped_notice()
            self._end_line()
            self._put((STDERR, line))

    def close(self, is_cut: Callable[[], bool] = bounded.never) -> None:
        """Write the queue, within the limits above or until `is_cut`, and end the thread. May be called twice.

        Messages that a stalled console has not taken are tried once more, for as long as one stall.
        """
        with self._changed:
            self._put_skipped_notice()
            self._is_closing = True
            self._piece_size = LAST_PIECE
            self._changed.notify()
        self._wait_while_it_moves(is_cut)
        with self._changed:
            left = list(self._blocks)
            self._blocks.clear()
        if left:
            self._write_messages_of(left, is_cut)

    def _has_room(self, size: int) -> bool:
        return self._queued + size <= QUEUE_LIMIT

    # --- Queueing, with the lock held ---------------------------------------------------------------------------------

    def _wait_for_room(self, size: int) -> bool:
        """Wait for at most `room_limit` seconds, and not for a console that has not moved for as long."""
        deadline = time.monotonic() + self._room_limit
        while not self._has_room(size):
            now = time.monotonic()
            if now >= min(deadline, self._moved_at + self._room_limit):
                return False
            self._changed.wait(deadline - now)
        return True

    def _put(self, *blocks: Block) -> None:
        if not self._queued:
            self._moved_at = time.monotonic()
        self._blocks.extend(blocks)
        self._queued += sum(len(data) for _fd, data in blocks)
        self._changed.notify()

    def _put_skipped_notice(self) -> None:
        if self._skipped_lines:
            self._put((STDERR, self._skipped_notice(self._skipped_lines)))
            self._skipped_lines = 0

    def _move_cursor(self, rank_id: int, *, is_continued: bool) -> None:
        """End the line that the cursor is on, unless the next output of this rank continues or overwrites it."""
        is_own = self._cursor is not None and self._cursor[0] == rank_id
        is_overwritten = is_own and self._cursor == (rank_id, b"\r")
        if not (is_overwritten or (is_own and is_continued)):
            self._end_line()

    def _without_prefix(self, piece: Data, size: int) -> Data:
        """Return the rest of a line: without its prefix on its own line, and without an end that it already has."""
        if self._cursor is not None:
            return piece[size:]
        return piece[size + 1 :] if piece[size : size + 1] == b"\n" else piece

    def _end_line(self) -> None:
        """Keep an unfinished line from being continued or overwritten by another writer."""
        if self._cursor is not None:
            self._put((STDOUT, b"\n"))
            self._cursor = None

    # --- In the thread ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while block := self._take():
            self._write(*block)
            with self._changed:
                self._queued -= len(block[1])
                self._changed.notify_all()  # whoever waits for room

    def _take(self) -> Block | None:
        """Wait for the next block, or None when the console is closing and the queue is empty."""
        with self._changed:
            while not self._blocks:
                if self._is_closing:
                    return None
                self._changed.wait()
            return self._blocks.popleft()

    def _write(self, fd: int, data: Data) -> None:
        """Write a block. Blocks for as long as the other end does not read."""
        rest = memoryview(data)
        while rest and fd not in self._closed:
            try:
                written = self._write_some(fd, rest[: self._piece_size])
            except BlockingIOError:  # another process has set O_NONBLOCK on the terminal
                _wait_until_writable(fd)
                continue
            except OSError as error:
                self._fail(fd, error)
                return
            rest = rest[written:]
            self._moved_at = time.monotonic()

    def _fail(self, fd: int, error: OSError) -> None:
        """Close stdout for good, and stderr only if its reader is gone: a full disk may have room for the next line."""
        # A terminal that was closed gives EIO, and so does a bad disk.
        is_reader_gone = error.errno == errno.EPIPE or (error.errno == errno.EIO and stat.S_ISCHR(os.fstat(fd).st_mode))
        if is_reader_gone or fd == STDOUT:
            self._closed.add(fd)
        if fd == STDOUT and not is_reader_gone:
            self._report_failure(error)

    def _report_failure(self, error: OSError) -> None:
        """Print the notice of a failed stdout before anything else that is queued."""
        notice = self._failure_notice(error)
        with self._changed:
            self.has_lost_text = self._has_text
            self._blocks.appendleft((STDERR, notice))
            self._queued += len(notice)

    # --- Closing ------------------------------------------------------------------------------------------------------

    def _wait_while_it_moves(self, is_cut: Callable[[], bool]) -> None:
        """Wait for the end of the thread, for as long as it keeps writing something."""
        start = now = time.monotonic()
        deadline = start + STALL_LIMIT
        while self._thread and now < deadline and not bounded.join(self._thread, deadline, is_cut) and not is_cut():
            deadline = min(max(start, self._moved_at) + STALL_LIMIT, start + DRAIN_LIMIT)
            now = time.monotonic()

    def _write_messages_of(self, left: list[Block], is_cut: Callable[[], bool]) -> None:
        messages = [block for block in left if block[0] == STDERR]
        unseen = _count_lines(block for block in left if block[0] == STDOUT)
        if unseen and STDOUT not in self._closed:
            messages.insert(0, (STDERR, b"\n" + self._skipped_notice(unseen)))

        def write() -> None:
            for message in messages:
                self._write(*message)

        # In another thread: poll(2) promises room for some bytes only, so that the write of a line can still block.
        with suppress(AscendRunnerError):  # no thread can be started: the messages are lost with the console
            bounded.join(bounded.start_thread(write), time.monotonic() + STALL_LIMIT, is_cut)


def _count_lines(blocks: Iterable[Block]) -> int:
    return sum(bytes(data).count(b"\n") for _fd, data in blocks)


def _wait_until_writable(fd: int) -> None:
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    poll.poll()


def grow_pipe(fd: int) -> None:
    """Increase the capacity of a pipe to `PIPE_SIZE`, if `fd` is a pipe and the user's limits (pipe(7)) allow it."""
    try:
        if fcntl.fcntl(fd, F_GETPIPE_SZ) < PIPE_SIZE:  # the owner of the pipe may have made it larger
            fcntl.fcntl(fd, F_SETPIPE_SZ, PIPE_SIZE)
    except OSError:
        return

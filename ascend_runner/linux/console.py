"""What the user sees: a bounded queue, and one thread that writes it to stdout and stderr.

A thread of its own, since a write to a terminal under Ctrl-S, or to a pipe whose reader sleeps, blocks for as long as
it likes. O_NONBLOCK is no way out: it belongs to the open file, which is shared with whoever else has that terminal.
So only this thread ever blocks, ranks are never slowed, and at the end the process leaves without it.
"""

from __future__ import annotations

import os
import select
import stat
import time
from _thread import allocate_lock

from ascend_runner.annotations import TYPE_CHECKING, Final
from ascend_runner.errors import AscendRunnerError

from . import pipe
from .threads import Bell, Thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

STDOUT: Final = 1
STDERR: Final = 2
QUEUE_LIMIT: Final = 64 * 1024 * 1024  # bytes
PIECE: Final = 512 * 1024  # bytes of one write
LAST_PIECE: Final = 32 * 1024  # likewise, at the end: when a slow pipe has taken it, that tells that it moves
STALL_LIMIT: Final = 1.0  # seconds without a byte taken, at the end, after which a console counts as stalled
DRAIN_LIMIT: Final = 5.0  # seconds, at the end, for a console that is slow but alive
EIO, EPIPE = 5, 32  # errno(3), without an import of errno


class Console:
    """Writes whole blocks in the order given. A stalled, slow or closed console costs lines on the console only."""

    def __init__(self, skipped_notice: Callable[[int], bytes], failure_notice: Callable[[OSError], bytes]) -> None:
        """Give what is to be said on stderr.

        `skipped_notice(lines)` stands in place of rank lines that the queue had no room for, `failure_notice(error)`
        where stdout cannot be written any more, though somebody may still want to read it.
        """
        self._skipped_notice = skipped_notice
        self._failure_notice = failure_notice
        self._mutex = allocate_lock()
        self._blocks: list[tuple[int, bytes | memoryview]] = []
        self._taken: list[tuple[int, bytes | memoryview]] = []  # from the blocks, the next one last
        self._changed = Bell()
        self._queued = 0
        self._skipped_lines = 0
        self._bar_of: int | None = None
        self.has_lost_text = False  # whether some of what was to be printed could not be written, and may be missed
        self._has_text = False
        self._moved_at = 0.0
        self._is_closing = False
        self._closed_fds: set[int] = set()
        self._thread = Thread(self._run)

    def start(self) -> None:
        """Start the thread. Errors: AscendRunnerError where there are too many (RLIMIT_NPROC)."""
        # In pieces of 64 KiB, writer and reader wait for each other's turn on a busy machine, until the queue is full.
        pipe.grow(STDOUT)
        self._thread.start()

    def has_room(self, size: int) -> bool:
        """Whether the queue takes so many bytes more."""
        return self._queued + size <= QUEUE_LIMIT

    def skip(self, lines: int) -> None:
        """Count lines of ranks that are not shown."""
        with self._mutex:
            self._skipped_lines += lines

    def show(self, rank_id: int, pieces: Iterable[bytes | memoryview]) -> None:
        """Queue whole lines of a rank, which go to stdout; without room, count them instead."""
        blocks = [(STDOUT, piece) for piece in pieces if piece]
        if not blocks:
            return
        size = sum(len(piece) for _fd, piece in blocks)
        with self._mutex:
            if self._queued + size > QUEUE_LIMIT:
                self._skipped_lines += sum(bytes(piece).count(b"\n") for _fd, piece in blocks)
                return
            self._put_skipped_notice()
            self._end_progress_bar(unless_of=rank_id)
            self._put(blocks, size)
            self._bar_of = rank_id if blocks[-1][1][-1:] == b"\r" else None

    def print(self, text: str) -> None:
        """Queue text for stdout that is no rank's. What was no text in the environment is escaped."""
        data = text.encode(errors="backslashreplace")
        with self._mutex:
            self._has_text = True
            self._put([(STDOUT, data)], len(data))

    def say(self, line: bytes) -> None:
        """Queue a line of the runner's own, which goes to stderr, whatever the room."""
        with self._mutex:
            self._put_skipped_notice()
            self._end_progress_bar()
            self._put([(STDERR, line)], len(line))

    def close(self) -> None:
        """Write what is queued, within the limits above, and end the thread. May be called twice.

        Of what a stalled console has not taken, the runner's own lines are tried once more, as long as one stall.
        """
        with self._mutex:
            self._put_skipped_notice()
            self._is_closing = True
            self._changed.ring()
        self._wait_while_it_moves()
        with self._mutex:
            left = [*reversed(self._taken), *self._blocks]
            self._taken, self._blocks = [], []
        if not left:
            return

        own_lines = [block for fd, block in left if fd == STDERR]
        unseen = sum(bytes(block).count(b"\n") for fd, block in left if fd == STDOUT)
        if unseen and STDOUT not in self._closed_fds:
            own_lines.insert(0, b"\n" + self._skipped_notice(unseen))
        # In a thread of its own, too: poll(2) promises room for some bytes, and the write of a line can still block.
        rescue = Thread(lambda: self._write_own_lines(own_lines))
        try:
            rescue.start()
        except AscendRunnerError:
            return  # who has seen too many processes has said so
        rescue.has_ended(STALL_LIMIT)

    def _put(self, blocks: list[tuple[int, bytes | memoryview]], size: int) -> None:
        self._blocks.extend(blocks)
        self._queued += size
        self._changed.ring()

    def _end_progress_bar(self, unless_of: int | None = None) -> None:
        """Leave a line that ended in a carriage return on the screen before somebody else writes over it."""
        if self._bar_of is not None and self._bar_of != unless_of:
            self._put([(STDOUT, b"\n")], 1)
            self._bar_of = None

    def _put_skipped_notice(self) -> None:
        if self._skipped_lines:
            notice = self._skipped_notice(self._skipped_lines)
            self._skipped_lines = 0
            self._put([(STDERR, notice)], len(notice))

    def _run(self) -> None:
        while True:
            is_closing = self._is_closing  # looked at before the blocks: none comes after it
            block = self._take()
            if block:
                self._moved_at = time.monotonic()
                self._write(*block)
                with self._mutex:
                    self._queued -= len(block[1])
            elif is_closing:
                return
            else:
                self._changed.wait()

    def _take(self) -> tuple[int, bytes | memoryview] | None:
        with self._mutex:
            if not self._taken:
                self._taken, self._blocks = self._blocks[::-1], []
            return self._taken.pop() if self._taken else None

    def _write_own_lines(self, lines: list[bytes | memoryview]) -> None:
        for line in lines:
            self._write(STDERR, line)

    def _write(self, fd: int, block: bytes | memoryview) -> None:
        rest = memoryview(block)
        while rest and fd not in self._closed_fds:
            try:
                written = os.write(fd, rest[: LAST_PIECE if self._is_closing else PIECE])
            except BlockingIOError:  # somebody else has set O_NONBLOCK on our terminal
                _wait_until_writable(fd)
                continue
            except OSError as error:  # the log files go on
                self._give_up(fd, error)
                return
            rest = rest[written:]
            self._moved_at = time.monotonic()

    def _give_up(self, fd: int, error: OSError) -> None:
        """Leave an output whose reader has gone, or stdout on a full disk; on stderr the next line may find room."""
        is_reader_gone = error.errno == EPIPE or (error.errno == EIO and stat.S_ISCHR(os.fstat(fd).st_mode))
        if is_reader_gone or fd == STDOUT:
            self._closed_fds.add(fd)
        if fd == STDOUT and not is_reader_gone:
            self.has_lost_text = self._has_text
            with self._mutex:
                notice = self._failure_notice(error)
                self._taken.append((STDERR, notice))
                self._queued += len(notice)

    def _wait_while_it_moves(self) -> None:
        """Wait until the thread has ended, as long as it writes something every now and then."""
        start = self._moved_at = time.monotonic()  # the last byte before may have been an hour ago
        left = STALL_LIMIT
        while left > 0 and not self._thread.has_ended(left):
            left = min(self._moved_at + STALL_LIMIT, start + DRAIN_LIMIT) - time.monotonic()


def _wait_until_writable(fd: int) -> None:
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    poll.poll()

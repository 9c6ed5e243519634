"""Moves every byte that the ranks write: raw to each rank's log file, in whole prefixed lines to the console.

One thread with its own epoll. Never stops reading: a full pipe would stall the training, whatever the disk and the
console do.
"""

from __future__ import annotations

import os
import select
import time

from ascend_runner.annotations import TYPE_CHECKING, Final
from ascend_runner.plain_signal import SIGTERM

from . import pipe
from .threads import Bell, Thread

if TYPE_CHECKING:
    from .console import Console
    from .lines import LineCutter
    from .log_file import LogFile

READ_SIZE: Final = 256 * 1024  # bytes; with 4 KiB the same work takes 60 times as many calls
TAIL_SIZE: Final = 64 * 1024  # bytes of each rank's output kept for the report
REUSED: Final = 8 * 1024 * 1024  # bytes, see _reuse_buffers

SETTLE_LIMIT: Final = 0.2  # seconds to read what a dead rank had written; it is in the pipe, so this takes microseconds


class Stream:
    """The output of one rank: where it goes, and what the report will ask for. Written by the pump's thread only."""

    def __init__(self, rank_id: int, log: LogFile, cutter: LineCutter | None) -> None:
        """Without `cutter` the rank's lines are not shown."""
        self.rank_id = rank_id
        self.log = log
        self.cutter = cutter
        self.size = 0  # bytes read so far
        self._tail: list[bytes] = []
        self._tail_size = 0

    @property
    def tail(self) -> bytes:
        """The last bytes written, `TAIL_SIZE` of them where there are so many."""
        return b"".join(self._tail)[-TAIL_SIZE:]

    def remember(self, data: bytes) -> None:
        """Count `data` and keep its end."""
        self.size += len(data)
        data = data[-TAIL_SIZE:]
        self._tail.append(data)
        self._tail_size += len(data)
        while self._tail_size - len(self._tail[0]) >= TAIL_SIZE:
            self._tail_size -= len(self._tail.pop(0))


class Pump:
    """One thread that reads all ranks' pipes until each has reached its end."""

    def __init__(self, console: Console) -> None:
        self.last_activity = time.monotonic()  # when a rank wrote last
        self.failure: BaseException | None = None  # what ended the thread before its time
        self._console = console
        self._streams: dict[int, Stream] = {}  # by the pipe's read end
        self._epoll = select.epoll()
        self._waker_reader, self._waker = os.pipe2(os.O_CLOEXEC)
        self._epoll.register(self._waker_reader, select.EPOLLIN)
        self._is_finishing = False
        self._settled = Bell()
        self._thread = Thread(self._run)

    def start(self) -> None:
        """Start the thread. Errors: AscendRunnerError where there are too many (RLIMIT_NPROC)."""
        _reuse_buffers()
        self._thread.start()

    def add(self, stream: Stream) -> int:
        """Read one more rank. The fd returned is the write end for the rank; the caller closes its own copy."""
        reader, writer = os.pipe2(os.O_CLOEXEC)
        pipe.grow(writer)
        self._streams[reader] = stream
        self._epoll.register(reader, select.EPOLLIN)
        return writer

    def settle(self, seconds: float = SETTLE_LIMIT) -> None:
        """Wait until what stands in the pipes now was read, at most `seconds`."""
        self._settled.wait(0.0)  # it may have been rung for an earlier wait that was given up
        os.write(self._waker, b"\0")
        self._settled.wait(seconds)

    def finish(self, seconds: float) -> bool:
        """Wait until every pipe has reached its end, at most `seconds`; whether all was read. May be called again."""
        if self._epoll.closed:
            return True
        self._is_finishing = True
        os.write(self._waker, b"\0")
        if not self._thread.has_ended(seconds):
            return False
        self._epoll.close()
        for fd in (self._waker_reader, self._waker, *self._streams):
            os.close(fd)
        return True

    def _run(self) -> None:
        try:
            self._pump_until_all_have_ended()
        except BaseException as error:
            # Nobody reads the pipes any more, and ranks that wait for that would hang: the job has to end.
            self.failure = error
            os.kill(os.getpid(), SIGTERM)
            raise

    def _pump_until_all_have_ended(self) -> None:
        while self._streams or not self._is_finishing:
            ready = [fd for fd, _events in self._epoll.poll()]
            for fd in ready:
                if fd != self._waker_reader:
                    self._move(fd, self._streams[fd])
            if ready == [self._waker_reader]:  # nothing but the wake-up was there: all pipes are empty
                os.read(self._waker_reader, 4096)
                self._settled.ring()

    def _move(self, fd: int, stream: Stream) -> None:
        data = os.read(fd, READ_SIZE)
        if not data:
            self._end(fd, stream)
            return

        self.last_activity = time.monotonic()
        stream.remember(data)  # first, for the report: the disk may hang
        try:
            if stream.cutter is not None:
                self._show(data, stream.rank_id, stream.cutter)  # the console's thread writes while this one does
        finally:
            stream.log.write(data)

    def _show(self, data: bytes, rank_id: int, cutter: LineCutter) -> None:
        if self._console.has_room(len(data)):
            self._console.show(rank_id, cutter.feed(data))
        else:  # a console that stalls for hours must not cost the ranks more than one that is read
            self._console.skip(cutter.skip(data))

    def _end(self, fd: int, stream: Stream) -> None:
        self._epoll.unregister(fd)
        del self._streams[fd]
        os.close(fd)
        stream.log.close()
        if stream.cutter:
            self._console.show(stream.rank_id, [stream.cutter.finish()])


def _reuse_buffers() -> None:
    """Have the C library keep the buffers of reads: to give each back to the kernel and get it anew takes a tenth more.

    mallopt(3), M_MMAP_THRESHOLD: where a block that was mapped is freed, glibc maps only larger ones from then on, and
    keeps twice as much of its heap. This one is never touched, and so no memory. Elsewhere it does nothing.
    """
    bytes(REUSED)

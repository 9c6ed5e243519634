"""A bounded queue in front of a log file, and the thread that empties it: a hung disk does not delay the pump.

Each file has a thread of its own, started with its first byte: with a shared pool, a few hung files could occupy every
thread and starve the rest. The pump never waits for a thread. A rank that prints nothing has none.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from ascend_runner.activity import Activity
from ascend_runner.errors import AscendRunnerError
from ascend_runner.host import bounded
from ascend_runner.output.gaps import Gap, add_gap
from ascend_runner.output.log_file import LAST_PIECE, DiskWarnings, LogFile

STALL_LIMIT: Final = 1.0  # seconds without a byte written after which a disk counts as hung
ALL_QUEUES: Final = 128 * 1024 * 1024  # bytes, of all ranks together
SMALLEST_QUEUE: Final = 1024 * 1024  # bytes
LARGEST_QUEUE: Final = 32 * 1024 * 1024  # bytes


def queue_limit(ranks: int) -> int:
    """Return the size in bytes of each rank's queue."""
    return min(LARGEST_QUEUE, max(SMALLEST_QUEUE, ALL_QUEUES // max(1, ranks)))


class LogWriter:
    """Takes the output of one rank and never blocks. `gaps` lists the bytes that the log file lacks.

    Only the thread of the pump calls `put` and `close`.
    """

    def __init__(
        self,
        file: LogFile,
        limit: int,
        activity: Activity,
        warnings: DiskWarnings,
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`limit` is the size of the queue in bytes, which one read may exceed; `activity` counts what is lost."""
        self.file = file
        self.activity = activity
        self._limit = limit
        self._warnings = warnings
        self._now = now
        self._queue: queue.SimpleQueue[bytes | int | None] = queue.SimpleQueue()  # data, bytes to skip, or the end
        self._thread: threading.Thread | None = None
        self._has_no_thread = False  # whether no thread could be started
        self._when_room: Callable[[], None] | None = None
        self._is_given_up = False
        # Written by the pump's thread only:
        self._offset = file.start  # the offset in the log
        self._put = 0  # bytes put into the queue
        self._to_skip = 0  # bytes dropped since then
        self._dropped: list[Gap] = []
        self._full_since: tuple[int, float] | None = None  # how much was written when the queue was full, and the time
        # Written by the writer's thread only:
        self._written = 0  # bytes taken from the queue, and in the file or one of its gaps
        self._skipped = 0  # bytes skipped in the file

    @property
    def gaps(self) -> Sequence[Gap]:
        """The parts of the output that were lost."""
        gaps = [*self._dropped, *self.file.gaps]
        if self._is_given_up and self._unwritten:
            gaps.append(Gap(self.file.offset, self._unwritten))
        return gaps

    @property
    def lost(self) -> int:
        """The number of bytes that the log file lacks."""
        return sum(gap.size for gap in self.gaps)

    @property
    def is_alive(self) -> bool:
        """Whether the thread is running."""
        return self._thread is not None and self._thread.is_alive()

    def put(self, data: bytes) -> bool:
        """Take `data`; return whether there is room for more.

        If the queue is full and the disk has hung for `STALL_LIMIT`, `data` is dropped instead, and there is always
        room.
        """
        start = self._offset
        self._offset += len(data)
        if self.is_hung():
            self._to_skip += len(data)
            add_gap(self._dropped, Gap(start, len(data)))
            self.activity.lose(self.lost)
            self._warnings.warn_once(
                "hangs",
                f"cannot write {self.file.path!r}: its disk has not responded for {STALL_LIMIT:g} s; the job continues,"
                " but this output is lost",
            )
            return True
        if self._to_skip:
            self._hand_over(self._to_skip)
            self._to_skip = 0
        self._put += len(data)
        self._hand_over(data)
        self.is_hung()  # if the queue is full, the time counts from now on
        return not self._is_full()

    def has_room(self) -> bool:
        """Whether half of the queue is free."""
        return self._put - self._written <= self._limit // 2

    def call_when_room(self, call: Callable[[], None]) -> None:
        """Call `call` once, in any thread, as soon as there is room."""
        self._when_room = call
        if self.has_room():  # the thread may have checked just before
            self._call_if_room()

    def is_hung(self) -> bool:
        """Return whether the queue has been full for `STALL_LIMIT` without a byte written."""
        if not self._is_full():
            self._full_since = None
            return False
        if self._full_since is None or self._full_since[0] != self.file.offset:
            self._full_since = (self.file.offset, self._now())
        return self._now() - self._full_since[1] >= STALL_LIMIT

    def close(self) -> None:
        """Let the thread write the queue, close the file, and end. Does not wait for it."""
        self.file.piece_size = LAST_PIECE
        if self._thread:
            self._queue.put(None)

    def give_up(self) -> None:
        """Count the bytes that are not written yet as lost. If the thread resumes, it writes nothing more."""
        self._is_given_up = True
        self.file.give_up()

    def join(self, seconds: float) -> None:
        """Wait for the end of the thread."""
        if self._thread:
            self._thread.join(seconds)

    # --- In the pump's thread -----------------------------------------------------------------------------------------

    def _is_full(self) -> bool:
        return self._put - self._written > self._limit

    def _hand_over(self, item: bytes | int) -> None:
        if self._thread is None and not self._has_no_thread:
            try:
                self._thread = bounded.start_thread(self._run)
            except AscendRunnerError:  # the limit of processes: then the pump has to wait for the disk
                self._has_no_thread = True
        if self._thread:
            self._queue.put(item)
        else:
            self._store(item)

    # --- In the writer's thread ---------------------------------------------------------------------------------------

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            if self._is_given_up:
                return
            self._store(item)
        self.file.close()

    def _store(self, item: bytes | int) -> None:
        if isinstance(item, int):
            self.file.skip(item)
            self._skipped += item
            self._warnings.warn_once("responds again", f"{self.file.path!r} is writable again; {item} bytes were lost")
            return
        newest = self.file.gaps[-1:]
        self.file.write(item)
        if self.file.gaps[-1:] != newest:
            self.activity.lose(self.lost)
        self._written += len(item)
        if self._when_room:
            self._call_if_room()

    def _call_if_room(self) -> None:
        call = self._when_room
        if call and self.has_room():
            self._when_room = None
            call()

    @property
    def _unwritten(self) -> int:
        return self._put - (self.file.offset - self.file.start - self._skipped)


def drain(
    writers: Sequence[LogWriter],
    seconds: float,
    is_cut: Callable[[], bool],
    *,
    now: Callable[[], float] = time.monotonic,
) -> None:
    """Wait until all closed writers have ended, or `is_cut`, for as long as any writes something within `seconds`.

    All of them count, since they share a disk that may serve one after the other. The rest is lost.
    """
    progress, moved_at = -1, now()
    while alive := [writer for writer in writers if writer.is_alive]:
        found = sum(writer.file.offset for writer in writers) - len(alive)
        if found != progress:
            progress, moved_at = found, now()
        elif now() - moved_at >= seconds:
            break
        if is_cut():
            break
        alive[0].join(seconds / 8)
    for writer in writers:
        writer.give_up()

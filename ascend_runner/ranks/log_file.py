"""The log file of one rank: every byte in order, rotated between lines, behind a queue that a hung disk does not block.

A full disk, a quota or an I/O error must not stop the training: bytes that cannot be written are recorded by their
offset in the rank's output, and the next write tries again. No error leaves `LogFile.write`.

A hung disk does not delay the pump, which never waits for a thread. Each file has a thread of its own, started with its
first byte: with a shared pool, a few hung files could occupy every thread and starve the rest.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

import attrs

from ascend_runner import files
from ascend_runner.activity import Activity
from ascend_runner.errors import AscendRunnerError, OutputError, reason
from ascend_runner.node import bounded
from ascend_runner.plan.spec import Rotation


@attrs.frozen
class Gap:
    """A part of the rank's output that the file lacks: `size` bytes, starting at `offset`."""

    offset: int
    size: int

    @property
    def end(self) -> int:
        """The offset of the first byte after the gap."""
        return self.offset + self.size


def add_gap(gaps: list[Gap], gap: Gap) -> None:
    """Append a gap, or lengthen the last one if it ends where this one begins."""
    if gaps and gaps[-1].end == gap.offset:
        gap = Gap(gaps[-1].offset, gaps.pop().size + gap.size)
    gaps.append(gap)


COPY_SIZE: Final = 1024 * 1024  # bytes
PIECE: Final = 256 * 1024  # bytes of one write
LAST_PIECE: Final = 32 * 1024  # bytes of one write at the end: small, so that a slow disk shows that it still moves


class DiskWarnings:
    """The warnings of all log files on one disk, which usually fail together. Called by several threads."""

    def __init__(self, warn: Callable[[str], None]) -> None:
        self.warn = warn
        self._lock = threading.Lock()
        self._reported: set[str] = set()

    def warn_once(self, event: str, sentence: str) -> None:
        """Warn, unless a log file has already reported this event."""
        with self._lock:
            is_new = event not in self._reported
            self._reported.add(event)
        if is_new:
            self.warn(sentence)


class Disk:
    """The system calls on an open log file: each may fail, or hang."""

    def write(self, fd: int, data: memoryview) -> int:
        """Write some bytes; return how many."""
        return os.write(fd, data)

    def status(self, fd: int) -> os.stat_result:
        """Return the status of an open file."""
        return os.fstat(fd)

    def close(self, fd: int) -> None:
        """Close a file."""
        os.close(fd)


class LogFile:
    """Takes bytes and never fails. `gaps` lists the bytes that could not be written."""

    def __init__(
        self,
        path: str,
        rotation: Rotation,
        warnings: DiskWarnings,
        disk: Disk | None = None,
        *,
        continues: bool = False,
    ) -> None:
        """Open a new file, or one that `continues` the output of an earlier attempt.

        Raises:
            OutputError: The file cannot be created.
        """
        self.path = path
        self.gaps: list[Gap] = []
        self.piece_size = PIECE
        self._rotation = rotation
        self._warnings = warnings
        self._disk = disk or Disk()
        self._fd = files.reopen_log(path) if continues else files.open_new_log(path)
        self._size = os.fstat(self._fd).st_size if continues else 0  # bytes in this file
        self.start = self._size
        self.offset = self.start  # the bytes of the output up to here are in the file or in a gap
        self._is_at_line_start = True
        self._is_failing = False
        self._is_displaced = False  # whether something else is at `path`
        self._is_given_up = False

    def write(self, data: bytes) -> None:
        """Append `data`."""
        end = self.offset + len(data)
        try:
            self._follow()
            self._append_rotating(data)
        except (OSError, OutputError) as error:
            self._lose(end - self.offset, error)
        else:
            self._record_success()

    def give_up(self) -> None:
        """Write nothing more, not even the rest of what a thread is writing: it is counted as lost."""
        self._is_given_up = True

    def skip(self, size: int) -> None:
        """Skip bytes of the output, which are recorded elsewhere."""
        self.offset += size

    def close(self) -> None:
        """Close the file. May be called twice."""
        if self._fd < 0:
            return
        with suppress(OSError, OutputError):  # everything written before has arrived, or close() fails as well
            self._follow()
            if not self._disk.status(self._fd).st_nlink:
                add_gap(self.gaps, Gap(self.offset - self._size, self._size))
        fd, self._fd = self._fd, -1
        try:
            self._disk.close(fd)
        except OSError as error:  # network file systems may report failed writes only now
            why = f"cannot close {self.path!r}: {reason(error)}; its last lines may be missing"
            self._warnings.warn(files.lost_disk(self.path, error) or why)

    def _append_rotating(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest and self._rotation.max_size and self._size + len(rest) > self._rotation.max_size:
            if self._is_given_up:
                return
            rest = rest[self._fill(data, len(data) - len(rest)) :]
        self._append(rest)

    def _append(self, data: memoryview) -> None:
        rest = data
        while rest and not self._is_given_up:
            written = self._disk.write(self._fd, rest[: self.piece_size])
            self.offset += written
            self._size += written
            rest = rest[written:]
        if data:
            self._is_at_line_start = data[-1] == ord("\n")

    # --- Failed writes ------------------------------------------------------------------------------------------------

    def _lose(self, size: int, error: OSError | OutputError) -> None:
        add_gap(self.gaps, Gap(self.offset, size))
        self.offset += size
        if not self._is_failing:
            self._is_failing = True
            what = f"cannot write {self.path!r}: {reason(error)}" if isinstance(error, OSError) else str(error)
            sentence = files.lost_disk(self.path, error) or f"{what}; the job continues, but this output is lost"
            self._warnings.warn_once("failed", sentence)

    def _record_success(self) -> None:
        if self._is_failing:
            self._is_failing = False
            lost = self.gaps[-1].size
            self._warnings.warn_once("works again", f"{self.path!r} is writable again; {lost} bytes were lost")

    # --- Rotation -----------------------------------------------------------------------------------------------------

    def _fill(self, data: bytes, start: int) -> int:
        """Write the whole lines of `data` from `start` on that fit, or else rotate; return the number of bytes written.

        A line that is longer than the limit of a file stays in one piece.
        """
        end = data.rfind(b"\n", start, start + max(0, self._rotation.max_size - self._size)) + 1
        if not end and self._is_at_line_start and self._size:
            self._rotate()
            return 0
        if not end:
            end = data.find(b"\n", start) + 1 or len(data)
        self._append(memoryview(data)[start:end])
        return end - start

    def _rotate(self) -> None:
        """Rename path.1 to path.2 and so on, the file itself to path.1, and open a new file."""
        try:
            backups = self._rotation.backups
            free = next(
                (number for number in range(1, backups) if not os.path.lexists(f"{self.path}.{number}")), backups
            )
            for number in range(free, 0, -1):
                os.replace(f"{self.path}.{number - 1}" if number > 1 else self.path, f"{self.path}.{number}")
            if not self._rotation.backups:
                os.unlink(self.path)
            self._switch_to(files.open_new_log(self.path))
        except (OSError, OutputError) as error:
            self._rotation = Rotation()  # one file that grows is better than none
            self._warnings.warn(f"cannot rotate {self.path!r}: {error}; the file will grow without limit")

    # --- Files that others remove, move, empty or replace -------------------------------------------------------------

    def _follow(self) -> None:
        """Detect that the file was removed, moved or truncated, so that output does not end up in an unreachable file.

        Raises:
            OSError, OutputError: The disk of the file was lost, and the path cannot be opened again.
        """
        try:
            status = self._disk.status(self._fd)
        except OSError:  # ESTALE, ENOTCONN: this descriptor is lost for good, but the disk may be mounted again
            self._switch_to(files.reopen_log(self.path))
            status = self._disk.status(self._fd)
        if status.st_size < self._size:
            lost = self._size - status.st_size
            add_gap(self.gaps, Gap(self.offset - self._size, lost))
            self._warnings.warn(f"{self.path!r} was truncated by another program: {lost} bytes were lost")
        self._size = status.st_size
        if not status.st_nlink:
            self._restore()
        elif not self._is_displaced:
            self._return_to_path(status)

    def _restore(self) -> None:
        """Create a removed file again with its content, which can still be read through the open descriptor."""
        try:
            files.make_folder(os.path.dirname(self.path))
            fd = files.open_new_log(self.path)
        except OutputError as error:
            if not self._is_displaced:
                self._is_displaced = True
                self._warnings.warn(
                    f"{self.path!r} was removed and cannot be recreated yet ({error}); until then its output is lost"
                )
            return  # every later call tries again
        self._warnings.warn(f"{self.path!r} was removed; it has been recreated with its content")
        size, copied = self._size, 0
        try:
            while block := os.pread(self._fd, COPY_SIZE, copied):
                copied += _write_all(fd, block)
        except OSError as error:
            self.offset -= size - copied
            self._lose(size - copied, error)
        self._switch_to(fd)
        self._size = copied

    def _return_to_path(self, status: os.stat_result) -> None:
        """Continue in a new file if the log was moved. Neither the moved file nor another file at the path is touched.

        `mv log log.old` is what log rotation by other programs does, and a link to the moved file leads to it.
        """
        try:
            if os.path.samestat(status, os.stat(self.path)):
                return
        except FileNotFoundError:
            pass
        except OSError:
            return  # the path cannot be followed now, but the open file is as good as before
        new_path = os.readlink(f"/proc/self/fd/{self._fd}")
        if new_path == os.path.realpath(self.path):
            return  # a file system with changing inode numbers
        moved = f"was moved to {new_path!r}"
        if not _leads_to(new_path, status):
            moved = "can no longer be found, perhaps because its disk was unmounted"
        if os.path.lexists(self.path):
            self._stay(moved, "another file is in its place")
            return
        try:
            files.make_folder(os.path.dirname(self.path))
            fd = files.open_new_log(self.path)
        except OutputError as error:
            self._stay(moved, str(error))
            return
        self._warnings.warn(f"{self.path!r} {moved}; its output continues in a new file")
        self._switch_to(fd)

    def _stay(self, moved: str, why: str) -> None:
        self._is_displaced = True
        self._warnings.warn(f"{self.path!r} {moved}; its output continues in the same file: {why}")

    def _switch_to(self, fd: int) -> None:
        old, self._fd = self._fd, fd
        with suppress(OSError):  # the descriptor of a lost disk
            self._disk.close(old)
        self._size = os.fstat(fd).st_size
        self._is_at_line_start = True
        self._is_displaced = False


def _leads_to(path: str, status: os.stat_result) -> bool:
    """Whether a path refers to the file with this status."""
    try:
        return os.path.samestat(status, os.stat(path))
    except OSError:
        return False


def _write_all(fd: int, data: bytes) -> int:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]
    return len(data)


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

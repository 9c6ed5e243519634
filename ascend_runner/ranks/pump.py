"""Moves every byte that the ranks write: unchanged to their log files, as whole prefixed lines to the console.

One thread reads all pipes and never waits for anything else: console and log files have queues and threads of their
own. A rank whose log queue is full is not read until there is room again, or until its disk counts as hung; no other
rank notices. While the ranks print only single lines, it pauses before a read, to get lines of several ranks.
The end of each output is kept for the report.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from signal import SIGTERM
from typing import Final

from ascend_runner import files
from ascend_runner.node import bounded
from ascend_runner.ranks.console import Console, grow_pipe
from ascend_runner.ranks.lines import LineCutter
from ascend_runner.ranks.log_file import STALL_LIMIT, LogWriter

TAIL_SIZE: Final = 64 * 1024  # bytes of the output kept for the report
SHOW_AFTER: Final = 1.0  # seconds until an unfinished line is shown, and between two states of the only bar
BAR_INTERVAL: Final = 10.0  # seconds between two states of a progress bar if each takes a line


class Stream:
    """The output of one rank. Changed by the pump's thread only."""

    def __init__(
        self,
        rank_id: int,
        log: LogWriter,
        cutter: LineCutter | None,
        *,
        show_after: float = SHOW_AFTER,
        tap: Callable[[bytes], None] | None = None,
    ) -> None:
        """Without `cutter` the rank's lines are not shown; unfinished lines are shown after `show_after` seconds.

        `tap` also receives everything that is read.
        """
        self.rank_id = rank_id
        self.log = log
        self.cutter = cutter
        self.show_after = show_after
        self.tap = tap
        self.activity = log.activity
        self.next_bar = 0.0  # the earliest time to show another state of a progress bar
        self.unread = 0  # bytes that were left in the pipe
        self._tail: list[bytes] = []
        self._tail_size = 0

    @property
    def tail(self) -> bytes:
        """The last `TAIL_SIZE` bytes of the output, or all of it."""
        return b"".join(self._tail)[-TAIL_SIZE:]

    def remember(self, data: bytes, at: float) -> None:
        """Count `data`, which was read at a time of the pump's clock, and keep its end."""
        self.activity.add(data, at)
        data = data[-TAIL_SIZE:]
        self._tail.append(data)
        self._tail_size += len(data)
        while self._tail_size - len(self._tail[0]) >= TAIL_SIZE:
            self._tail_size -= len(self._tail.pop(0))


READ_SIZE: Final = 512 * 1024  # bytes, half of a pipe; with less, threads wake each other more often
SETTLE_LIMIT: Final = 0.2  # seconds to read the present contents of the pipes, which takes microseconds
FLOOD: Final = 4096  # bytes of one round of reads; with less, the ranks print single lines
CALM_AFTER: Final = 1.0  # seconds without a flood
NAP: Final = 0.1  # seconds of such a pause, so that no line is late; without it, each line wakes three threads


class Pump:
    """One thread that reads the pipes of all ranks until each has reached its end."""

    def __init__(self, console: Console, *, now: Callable[[], float] = time.monotonic) -> None:
        self.is_redrawn = True  # whether the console is a terminal
        self.tell_bars: Callable[[], object] = bool  # called once, in the thread, if several ranks have progress bars
        self.last_activity = self._read_at = now()  # the last output that counts as activity, and any output
        self.is_no_activity: Callable[[bytes], bool] | None = None  # whether a piece of output does not count
        self.failure: BaseException | None = None  # the error that has ended the thread
        self._console = console
        self._now = now
        self._with_bars: set[int] = set()  # ranks that have shown a progress bar
        self._streams: dict[int, Stream] = {}  # streams by the read end of their pipe
        self._epoll = select.epoll()
        self._paused: dict[int, float] = {}  # read ends that are not read, and when to check them again
        self._unfinished: dict[int, float] = {}  # read ends with an unfinished line, and when to show it
        self._flood_at = now()  # when the ranks last wrote much, or began
        self._waker_reader, self._waker = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._epoll.register(self._waker_reader, select.EPOLLIN)
        self.nap = NAP
        self._size = 0  # bytes read from all pipes
        self._calls = select.poll()
        self._calls.register(self._waker_reader, select.POLLIN)
        self._closing = threading.Lock()
        self._is_finishing = False
        self._reading = threading.Lock()  # guards the attribute below
        self._is_given_up = False
        self._settled = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread.

        Raises:
            AscendRunnerError: The limit of processes is reached.
        """
        self._thread = bounded.start_thread(self._run)

    def add(self, stream: Stream) -> int:
        """Return the fd to which the rank is to write. The caller closes it.

        Raises:
            OSError: No more files can be opened.
        """
        reader, writer = os.pipe2(os.O_CLOEXEC)
        # An outsider (`cat /proc/PID/fd/1`) may take the bytes that have made the pipe readable.
        os.set_blocking(reader, False)
        grow_pipe(writer)
        self._streams[reader] = stream
        self._epoll.register(reader, select.EPOLLIN)
        return writer

    def settle(self, seconds: float = SETTLE_LIMIT) -> None:
        """Wait at most `seconds` until everything written before the call has been read."""
        self._settled.clear()  # an earlier call may have given up
        self._wake()
        self._settled.wait(seconds)

    def finish(self, seconds: float, is_cut: Callable[[], bool]) -> bool:
        """Read the contents of the pipes and end; return whether that was possible.

        Waits until `is_cut`, or until nothing was read for `seconds`, but not for the end of a pipe: after the end of
        the job only outsiders can hold it open. Call it again to continue.
        """
        if self._epoll.closed:
            return True
        self._is_finishing = True
        self._wake()
        while self._thread and self._thread.is_alive():
            size = self._size
            self._thread.join(seconds)
            if self._thread.is_alive() and (is_cut() or self._size == size):
                return False
        self._epoll.close()
        with self._closing:
            for fd in (self._waker_reader, self._waker, *self._streams):
                os.close(fd)
        return True

    def give_up(self) -> None:
        """Read nothing more, and count what is left in the pipes as unread."""
        with self._reading:
            self._is_given_up = True
            for fd, stream in list(self._streams.items()):
                with suppress(OSError):  # the thread has just closed the pipe, at its end
                    stream.unread = files.bytes_in_pipe(fd)

    @property
    def has_timers(self) -> bool:
        """Whether the thread will wake up even if no rank writes."""
        return bool(self._unfinished or self._paused)

    def _wake(self) -> None:
        """Wake the thread. Also called by the threads of log files, even after the end."""
        with self._closing, suppress(BlockingIOError):  # full because of earlier calls
            if not self._epoll.closed:
                os.write(self._waker, b"\0")

    # --- In the thread ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._is_finishing:
                self._pump_once()
            for fd, stream in list(self._streams.items()):
                self._read_rest(fd, stream)
        except BaseException as error:
            # Ranks would hang in writes to pipes that are no longer read, so the job has to end.
            self.failure = error
            os.kill(os.getpid(), SIGTERM)
            raise

    def _pump_once(self) -> None:
        found = self._epoll.poll(self._time_to_next_check())
        if found and self._now() >= self._flood_at + CALM_AFTER:
            self._calls.poll(self.nap * 1000)
            found = self._epoll.poll(0)
        ready = [fd for fd, _events in found]
        size = sum(self._move(fd, self._streams[fd], READ_SIZE) for fd in ready if fd != self._waker_reader)
        if self.has_timers:
            self._show_unfinished_lines()
            self._resume()
        if ready == [self._waker_reader]:  # all other pipes are empty
            os.read(self._waker_reader, 4096)
            self._settled.set()
        if size >= FLOOD:
            self._flood_at = self._read_at

    def _time_to_next_check(self) -> float | None:
        if not self.has_timers:
            return None
        return max(0.0, min((*self._unfinished.values(), *self._paused.values())) - self._now())

    def _move(self, fd: int, stream: Stream, size: int) -> int:
        """Read once, at most `size` bytes; return how many there were."""
        try:
            with self._reading:
                if self._is_given_up:
                    return 0
                data = os.read(fd, size)
        except BlockingIOError:
            return 0
        if not data:
            self._end(fd, stream)
            return 0

        self._read_at = self._now()
        if not (self.is_no_activity and self.is_no_activity(data)):
            self.last_activity = self._read_at
        self._size += len(data)
        stream.remember(data, self._read_at)
        # Before anything else: to cut a flood of carriage returns for the console may take seconds.
        if not stream.log.put(data) and not self._is_finishing:
            self._epoll.unregister(fd)
            self._paused[fd] = self._read_at + STALL_LIMIT
            stream.log.call_when_room(self._wake)
        if stream.tap:
            stream.tap(data)
        if stream.cutter:
            self._show(fd, data, stream, stream.cutter)
        return len(data)

    def _read_rest(self, fd: int, stream: Stream) -> None:
        """Read the present contents of a pipe. An outsider may hold it open, or even keep writing."""
        left = files.bytes_in_pipe(fd)
        while left and (moved := self._move(fd, stream, min(left, READ_SIZE))):
            left -= moved
        if fd in self._streams:
            self._end(fd, stream)

    def _end(self, fd: int, stream: Stream) -> None:
        if self._paused.pop(fd, None) is None:
            self._epoll.unregister(fd)
        self._unfinished.pop(fd, None)
        del self._streams[fd]
        os.close(fd)
        stream.log.close()
        cutter = stream.cutter
        if cutter:
            self._console.show(stream.rank_id, [cutter.finish()], cutter.continued)

    # --- Ranks that are ahead of their disk ---------------------------------------------------------------------------

    def _resume(self) -> None:
        """Read on where there is room again, and where the disk hangs: then `Log.put` drops what does not fit."""
        now = self._now()
        for fd, look_at in list(self._paused.items()):
            log = self._streams[fd].log
            if log.has_room() or (now >= look_at and log.is_hung()):
                del self._paused[fd]
                self._epoll.register(fd, select.EPOLLIN)
            elif now >= look_at:
                self._paused[fd] = now + STALL_LIMIT

    # --- The console --------------------------------------------------------------------------------------------------

    def _show(self, fd: int, data: bytes, stream: Stream, cutter: LineCutter) -> None:
        if self._console.wait_for_room(len(data)):
            pieces = cutter.feed(data)
            self._console.show(stream.rank_id, pieces, cutter.continued)
            is_new_line = any(pieces)
        else:  # a stalled console must not slow the ranks more than a working one
            skipped = cutter.skip(data)
            self._console.skip(skipped)
            is_new_line = skipped > 0
        show_at = self._read_at + stream.show_after
        if not cutter.is_waiting:
            self._unfinished.pop(fd, None)
        elif cutter.has_bar:
            self._unfinished.setdefault(fd, max(show_at, stream.next_bar))
        elif is_new_line:
            self._unfinished[fd] = show_at
        else:
            self._unfinished.setdefault(fd, show_at)

    def _show_unfinished_lines(self) -> None:
        now = self._now()
        for fd, show_at in list(self._unfinished.items()):
            if now < show_at:
                continue
            stream = self._streams[fd]
            cutter = stream.cutter
            if cutter and self._console.wait_for_room(0):
                if cutter.has_bar:
                    stream.next_bar = now + self._bar_interval(stream.rank_id)
                self._console.show(stream.rank_id, [cutter.show_unfinished()], cutter.continued)
                del self._unfinished[fd]
            else:
                self._unfinished[fd] = now + SHOW_AFTER

    def _bar_interval(self, rank_id: int) -> float:
        """Return the seconds between two states of a progress bar. If several ranks have bars, each takes a line."""
        others = len(self._with_bars)
        self._with_bars.add(rank_id)
        if others == 1 < len(self._with_bars):
            self.tell_bars()
        return SHOW_AFTER if self.is_redrawn and len(self._with_bars) == 1 else BAR_INTERVAL

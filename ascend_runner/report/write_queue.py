"""Writes the records of a job in the background, so that a disk that is full or hangs does not hold up the ranks.

The thread ends after a moment without anything to write, so an idle job has no such thread.
"""

from __future__ import annotations

import os
import stat
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from ascend_runner.errors import AscendRunnerError, OutputError
from ascend_runner.node import bounded

TERMINATION_LOG: Final = "/dev/termination-log"  # shown by `kubectl describe pod` in Kubernetes
LONGEST_CAUSE: Final = 4096  # bytes of the last cause that Kubernetes reads
LINGER: Final = 1.0  # seconds without a write until the thread ends. An attempt that fails writes several times
# Seconds before a write, and others that follow it, unless they are waited for: a restart, which takes less, is not
# delayed by this thread, and of its reports only the last is written.
PAUSE: Final = 0.1
MOST_WAITING: Final = 64  # writes; only a disk that hangs has more, and those are discarded


class WriteQueue:
    """Carries out writes in order. A file that cannot be written causes one warning."""

    def __init__(self, warn: Callable[[str], None], is_cut: Callable[[], bool] = bounded.never) -> None:
        """Once `is_cut` returns true, waiting for a disk that does not respond is cut short."""
        self._warn = warn
        self._is_cut = is_cut
        self._waiting: deque[tuple[str, Callable[[], None]]] = deque()  # each path, and what writes it
        self._changed = threading.Condition()
        self._path = ""  # the path that is being written; "": none
        self._has_thread = False
        self._due = 0.0  # when the writes that are waiting are carried out, on the monotonic clock
        self._awaited = 0  # the number of threads that wait
        self.is_closed = False
        self._reported: set[str] = set()

    def put(self, path: str, write: Callable[[], None]) -> None:
        """Queue the write of a file. `write` may raise OutputError."""
        with self._changed:
            if len(self._waiting) >= MOST_WAITING:
                return
            is_first = not (self._path or self._waiting)
            self._waiting.append((path, write))
            if is_first:
                self._due = time.monotonic() + PAUSE
            if is_first or self._is_urgent():
                self._changed.notify_all()
            if self._has_thread:
                return
            self._has_thread = True
        try:
            bounded.start_thread(self._work)
        except AscendRunnerError:  # the limit of processes: then the job has to wait for the disk
            self._due = 0.0
            self._work(linger=0.0)

    def close(self) -> None:
        """Let the thread end as soon as everything has been written. Does not wait for it."""
        with self._changed:
            self.is_closed = True
            self._changed.notify_all()

    def flush(self, seconds: float) -> bool:
        """Wait as `wait` does, and warn if not everything was written."""
        if self.wait(seconds):
            return True
        with self._changed:
            # On a busy machine the thread may not have taken the first write yet, or have ended the last one by now.
            path = self._path or next((path for path, _write in self._waiting), "")
        if path:
            self._report("", f"cannot write {path!r}: no response from its disk within {seconds:g} s")
        return not path

    def wait(self, seconds: float) -> bool:
        """Wait at most `seconds` until everything has been written; return whether it has."""
        deadline = time.monotonic() + seconds
        while not self._is_idle(min(bounded.POLL_INTERVAL, deadline - time.monotonic())):
            if self._is_cut():
                deadline = min(deadline, time.monotonic() + bounded.LAST_CHANCE)
                self._is_idle(deadline - time.monotonic())
            if time.monotonic() >= deadline:
                return False
        return True

    def _is_idle(self, seconds: float) -> bool:
        """Wait at most `seconds`; return whether everything was written."""
        with self._changed:
            self._awaited += 1
            self._changed.notify_all()
            try:
                return self._changed.wait_for(lambda: not (self._path or self._waiting), max(0.0, seconds))
            finally:
                self._awaited -= 1

    def _is_urgent(self) -> bool:
        return self._awaited > 0 or self.is_closed or len(self._waiting) > MOST_WAITING // 2

    def _work(self, linger: float = LINGER) -> None:
        while True:
            with self._changed:
                self._path = ""
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._waiting or self.is_closed, linger)
                if not self._waiting:
                    self._has_thread = False
                    return
                self._changed.wait_for(self._is_urgent, self._due - time.monotonic())
                self._path, write = self._waiting.popleft()
            try:
                write()
            except OutputError as error:
                self._report(self._path, str(error))

    def _report(self, path: str, sentence: str) -> None:
        if path not in self._reported:
            self._reported.add(path)
            self._warn(sentence)


def write_last_cause(path: str, sentence: str) -> None:
    """Replace the content of a file with the cause of a job's end, if the file exists and can be written."""
    content = sentence.encode(errors="backslashreplace")[:LONGEST_CAUSE].decode(errors="ignore").encode()
    with suppress(OSError), open(os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "wb", buffering=0) as file:
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            file.truncate(0)
            file.write(content)

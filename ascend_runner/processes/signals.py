"""The one place where the runner blocks: signals arrive as bytes on a wakeup fd, and nothing polls.

The handlers do nothing, so no Python code runs in the middle of other code. The reader decides what a signal means.
"""

from __future__ import annotations

import os
import select
import signal
import time
from types import FrameType
from typing import Final, Protocol

from ascend_runner.guardian.signal_sets import WATCHED

LONGEST: Final = 1e9  # milliseconds; poll(2) takes an int. A longer wait returns after eleven days without a signal


class HasFileno(Protocol):
    """Something that the kernel can wait for."""

    def fileno(self) -> int:
        """Return its descriptor."""


class Signals:
    """Time and signals.

    Collects signals within `with`, in the main thread. Those that were blocked and pending before arrive at once.
    """

    def __init__(self) -> None:
        self._handlers: dict[int, signal._HANDLER] = {}
        self._mask: set[signal.Signals | int] = set()
        self._old_wakeup_fd = -1
        self._reader, self._writer = -1, -1
        self._poll = select.poll()

    def __enter__(self) -> Signals:
        self._reader, self._writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._poll.register(self._reader, select.POLLIN)
        self._old_wakeup_fd = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        for signum in WATCHED:
            if signum == signal.SIGHUP and signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
                continue  # nohup(1)
            self._handlers[signum] = signal.signal(signum, _do_nothing)
        self._mask = signal.pthread_sigmask(signal.SIG_UNBLOCK, WATCHED)
        return self

    def __exit__(self, *_: object) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)  # no signal until handlers and mask are restored
        for signum, handler in self._handlers.items():
            if handler is not None:  # installed by a library before Python started: it cannot be restored
                signal.signal(signum, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
        signal.set_wakeup_fd(self._old_wakeup_fd)
        os.close(self._reader)
        os.close(self._writer)

    def watch(self, source: HasFileno) -> None:
        """Let `wait` return as well when `source` is readable, until `unwatch`."""
        self._poll.register(source, select.POLLIN)

    def unwatch(self, source: HasFileno) -> None:
        """Stop watching a source."""
        self._poll.unregister(source)

    @staticmethod
    def now() -> float:
        """Return the monotonic time in seconds."""
        return time.monotonic()

    def wait(self, seconds: float | None) -> list[int]:
        """Block until a signal arrives, at most `seconds` (None: for ever); return all signals in order of arrival."""
        timeout = None if seconds is None else min(max(0.0, seconds) * 1000, LONGEST)
        ready = [fd for fd, _events in self._poll.poll(timeout)]
        return list(os.read(self._reader, 65536)) if self._reader in ready else []


def _do_nothing(_signum: int, _frame: FrameType | None) -> None:
    """Do nothing: the wakeup fd is only written for signals that have a Python handler."""

"""The one place where the program blocks: signals arrive as bytes on a wakeup fd, and nothing polls.

The handlers do nothing. What a signal means is decided by who reads it here; Python code never runs inside whatever it
interrupted.
"""

from __future__ import annotations

import os
import select

from ascend_runner import plain_signal as signal
from ascend_runner.annotations import TYPE_CHECKING, Final

from .guardian import FORWARDED

if TYPE_CHECKING:
    from types import FrameType
    from typing import Any

WATCHED: Final = FORWARDED | {signal.SIGCHLD}  # what the guardian hands on, and the ends of children

LONGEST: Final = 1e9  # milliseconds; poll(2) takes an int. Whoever waits for longer asks again after eleven days


class Signals:
    """Collects signals from `with` on, in the main thread. What was blocked and pending before is delivered then."""

    def __init__(self) -> None:
        self._handlers: dict[int, Any] = {}
        self._mask: set[Any] = set()
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
        signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)  # between the old handlers and the old mask nothing comes in
        for signum, handler in self._handlers.items():
            if handler is not None:  # one of a library's, from before Python: that cannot be put back
                signal.signal(signum, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
        signal.set_wakeup_fd(self._old_wakeup_fd)
        os.close(self._reader)
        os.close(self._writer)

    def wait(self, seconds: float | None) -> list[int]:
        """Block until a signal arrives, at most `seconds` (None: for ever). The signals so far, in order of arrival."""
        timeout = None if seconds is None else min(max(0.0, seconds) * 1000, LONGEST)
        if not self._poll.poll(timeout):
            return []

        return list(os.read(self._reader, 65536))


def _do_nothing(_signum: int, _frame: FrameType | None) -> None:
    """Exist: the wakeup fd is only written for signals that have a Python handler."""

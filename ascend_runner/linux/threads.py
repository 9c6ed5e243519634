"""Threads that nobody must wait for: one may hang in a write to a dead disk, and the runner leaves without it.

On `_thread`, the documented base of `threading`, whose own import takes 2 ms of a start-up of 35.
"""

from __future__ import annotations

import sys
from _thread import allocate_lock, start_new_thread

from ascend_runner.annotations import TYPE_CHECKING
from ascend_runner.errors import LIMIT_OF_PROCESSES, AscendRunnerError
from ascend_runner.plain_signal import SIG_BLOCK, pthread_sigmask, valid_signals

if TYPE_CHECKING:
    from collections.abc import Callable


class Thread:
    """Does `work`, with all signals blocked: these are the main thread's."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._running = allocate_lock()  # held from the start to the end

    def start(self) -> None:
        """Start it, once. Errors: AscendRunnerError where the user, or the container, may have no more."""
        self._running.acquire()
        try:
            start_new_thread(self._run, ())
        except RuntimeError as error:
            self._running.release()
            raise AscendRunnerError(f"{error}: too many processes {LIMIT_OF_PROCESSES}") from error

    def has_ended(self, within: float) -> bool:
        """Wait for its end, at most so many seconds; whether it has come. So it is before the start, too."""
        has_ended = self._running.acquire(timeout=max(0.0, within))
        if has_ended:
            self._running.release()
        return has_ended

    def _run(self) -> None:
        try:
            pthread_sigmask(SIG_BLOCK, valid_signals())
            self._work()
        except BaseException:  # noqa: BLE001  it ends the thread; Python would call it an exception that was ignored
            self._running.release()  # first: whoever waits does not need to see it, and stderr may stall
            sys.excepthook(*sys.exc_info())
        else:
            self._running.release()


class Bell:
    """Wakes the one thread that waits for it. Rung while nobody waits, it is heard by the next who does."""

    def __init__(self) -> None:
        self._silence = allocate_lock()
        self._silence.acquire()

    def ring(self) -> None:
        """Ring; twice is as good as once."""
        try:
            self._silence.release()
        except RuntimeError:
            return  # it rings already

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for it, at most so many seconds (None: for ever); whether it was rung."""
        return self._silence.acquire(timeout=-1 if seconds is None else max(0.0, seconds))


def within(seconds: float, work: Callable[[], None]) -> bool:
    """Do what a disk that hangs may never let end; whether it has ended in time. `work` raises nothing."""
    thread = Thread(work)
    try:
        thread.start()
    except AscendRunnerError:  # no thread to be had: then without a limit
        work()
        return True
    return thread.has_ended(seconds)

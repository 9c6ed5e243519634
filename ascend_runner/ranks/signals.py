"""The one place where the runner blocks: signals end a wait through a wakeup fd, and nothing polls.

The handlers only record the signal, so no other code is interrupted. The reader decides what a signal means.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Final, Protocol

from ascend_runner.errors import StopRequestedError
from ascend_runner.guardian import process_tree
from ascend_runner.guardian.runner import ANSWER, BEGIN, END
from ascend_runner.guardian.signal_sets import IMPATIENT_SIGNALS, QUESTION, STOP_SIGNALS, WATCHED, Copies, ignored
from ascend_runner.supervision.causes import SignalReceived

FOR_RANKS: Final = frozenset({signal.SIGUSR1, signal.SIGUSR2})
LONGEST: Final = 1e9  # milliseconds; poll(2) takes an int. A longer wait returns after eleven days without a signal


class HasFileno(Protocol):
    """Something that the kernel can wait for."""

    def fileno(self) -> int:
        """Return its descriptor."""


class Signals:
    """Time and signals.

    Collects signals within `with`, in the main thread. Those that were blocked and pending before arrive at once.
    `tell_guardian` takes a line when a wait returns a stop signal, for a copy of one, and on the progress of the job.
    `now` is the clock by which copies are distinguished from new signals. With `has_launcher`, the parent of the
    guardian has launched it, and its death sends the guardian SIGTERM.
    """

    def __init__(
        self,
        tell_guardian: Callable[[str], None] = lambda _line: None,
        *,
        now: Callable[[], float] = time.monotonic,
        has_launcher: bool = False,
    ) -> None:
        self.stop_signum = 0  # the first stop signal that has arrived
        self.refuse: Callable[[int], None] = lambda _signum: None  # for a signal to ranks while there are none
        self.tell_guardian = tell_guardian
        self._guardian = os.getppid()
        self._launcher = self._parent_of_guardian() if has_launcher else 0
        self._arrived: list[int] = []
        self._copies = Copies(now)
        self._is_hurried = False
        self._is_woken = False
        self._handlers: dict[int, signal._HANDLER] = {}
        self._mask: set[signal.Signals | int] = set()
        self._old_wakeup_fd = -1
        self._reader, self._writer = -1, -1
        self._poll = select.poll()

    def __enter__(self) -> Signals:
        self._reader, self._writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._poll.register(self._reader, select.POLLIN)
        self._old_wakeup_fd = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        not_noted = ignored()
        for signum in WATCHED | {QUESTION}:
            if signum == signal.SIGHUP and signum in not_noted:
                continue  # nohup(1) applies to the ranks as well
            # A rank must not ignore SIGINT: a shell's background jobs are recognized by that.
            self._handlers[signum] = signal.signal(signum, _ignore if signum in not_noted else self._take_note)
        self._mask = signal.pthread_sigmask(signal.SIG_UNBLOCK, WATCHED | {QUESTION})
        return self

    def __exit__(self, *_: object) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)  # no signal until handlers and mask are restored
        for signum, handler in self._handlers.items():
            if handler is not None:  # installed by a library before Python started: it cannot be restored
                signal.signal(signum, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
        signal.set_wakeup_fd(self._old_wakeup_fd)
        reader, writer, self._reader, self._writer = self._reader, self._writer, -1, -1
        os.close(reader)
        os.close(writer)

    def begin(self, grace: float) -> None:
        """Announce to the guardian that ranks are started, and how many seconds they have to exit when stopped."""
        self.tell_guardian(f"{BEGIN} {grace}")

    def expect_end(self, status: int) -> None:
        """Announce the exit status to the guardian, which exits with it if this process hangs."""
        self.tell_guardian(f"{END} {status}")

    def request_stop(self) -> None:
        """Send SIGTERM to the guardian, which passes it on, as if a user had. May be called in any thread."""
        with suppress(ProcessLookupError):  # its death has stopped this process already
            os.kill(self._guardian, signal.SIGTERM)

    def _answer(self) -> None:
        self.tell_guardian(ANSWER)

    def wake(self) -> None:
        """Let the current or the next `wait` return. May be called in any thread."""
        self._is_woken = True
        with suppress(OSError):  # the pipe is full, so there is something to read; or this was left
            os.write(self._writer, b"\0")

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
        """Block until a signal arrives, at most `seconds` (None: forever); return all signals that have arrived.

        Stop signals come first, in order of arrival. Of several equal others only the last one counts. Without a
        signal, it returns early when it is woken, or when a watched source is readable.
        """
        end = None if seconds is None else self.now() + seconds
        while True:
            timeout = None if end is None else min(max(0.0, end - self.now()) * 1000, LONGEST)
            ready = [fd for fd, _events in self._poll.poll(timeout)]
            is_woken = False
            if self._reader in ready:
                os.read(self._reader, 65536)
                signal.pthread_sigmask(signal.SIG_BLOCK, ())  # calls the handler of each signal whose byte was read
                is_woken, self._is_woken = self._is_woken, False
            arrived, self._arrived = self._arrived, []
            if arrived or is_woken or ready != [self._reader]:  # else the byte belongs to a signal returned before
                break
        if not STOP_SIGNALS.isdisjoint(arrived):
            self._answer()
        return sorted(arrived, key=lambda signum: signum not in STOP_SIGNALS)

    def wait_unless_stopped(self, seconds: float) -> None:
        """Wait at most `seconds` until any signal arrives, including SIGCHLD. No rank is alive.

        Raises:
            StopRequestedError: A stop signal arrived.
        """
        for signum in self.wait(seconds):
            if signum in STOP_SIGNALS:
                stop = self.received(signum)
                raise StopRequestedError(stop.stop_signal, str(stop))
            if signum in FOR_RANKS:
                self.refuse(signum)

    def refuse_arrived(self) -> None:
        """Refuse the signals for ranks that have arrived since the last wait, at the end of a job."""
        for signum in FOR_RANKS.intersection(self.wait(0.0)):
            self.refuse(signum)

    def received(self, signum: int) -> SignalReceived:
        """Return what a signal means: one may say that the guardian was killed, or that its launcher has ended."""
        if signum in STOP_SIGNALS and os.getppid() != self._guardian:
            return SignalReceived(signum, self._guardian, os.getpid())
        if signum == signal.SIGTERM and self._launcher and self._parent_of_guardian() != self._launcher:
            return SignalReceived(signum, launcher=self._launcher)
        return SignalReceived(signum)

    def first_stop(self) -> SignalReceived:
        """Return the first stop signal, as it is seen now: the guardian may have been killed since then."""
        return self.received(self.stop_signum)

    def _parent_of_guardian(self) -> int:
        found = process_tree.look(self._guardian)
        return found.parent if found else 0

    def is_stopped(self) -> bool:
        """Whether a stop signal has arrived."""
        return self.stop_signum != 0

    def is_hurried(self) -> bool:
        """Whether a second stop signal was a SIGTERM or SIGINT: then nothing is waited for any longer."""
        if self._is_hurried:
            self._answer()
        return self._is_hurried

    def _take_note(self, signum: int, _frame: FrameType | None) -> None:
        if signum == QUESTION:
            self._answer()
            return
        if self._copies.has(signum):
            self._answer()  # the guardian may have forwarded the copy
            return
        self._is_hurried |= self.stop_signum != 0 and signum in IMPATIENT_SIGNALS
        if signum in STOP_SIGNALS:
            self.stop_signum = self.stop_signum or signum
        if signum not in STOP_SIGNALS and signum in self._arrived:
            self._arrived.remove(signum)
        self._arrived.append(signum)


def _ignore(_signum: int, _frame: FrameType | None) -> None:
    """Do nothing, and let programs start with the default action: exec(2) keeps SIG_IGN, but no handler."""

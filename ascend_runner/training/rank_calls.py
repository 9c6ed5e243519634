"""The functions that a rank calls: to learn that a checkpoint is due, to report a saved one, to send heartbeats.

Works without a runner as well: SIGUSR1 then asks for a checkpoint, each process answers for itself, and reports are
dropped. The runner names a file of its run directory, in which the ranks of the node agree on the step, and a socket
that speaks systemd's sd_notify protocol.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import signal
import socket
import threading
import time

from ascend_runner.training.agreement import COPIES, Agreement

TYPE_CHECKING = False  # typing.Final: Python 3.8

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import Final

# The signal and the file: "USR1:/run/.../checkpoint-requests".
CHECKPOINT_REQUESTS_VARIABLE: Final = "ASCEND_RUNNER_CHECKPOINT_REQUESTS"
SOCKET_VARIABLE: Final = "NOTIFY_SOCKET"
MOST_BEATS: Final = 10  # a second
ROUND: Final = 10**15  # more steps than an epoch has


def on_checkpoint(agree: Callable[[int], int] | None = None, every: int = 1) -> CheckpointRequests:
    """Note requests for a checkpoint from now on; call `at(step)` of the result after each step.

    The signal handler only sets a flag. `at()` is true at the same step in every rank of the node. In a job of several
    nodes, pass `agree`, which returns the maximum of a number over all ranks (a collective, such as all_reduce); it is
    called every `every` steps.

        import ascend_runner

        asked = ascend_runner.on_checkpoint()
        for step in range(100):
            if asked.at(step):
                print(f"save step {step}")
                asked.saved("output/checkpoint-1")

    Raises:
        ValueError: This is not the main thread of the program, or `every` is less than 1.
    """
    if every < 1:
        raise ValueError(f"every must be at least 1, not {every}")
    name, _, path = os.environ.get(CHECKPOINT_REQUESTS_VARIABLE, "USR1").partition(":")
    requests = CheckpointRequests(path, agree, every)
    if hasattr(signal, f"SIG{name}"):
        signum = signal.Signals[f"SIG{name}"]
        if threading.current_thread() is not threading.main_thread():
            raise ValueError("on_checkpoint() must be called in the main thread")
        _notifier().send([("X_SAVES", "1")])  # before the handler: the runner does not wait for ranks without it
        requests.previous_handler = signal.signal(signum, requests.note)
        signal.siginterrupt(signum, False)  # a system call that a step waits in goes on
        # At its end Python restores the default action, so a rank that has saved and ends would die of a late signal.
        atexit.register(signal.signal, signum, signal.SIG_IGN)
    return requests


class CheckpointRequests:
    """The requests for a checkpoint that arrive in this process. One that arrives during a save is answered by it."""

    def __init__(
        self,
        path: str,
        agree: Callable[[int], int] | None = None,
        every: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.previous_handler: object = None
        self._agree, self._every, self._path, self._clock = agree, every, path, clock
        self._asked_at: float | None = None  # when the newest request came, on the clock that all processes share
        self._settled_at = float("-inf")  # requests until then are answered
        self._step: int | None = None  # the step of the last `at`
        self._rounds = 0  # how often the steps have begun again
        self._is_saving = False
        self._last: tuple[str, int | None] = ("", None)  # the last save, which answers copies as well
        self._answered: int | None = None  # how many requests of the file this rank has answered

    def note(self, signum: int, frame: FrameType | None) -> None:
        """Handle the signal: set a flag. A handler that the program had before is called as well."""
        self._asked_at = self._clock()
        if callable(self.previous_handler):
            self.previous_handler(signum, frame)

    def at(self, step: int) -> bool:
        """Return whether a checkpoint is to be saved after `step`. Waits at most LONGEST_WAIT.

        A step that is lower than the last one begins another epoch, in which the steps are counted from there.
        """
        if self._is_saving:  # the rank did not call `saved`: another one may have saved for it
            self.saved(_notifier().saved_path)
        if self._step is not None and step < self._step:
            self._rounds += 1
        self._step = step
        if step % self._every:
            return False
        self._is_saving = self._is_due_on_this_node(step) if self._path and not self._agree else self._is_due()
        if self._is_saving:
            self._settled_at = self._clock() + COPIES
            self._last = "", step
            _notifier().saved_path = ""
        return self._is_saving

    def saved(self, path: str | os.PathLike[str]) -> None:
        """Tell the runner that this rank has saved its part of the checkpoint `path`."""
        self._end_save()
        self._last = os.fspath(path), self._step
        saved(*self._last)

    def _end_save(self) -> None:
        if not self._is_saving:
            return
        self._is_saving = False
        self._settled_at = max(self._settled_at, self._clock())
        if self._path and not self._agree:
            with contextlib.suppress(OSError), Agreement(self._path) as agreement:
                agreement.end_save(self._clock())

    def _is_asked(self) -> bool:
        return self._asked_at is not None and self._asked_at > self._settled_at

    def _settle(self, asked_at: float | None, *, is_copy: bool) -> None:
        """Forget the request of `asked_at`. A copy is answered with the checkpoint that was saved for its original."""
        if self._asked_at == asked_at:  # otherwise there is another one by now
            self._asked_at = None
        if is_copy and asked_at is not None:
            saved(*self._last)

    def _is_due(self) -> bool:
        asked_at, is_new = self._asked_at, self._is_asked()
        is_due = bool(self._agree(int(is_new))) if self._agree else is_new
        if is_due or not is_new:
            self._settle(asked_at, is_copy=not is_due)
        return is_due

    def _is_due_on_this_node(self, step: int) -> bool:
        place = self._rounds * ROUND * self._every + step
        asked_at, is_new = self._asked_at, self._is_asked()
        try:
            with Agreement(self._path) as agreement:
                if self._answered is None:
                    self._answered = agreement.count_before(place)
                before = self._answered
                self._answered = agreement.answer(place, asked_at if is_new else None, self._answered, self._every)
                is_pending = self._answered < agreement.count
        except TimeoutError:
            return False  # the flag stays: the next step asks again
        except OSError:
            return self._is_due()  # the directory is gone, and the runner with it
        is_due = self._answered > before
        self._settle(asked_at, is_copy=not is_due and not is_pending)
        return is_due


def beat(step: int | None = None, *, section: str = "", extend: float = 0.0) -> None:
    """Tell the runner that this rank is alive and at `step`, or in a `section` such as "evaluation".

    `extend` announces a pause, in seconds. Never blocks, reports at most ten times a second, and does nothing
    without a runner.
    """
    _notifier().beat(step, section, extend)


def saved(path: str | os.PathLike[str], step: int | None = None) -> None:
    """Tell the runner that this rank has saved its part of the checkpoint `path`. Does nothing without a runner."""
    _notifier().saved_path = os.fspath(path)
    _notifier().send([("X_CHECKPOINT", os.fspath(path)), *_step_line(step)])


class _Notifier:
    """The sender of sd_notify's datagrams."""

    def __init__(self, address: str) -> None:
        self.saved_path = ""  # the path of the last checkpoint
        self._address = "\0" + address[1:] if address[:1] == "@" else address
        self._tokens, self._at = float(MOST_BEATS), time.monotonic()
        self._socket: socket.socket | None = None

    def beat(self, step: int | None, section: str, extend: float) -> None:
        now = time.monotonic()
        self._tokens, self._at = min(MOST_BEATS, self._tokens + (now - self._at) * MOST_BEATS), now
        if not self._address or self._tokens < 1:
            return
        self._tokens -= 1
        lines = [("WATCHDOG", "1"), *_step_line(step)]
        if section:
            lines.append(("X_SECTION", section))
        if extend > 0:
            lines.append(("EXTEND_TIMEOUT_USEC", str(int(extend * 1e6))))
        self.send(lines)

    def send(self, lines: list[tuple[str, str]]) -> None:
        if not self._address:
            return
        data = b"\n".join(os.fsencode(f"{name}={value}".replace("\n", " ")) for name, value in lines)
        with contextlib.suppress(OSError):  # the runner is gone, or busy: a training never waits for it
            if self._socket is None:
                self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
                self._socket.setblocking(False)
            self._socket.sendto(data, self._address)


def _step_line(step: int | None) -> list[tuple[str, str]]:
    return [] if step is None else [("X_STEP", str(step))]


@functools.lru_cache(maxsize=None)  # noqa: UP033  functools.cache: Python 3.9
def _notifier() -> _Notifier:
    return _Notifier(os.environ.get(SOCKET_VARIABLE, ""))

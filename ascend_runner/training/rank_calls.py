"""The functions that a rank calls: to learn that a checkpoint is due, to report a saved one, to send heartbeats.

Works without a runner as well: SIGUSR1 then asks for a checkpoint, each process answers for itself, and reports are
dropped. The runner names a file of its run directory, in which the ranks of the node agree on the step, and a socket
that speaks systemd's sd_notify protocol.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import fcntl
import functools
import json
import os
import signal
import socket
import time

TYPE_CHECKING = False  # typing.Final: Python 3.8

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import Final, Optional, Union

REQUESTS_VARIABLE: Final = "ASCEND_RUNNER_CHECKPOINT_REQUESTS"  # the signal and the file: "USR1:/run/.../requests"
SOCKET_VARIABLE: Final = "NOTIFY_SOCKET"
COPIES: Final = 5.0  # seconds in which another request is a copy: Slurm signals the runner and its ranks, one by one
MOST_REQUESTS: Final = 8  # in the file; no rank is further behind
LONGEST_WAIT: Final = 10.0  # seconds for the file, which a rank holds for microseconds unless it is stopped
MOST_BEATS: Final = 10  # a second


def on_checkpoint(agree: Optional[Callable[[int], int]] = None, every: int = 1) -> CheckpointRequests:
    """Note requests for a checkpoint from now on; ask `at(step)` of what this returns after each step.

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
    name, _, path = os.environ.get(REQUESTS_VARIABLE, "USR1").partition(":")
    requests = CheckpointRequests(path, agree, every)
    if hasattr(signal, f"SIG{name}"):
        signum = signal.Signals[f"SIG{name}"]
        requests.previous_handler = signal.signal(signum, requests.note)
        signal.siginterrupt(signum, False)  # a system call that a step waits in goes on
        # At its end Python restores the default action, so a rank that has saved and ends would die of a late signal.
        atexit.register(signal.signal, signum, signal.SIG_IGN)
        _notifier().send([("X_SAVES", "1")])
    return requests


class CheckpointRequests:
    """The requests for a checkpoint that arrive in this process. A request while one is being saved is the same."""

    def __init__(
        self,
        path: str,
        agree: Optional[Callable[[int], int]] = None,
        every: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.previous_handler: object = None
        self._agree, self._every, self._path, self._clock = agree, every, path, clock
        self._asked_at: Optional[float] = None  # of the newest request, on the clock that all processes share
        self._settled_at = float("-inf")  # what was asked for until then is saved
        self._step: Optional[int] = None  # of the last `at`
        self._is_saving = False
        self._answered: Optional[int] = None  # how many requests of the file this rank has answered

    def note(self, signum: int, frame: Optional[FrameType]) -> None:
        """Handle the signal: set a flag. A handler that the program had before is called as well."""
        self._asked_at = self._clock()
        if callable(self.previous_handler):
            self.previous_handler(signum, frame)

    def at(self, step: int) -> bool:
        """Return whether a checkpoint is to be saved after `step`. Waits at most LONGEST_WAIT."""
        if self._is_saving:  # and did not call `saved`, as if another rank had saved for this one
            self.saved("")
        self._step = step
        if step % self._every:
            return False
        self._is_saving = bool(self._agree(int(self._is_asked()))) if self._agree else self._is_due_on_this_node(step)
        if self._is_saving:
            self._settled_at = self._clock() + COPIES
        return self._is_saving

    def saved(self, path: Union[str, os.PathLike[str]]) -> None:
        """Tell the runner that this rank has saved its part of the checkpoint `path`."""
        self._end_save()
        saved(path, self._step)

    def _end_save(self) -> None:
        if not self._is_saving:
            return
        self._is_saving = False
        self._settled_at = max(self._settled_at, self._clock())
        if self._path and not self._agree:
            with contextlib.suppress(OSError), _Agreement(self._path) as agreement:
                agreement.end_save(self._clock())

    def _is_asked(self) -> bool:
        return self._asked_at is not None and self._asked_at > self._settled_at

    def _is_due_on_this_node(self, step: int) -> bool:
        if not self._path:
            return self._is_asked()
        try:
            with _Agreement(self._path) as agreement:
                if self._answered is None:
                    self._answered = agreement.count_before(step)
                asked_at = self._asked_at if self._is_asked() else None
                before = self._answered
                self._answered = agreement.answer(step, asked_at, self._answered, self._every)
        except TimeoutError:
            return False  # the flag stays: the next step asks again
        except OSError:
            return self._is_asked()  # the directory is gone, and the runner with it
        self._asked_at = None
        return self._answered > before


class _Agreement:
    """The file in which the ranks of a node agree on the step of each request, while it is locked.

    It holds the requests as pairs of a time and a step, the last step that any rank has passed, and the processes that
    are saving. A request gets the first step that no rank has passed, so no rank has to wait for another. The lock is
    that of a process (lockf), which ends with it and is not inherited by the data-loading workers that it forks.
    """

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> _Agreement:
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _lock(self._fd)
            self._read(os.pread(self._fd, 1 << 20, 0))
        except BaseException:
            os.close(self._fd)
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        state = [self._forgotten, self._requests, self._passed, self._savers, self._saved_at]
        try:
            data = json.dumps(state).encode()
            os.pwrite(self._fd, data, 0)
            os.ftruncate(self._fd, len(data))
        finally:
            os.close(self._fd)

    def _read(self, data: bytes) -> None:
        self._forgotten = 0  # requests before those in the file
        self._requests: list[tuple[float, int]] = []
        self._passed, self._saved_at = -1, float("-inf")
        self._savers: list[int] = []
        with contextlib.suppress(TypeError, ValueError):  # new
            self._forgotten, self._requests, self._passed, self._savers, self._saved_at = json.loads(data)

    def end_save(self, now: float) -> None:
        """Note that this process is not saving any more."""
        if os.getpid() in self._savers:
            self._savers.remove(os.getpid())
            self._saved_at = now

    def count_before(self, step: int) -> int:
        """Return how many requests were answered at steps before `step`, with which a new process begins."""
        return self._forgotten + sum(target < step for _, target in self._requests)

    def answer(self, step: int, asked_at: Optional[float], answered: int, every: int) -> int:
        """Note what this process was asked, and return how many requests it has answered after `step`."""
        answered = max(answered, self._forgotten)
        pending = self._requests[answered - self._forgotten :]
        if asked_at is not None and not pending and self._is_new(asked_at):
            pending = [(asked_at, -(-max(step, self._passed + 1) // every) * every)]
            self._requests = [*self._requests, *pending][-MOST_REQUESTS:]
            self._forgotten = answered + 1 - len(self._requests)
        self._passed = max(self._passed, step)
        due = sum(target <= step for _, target in pending)
        if due:
            self._savers.append(os.getpid())
        return answered + due

    def _is_new(self, asked_at: float) -> bool:
        """Whether a request is none that another rank has answered, nor one that a save in progress answers."""
        last = self._requests[-1][0] + COPIES if self._requests else float("-inf")
        return asked_at > max(last, self._saved_at) and not any(map(_is_alive, self._savers))


def _lock(fd: int) -> None:
    deadline = time.monotonic() + LONGEST_WAIT
    while True:
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in {errno.EACCES, errno.EAGAIN}:
                raise
        else:
            return
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.0005)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def beat(step: Optional[int] = None, *, section: str = "", extend: float = 0.0) -> None:
    """Tell the runner that this rank is alive and at `step`, or in a `section` such as "evaluation".

    `extend` announces a pause of so many seconds. Never blocks, reports at most ten times a second, and does nothing
    without a runner.
    """
    _notifier().beat(step, section, extend)


def saved(path: Union[str, os.PathLike[str]], step: Optional[int] = None) -> None:
    """Tell the runner that this rank has saved its part of the checkpoint `path`. Does nothing without a runner."""
    _notifier().send([("X_CHECKPOINT", os.fspath(path)), *_step_line(step)])


class _Notifier:
    """The sender of sd_notify's datagrams."""

    def __init__(self, address: str) -> None:
        self._address = "\0" + address[1:] if address[:1] == "@" else address
        self._tokens, self._at = float(MOST_BEATS), time.monotonic()
        self._socket: Optional[socket.socket] = None

    def beat(self, step: Optional[int], section: str, extend: float) -> None:
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


def _step_line(step: Optional[int]) -> list[tuple[str, str]]:
    return [] if step is None else [("X_STEP", str(step))]


@functools.lru_cache(maxsize=None)  # noqa: UP033  functools.cache: Python 3.9
def _notifier() -> _Notifier:
    return _Notifier(os.environ.get(SOCKET_VARIABLE, ""))

"""The file in which the ranks of a node agree on the step after which they save a checkpoint."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import time

TYPE_CHECKING = False  # typing.Final: Python 3.8

if TYPE_CHECKING:
    from typing import Final

COPIES: Final = 5.0  # seconds in which another request is a copy: Slurm signals the runner and its ranks, one by one
MOST_REQUESTS: Final = 8  # requests in the file; no rank is further behind
LONGEST_WAIT: Final = 10.0  # seconds for the file, which a rank holds for microseconds unless it is stopped


class Agreement:
    """The file in which the ranks of a node agree on the step of each request, while it is locked.

    It holds the requests as pairs of a time and a step, the last step that any rank has passed, and the processes that
    are saving. A request gets the first step that no rank has passed, so no rank has to wait for another. The lock is
    owned by a process (lockf), ends with it and is not inherited by the data-loading workers that it forks.
    """

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> Agreement:
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
        """Note that this process is no longer saving."""
        if os.getpid() in self._savers:
            self._savers.remove(os.getpid())
            self._saved_at = now

    @property
    def count(self) -> int:
        """The number of requests so far."""
        return self._forgotten + len(self._requests)

    def count_before(self, step: int) -> int:
        """Return how many requests were answered before `step`, the first step of a new process."""
        return self._forgotten + sum(target < step for _, target in self._requests)

    def answer(self, step: int, asked_at: float | None, answered: int, every: int) -> int:
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
        """Whether a request is new: not answered by another rank, nor by a save in progress."""
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

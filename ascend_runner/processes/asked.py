"""The processes that were asked to stop: each is asked once, and its exit is noticed when it happens.

A process deep in a rank's tree is not a child of the runner, so no SIGCHLD reports its end. A pidfd does (Linux 5.3);
where there is none, the next step of the back-off finds what it has left behind.
"""

from __future__ import annotations

import os
import select
from collections.abc import Collection

from ascend_runner.processes import descriptors
from ascend_runner.supervision.signal_targets import Identity, RankProcess


class AskedProcesses:
    """Remembers processes that were asked to stop. Readable (`fileno`) when one of them has ended."""

    def __init__(self) -> None:
        self._identities: set[Identity] = set()
        self._epoll = select.epoll()
        self._fds: set[int] = set()

    @property
    def identities(self) -> Collection[Identity]:
        """The identities of all processes that were asked; a later process with the same pid has another identity."""
        return self._identities

    def add(self, process: RankProcess) -> None:
        """Remember a process that is about to be asked."""
        self._identities.add(process.identity)
        try:
            fd = descriptors.open_pidfd(process.pid, self._epoll.fileno())
        except OSError:
            return  # ENOSYS, EPERM, ended by now, or no descriptor left
        self._epoll.register(fd, select.EPOLLIN)
        self._fds.add(fd)

    def fileno(self) -> int:
        """Return the descriptor that is readable when a process has ended."""
        return self._epoll.fileno()

    def take_ended(self) -> int:
        """Return how many have ended since the last call."""
        ended = [fd for fd, _events in self._epoll.poll(0, max(1, len(self._fds)))]
        for fd in ended:
            self._close(fd)
        return len(ended)

    def close(self) -> None:
        """Stop watching. May be called twice."""
        for fd in list(self._fds):
            self._close(fd)
        self._epoll.close()

    def _close(self, fd: int) -> None:
        self._fds.discard(fd)
        self._epoll.unregister(fd)  # close() alone is not enough while a process being started has a copy
        os.close(fd)

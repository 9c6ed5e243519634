"""The order in which processes ended, however late it is asked for.

SIGCHLD reports that some process ended, not which one was first: on a busy machine, two exits 50 ms apart arrive in
one wake-up. The ready list of an epoll instance that watches pidfds keeps their order. pidfd_open(2) needs Linux 5.3
and is forbidden by old container profiles, so the order is used where it is available and never relied upon.
"""

from __future__ import annotations

import os
import select

from ascend_runner.processes import descriptors


class ExitOrder:
    """Watches processes, each under a number chosen by the caller."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._fds: dict[int, int] = {}  # pidfd by number
        self._numbers: dict[int, int] = {}

    def add(self, number: int, pid: int) -> None:
        """Watch another process, if the kernel permits it."""
        try:
            fd = descriptors.open_pidfd(pid, self._epoll.fileno())
        except OSError:
            return  # ENOSYS, EPERM, or no descriptor left
        self._epoll.register(fd, select.EPOLLIN)
        self._fds[number], self._numbers[fd] = fd, number

    def discard(self, number: int) -> None:
        """Stop watching a process. Unknown numbers are ignored."""
        fd = self._fds.pop(number, -1)
        if fd >= 0:
            del self._numbers[fd]
            self._epoll.unregister(fd)  # close() alone is not enough while a process being started has a copy
            os.close(fd)

    def ended(self) -> list[int]:
        """Return the numbers of processes that have ended, in that order. Those that cannot be watched are missing."""
        if not self._fds:
            return []
        return [self._numbers[fd] for fd, _events in self._epoll.poll(0, len(self._fds))]

    def close(self) -> None:
        """Stop watching. May be called twice."""
        for number in list(self._fds):
            self.discard(number)
        self._epoll.close()

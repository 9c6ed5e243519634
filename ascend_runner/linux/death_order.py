"""In which order processes have ended, however late this one wakes: the ready list of an epoll of pidfds keeps it.

SIGCHLD tells that somebody ended, not who went first; on a busy machine two deaths 50 ms apart arrive in one wake-up.
pidfd_open(2) needs Linux 5.3, and old container profiles forbid it: the order is a gain where it is to be had, and
nobody depends on it.
"""

from __future__ import annotations

import os
import select


class DeathOrder:
    """Watches processes by a number of the caller's."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._fds: dict[int, int] = {}  # pidfd by number
        self._numbers: dict[int, int] = {}

    def add(self, number: int, pid: int) -> None:
        """Watch one more, if that can be had."""
        try:
            fd = os.pidfd_open(pid)
        except OSError:
            return  # ENOSYS, EPERM, or no descriptor left
        self._epoll.register(fd, select.EPOLLIN)
        self._fds[number], self._numbers[fd] = fd, number

    def discard(self, number: int) -> None:
        """Watch one less."""
        fd = self._fds.pop(number, -1)
        if fd >= 0:
            del self._numbers[fd]
            self._epoll.unregister(fd)  # closing alone is not enough while a process that is being started has a copy
            os.close(fd)

    def ended(self) -> list[int]:
        """Give those that have ended, in the order in which they did; whoever cannot be watched is missing."""
        if not self._fds:
            return []
        return [self._numbers[fd] for fd, _events in self._epoll.poll(0, len(self._fds))]

    def close(self) -> None:
        """Watch nobody any more. May be called twice."""
        for number in list(self._fds):
            self.discard(number)
        self._epoll.close()

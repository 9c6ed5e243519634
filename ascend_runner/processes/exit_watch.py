"""Reports which processes have ended, in order, including processes that are not our children.

SIGCHLD reports that some child ended, not which one was first: on a busy machine, two exits 50 ms apart arrive in one
wake-up. It does not report processes deeper in a rank's tree, nor the exit of a rank that a debugger traces. A pidfd
does, and the ready list of an epoll instance keeps their order. Without pidfds, the manager notices these exits at its
next poll.
"""

from __future__ import annotations

import os
import select
from typing import Final

from ascend_runner.guardian import process_tree

SPARE_DESCRIPTORS: Final = 4  # to stop the ranks: a pidfd, a directory of /proc and a file in it, one more


class ExitWatch:
    """Watches processes. Readable (`fileno`) when one of them has ended."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._pids: dict[int, int] = {}  # pids by pidfd

    def add(self, pid: int) -> None:
        """Watch another process, if the kernel permits it and more than the last descriptors are left."""
        try:
            refuse_the_last_descriptors(self._epoll.fileno())
        except OSError:
            return
        fd = -1 if pid in self._pids.values() else process_tree.open_pidfd(pid)
        if fd >= 0:
            self._epoll.register(fd, select.EPOLLIN)
            self._pids[fd] = pid

    def fileno(self) -> int:
        """Return the descriptor that is readable when a process has ended."""
        return self._epoll.fileno()

    def take_ended(self) -> list[int]:
        """Return the pids that have ended since the last call, in order of exit, and stop watching them."""
        ended = [fd for fd, _events in self._epoll.poll(0, max(1, len(self._pids)))]
        return [self._forget(fd) for fd in ended]

    def close(self) -> None:
        """Stop watching. May be called twice."""
        for fd in list(self._pids):
            self._forget(fd)
        self._epoll.close()

    def _forget(self, fd: int) -> int:
        self._epoll.unregister(fd)  # close() alone is not enough while a process being started has a copy
        os.close(fd)
        return self._pids.pop(fd)


def refuse_the_last_descriptors(any_fd: int) -> None:
    """Return if enough descriptors are left after the next one; `any_fd` is an open one.

    Raises:
        OSError: EMFILE.
    """
    spare: list[int] = []
    try:
        while len(spare) < SPARE_DESCRIPTORS:
            spare.append(os.dup(any_fd))
    finally:
        for fd in spare:
            os.close(fd)

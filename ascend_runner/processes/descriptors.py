"""Descriptors that watching processes takes: pidfds, and the last ones, which are kept for stopping the ranks."""

from __future__ import annotations

import errno
import os
from typing import Final

SPARE: Final = 4  # a pidfd, a directory of /proc and a file in it, one more


def open_pidfd(pid: int, any_fd: int) -> int:
    """Return a descriptor that is readable once the process has ended (pidfd_open(2), Linux 5.3).

    Raises:
        OSError: EMFILE if only the last descriptors are left (`any_fd` is an open one), ENOSYS where the kernel or the
            headers that Python was built with (conda's) have no such call, ESRCH if the process was reaped.
    """
    refuse_the_last(any_fd)
    if not hasattr(os, "pidfd_open"):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    return os.pidfd_open(pid)


def refuse_the_last(any_fd: int) -> None:
    """Return if enough descriptors are left after the next one; `any_fd` is an open one.

    Raises:
        OSError: EMFILE.
    """
    spare: list[int] = []
    try:
        while len(spare) < SPARE:
            spare.append(os.dup(any_fd))
    finally:
        for fd in spare:
            os.close(fd)

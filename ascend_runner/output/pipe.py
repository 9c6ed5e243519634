"""The capacity of pipes."""

from __future__ import annotations

import fcntl
from typing import Final

SIZE: Final = 1024 * 1024  # bytes; the kernel's default limit for users (fs.pipe-max-size)
F_SETPIPE_SZ: Final = 1031  # linux/fcntl.h; in Python's fcntl from 3.10 on
F_GETPIPE_SZ: Final = 1032


def grow(fd: int) -> None:
    """Increase the capacity of a pipe to `SIZE`, if `fd` is a pipe and the user's limits (pipe(7)) allow it."""
    try:
        if fcntl.fcntl(fd, F_GETPIPE_SZ) < SIZE:  # a console may have been made larger by its owner
            fcntl.fcntl(fd, F_SETPIPE_SZ, SIZE)
    except OSError:
        return

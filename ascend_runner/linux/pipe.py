"""How much a pipe holds."""

from __future__ import annotations

import fcntl

from ascend_runner.annotations import Final

SIZE: Final = 1024 * 1024  # bytes; the kernel's default limit for users (fs.pipe-max-size)
F_SETPIPE_SZ: Final = 1031  # linux/fcntl.h; Python's fcntl names them from 3.10 on
F_GETPIPE_SZ: Final = 1032


def grow(fd: int) -> None:
    """Let the pipe hold `SIZE` bytes, where it is one and its user may still have so much (pipe(7)); else 64 KiB do."""
    try:
        if fcntl.fcntl(fd, F_GETPIPE_SZ) < SIZE:  # a console that somebody has made larger stays so
            fcntl.fcntl(fd, F_SETPIPE_SZ, SIZE)
    except OSError:
        return

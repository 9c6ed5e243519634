"""Determines the types of file systems, and the part of a path that exists."""

from __future__ import annotations

import ctypes
import os
from typing import Final

NFS: Final = 0x6969  # statfs(2)
TMPFS: Final = 0x01021994


def type_of(path: str) -> int:
    """Return the type of the file system that has a file, or 0 if it is unknown."""
    status = ctypes.create_string_buffer(256)  # a struct statfs, which is shorter, and begins with the type
    failed = ctypes.CDLL(None).statfs(os.fsencode(path), status)
    return 0 if failed else ctypes.c_long.from_buffer(status).value


def nearest(path: str) -> str:
    """Return the path if it exists, or else the nearest directory above it that does."""
    step = os.path.abspath(path)
    while not os.path.lexists(step):
        step = os.path.dirname(step)
    return step

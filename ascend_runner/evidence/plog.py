"""Reads the host-side logs (plogs) that CANN writes for a rank: the newest file and its ERROR lines.

They are below ASCEND_PROCESS_LOG_PATH, as {debug,run}/plog/plog-<pid>_<time>.log (CANN log reference). All reads are
bounded: the directory may be on a slow disk, and contain thousands of files or special files.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from typing import Final

import attrs

from ascend_runner.text import lines_of

FILES_LIMIT: Final = 4096  # directory entries examined
READ_LIMIT: Final = 8 * 1024 * 1024  # bytes per file; at CANN's default level a plog contains errors only
ERRORS_LIMIT: Final = 200  # lines; errors after the first are mostly its consequences
_NAME: Final = re.compile(r"plog-(\d+)_\d+\.log")


@attrs.frozen
class Plog:
    """A rank's newest plog. `errors` is its first error and the lines that follow, raw; empty if it contains none."""

    path: str
    errors: tuple[str, ...] = ()


def newest(folder: str, pids: Iterable[int] = (), since: float = 0.0) -> Plog | None:
    """Return the newest plog below a rank's log directory, preferring one with errors, or None if there is none.

    If other ranks share the directory, `pids` are the rank's processes, and only their files count. `since` is the
    start of the rank in seconds since the epoch: files last written before belong to an earlier run.
    """
    wanted = frozenset(pids)
    silent = None
    for kind in ("debug", "run"):
        path = _newest_file(os.path.join(folder, kind, "plog"), wanted, since)
        if path:
            errors = _errors(path)
            if errors:
                return Plog(path, errors)
            silent = silent or Plog(path)
    return silent


def _newest_file(folder: str, pids: frozenset[int], since: float) -> str:
    found: list[tuple[float, str]] = []
    try:
        with os.scandir(folder) as entries:
            for _number, entry in zip(range(FILES_LIMIT), entries):
                match = _NAME.fullmatch(entry.name)
                if match and (not pids or int(match[1]) in pids) and entry.is_file(follow_symlinks=False):
                    found.append((entry.stat(follow_symlinks=False).st_mtime, entry.path))
    except OSError:
        return ""  # missing or not readable: the report then has no plog

    return max((candidate for candidate in found if candidate[0] >= since), default=(0.0, ""))[1]


def _errors(path: str) -> tuple[str, ...]:
    data = _read(path)
    start = data.find(b"[ERROR]")
    if start < 0:
        return ()
    lines = lines_of(data[data.rfind(b"\n", 0, start) + 1 :])

    return tuple(line for line in lines[:ERRORS_LIMIT] if line.strip())


def _read(path: str) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)  # a FIFO would block otherwise
    except OSError:
        return b""
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return b""
        pieces = []
        left = READ_LIMIT
        while left > 0 and (piece := os.read(fd, min(left, 1024 * 1024))):
            pieces.append(piece)
            left -= len(piece)
            if b"[ERROR]" in piece and len(pieces) > 1:
                break  # the first error and most of its consequences are in this piece
        return b"".join(pieces)
    except OSError:
        return b""
    finally:
        os.close(fd)

"""The host-side log that CANN writes for a rank: the newest file, and its ERROR lines.

Below ASCEND_PROCESS_LOG_PATH: {debug,run}/plog/plog-<pid>_<time>.log (CANN log reference). Only read, and bounded: the
folder may be on a slow disk, hold thousands of files, and things that are no files.
"""

from __future__ import annotations

import os
import re
import stat

from ascend_runner.annotations import TYPE_CHECKING, Final, NamedTuple
from ascend_runner.text import lines_of, shown

if TYPE_CHECKING:
    from collections.abc import Iterable

FILES_LIMIT: Final = 4096  # entries of a folder that are looked at
READ_LIMIT: Final = 8 * 1024 * 1024  # bytes of a file; at CANN's default level a plog holds errors only
ERRORS_LIMIT: Final = 200  # lines; what follows the first error is its consequence
_NAME: Final = re.compile(r"plog-(\d+)_\d+\.log")


class Plog(NamedTuple):
    """A rank's newest plog. `first_error` is "" where it has none; `errors` holds that line and the next, raw."""

    path: str
    first_error: str = ""
    errors: tuple[str, ...] = ()


def newest(folder: str, pids: Iterable[int] = (), since: float = 0.0) -> Plog | None:
    """Find the newest plog below a rank's log folder, one with errors first. None where there is none.

    Where the folder is not the rank's own, `pids` are its processes: only their files count then. `since` is when the
    rank was started (seconds of the epoch): what was last written before is of an earlier run.
    """
    wanted = frozenset(pids)
    silent = None
    for kind in ("debug", "run"):
        path = _newest_file(os.path.join(folder, kind, "plog"), wanted, since)
        if path:
            errors = _errors(path)
            if errors:
                return Plog(path, shown(errors[0]), errors)
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
        return ""  # not there, or not ours to read: the report goes without

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
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)  # a fifo would block here
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
                break  # this piece holds the first error, and mostly what it led to
        return b"".join(pieces)
    except OSError:
        return b""
    finally:
        os.close(fd)

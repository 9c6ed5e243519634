"""Rank tables in files: reads one, waits until one is completed, writes one atomically.

The only module of this package that does I/O. `codec` interprets the content.

The wait reads the file again at each poll: on NFS, an open asks the server, while a stat may be answered from a cache
for a minute. Only changed content is parsed. inotify is not used: it does not work on NFS, and a ConfigMap changes when
a symlink beside the file is swapped.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable
from io import BytesIO
from typing import Final

from ascend_runner import files
from ascend_runner.errors import RankTableNotReadyError, UnreadableError, reason
from ascend_runner.rank_table import codec
from ascend_runner.rank_table.fields import Document
from ascend_runner.rank_table.model import RankTable

FILE_NAME: Final = "jobstart_hccl.json"
TIMEOUT: Final = 1800.0  # seconds; HCCL's own limit for the same wait
POLL_INTERVAL: Final = 0.2  # seconds; a fifth of HCCL's, and still hardly any load
REPORT_INTERVAL: Final = 30.0  # seconds
LARGEST_FILE: Final = 1 << 30  # bytes; HCCL's limit for version 2.0, and 40 MB for the others
CHUNK: Final = 1 << 20  # bytes
READ_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK  # opening a FIFO must not block


def read(path: str | os.PathLike[str], *, lists_decide: bool = False) -> RankTable:
    """Read a table from a file, or from the jobstart_hccl.json of a directory; `lists_decide` as for `codec.loads`.

    Raises:
        RankTableNotReadyError: The file is missing, empty, half-written or not completed.
        UnreadableError: The file cannot be opened or read.
        RankTableFormatError: The file is not a rank table.
    """
    document = Document(_resolve(os.fspath(path)))
    return codec.loads(_read_file(document), source=document.source, lists_decide=lists_decide)


def convert(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> RankTable:
    """Read the table at `source`, write it to `target` in the form that HCCL reads, and return the table.

    A table that HCCL can read is copied byte for byte.

    Raises:
        RankTableError: As `read`.
        OutputError: `target` cannot be written.
    """
    table = read(source)
    write(target, codec.to_hccl_bytes(table))
    return table


def wait(  # noqa: PLR0913  most are keywords, each with a default that most callers want
    path: str | os.PathLike[str],
    *,
    timeout: float = TIMEOUT,
    lists_decide: bool = False,
    pause: Callable[[float], None] = time.sleep,
    say: Callable[[str], None] = lambda _: None,
    clock: Callable[[], float] = time.monotonic,
) -> RankTable:
    """Read a table once it is completed, within `timeout` seconds. `path` need not exist yet.

    `lists_decide` is passed to `codec.loads`. `pause(seconds)` blocks for at most that long and may raise to end the
    wait. `say(sentence)` is called with the reason of the wait after the first poll and then every 30 s; it is not
    called if the table is completed at the first poll.

    Raises:
        RankTableNotReadyError: The table was not completed in time.
        UnreadableError: The file cannot be opened or read; raised at once.
        RankTableFormatError: The file is not a rank table; raised at once.
    """
    start = now = next_report = clock()
    seen: bytes | None = None
    while True:
        document, before, seen = Document(_resolve(os.fspath(path))), seen, None
        try:
            seen = _read_file(document)
            if seen != before:
                return codec.loads(seen, source=document.source, lists_decide=lists_decide)
        except RankTableNotReadyError as waiting:
            why, advice = waiting.reason, waiting.advice

        name = f"the rank table {document.source}"
        if now - start >= timeout:
            waited = f"timed out after {timeout:g} s waiting for {name}: {why}"
            raise RankTableNotReadyError(f"{waited}; {advice}", reason=why)
        if now >= next_report:
            so_far = f"{now - start:.0f} of {timeout:g} s so far" if now > start else f"up to {timeout:g} s"
            say(f"waiting for {name} ({so_far}): {why}")
            next_report = now + REPORT_INTERVAL
        pause(min(POLL_INTERVAL, start + timeout - now))
        now = clock()


def read_all(fd: int, path: str, *, largest: int = LARGEST_FILE) -> bytes:
    """Read the rest of an open file, pipe or device.

    Raises:
        OSError: The file cannot be read.
        RankTableFormatError: The file has more than `largest` bytes.
    """
    data = BytesIO()
    size = os.fstat(fd).st_size  # 0 for pipes and devices
    while size <= largest and (chunk := os.read(fd, CHUNK)):
        size = max(size, data.tell() + len(chunk))
        data.write(chunk)
    if size > largest:
        raise Document(path).refusal(f"the file is larger than {largest} bytes")

    return data.getvalue()


def write(path: str | os.PathLike[str], data: bytes) -> None:
    """Make `path` a regular file with this content, by `files.write_atomically`. Missing directories are created.

    Raises:
        OutputError: The directory or the file cannot be created; nothing is left behind.
    """
    target = os.fspath(path)
    files.make_folder(os.path.dirname(target) or os.curdir)
    files.write_atomically(target, data)


def _resolve(path: str) -> str:
    """Return the file that `path` refers to now: itself, or the jobstart_hccl.json of a directory.

    A path that does not exist yet is a file if its name ends in ".json", and a directory otherwise.
    """
    if os.path.isdir(path) or not (path.endswith(".json") or os.path.lexists(path)):
        return os.path.join(path, FILE_NAME)

    return path


def _read_file(document: Document) -> bytes:
    path = document.source
    try:
        fd = os.open(path, READ_FLAGS)
    except OSError as failed:
        if failed.errno in {errno.ENOENT, errno.ESTALE}:
            raise RankTableNotReadyError(f"rank table not found: {path}", reason="it does not exist") from None
        raise UnreadableError(f"cannot open the rank table {path}: {reason(failed)}") from failed

    try:
        stamp = _stamp(fd)
        data = read_all(fd, path)
        if _stamp(fd) != stamp:
            raise document.not_ready("it changed while being read")
    except OSError as failed:
        raise UnreadableError(f"cannot read the rank table {path}: {reason(failed)}") from failed
    finally:
        os.close(fd)

    return data


def _stamp(fd: int) -> tuple[int, ...]:
    """Return the properties of a file that change when it is written."""
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file")

    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)

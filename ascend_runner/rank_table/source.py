"""Rank tables in files: reads one, waits until one is completed, writes one atomically.

The only module of this package that touches the world. What a document means is decided in `codec`.

How the wait looks: it opens the file anew each time (on NFS an open asks the server, a bare stat may be answered from
a cache for a minute) and compares its stamp; only what changed is read and parsed. inotify is not used: it is blind on
NFS, and a ConfigMap changes by the swap of a symlink beside the file.
"""

from __future__ import annotations

import errno
import math
import os
import stat
import time
from contextlib import suppress
from io import BytesIO
from typing import TYPE_CHECKING, Final

import attrs

from ascend_runner.errors import OutputError, RankTableFormatError, RankTableNotReadyError, UnreadableError
from ascend_runner.rank_table import codec
from ascend_runner.rank_table.findings import BAD_TABLE

if TYPE_CHECKING:
    from collections.abc import Callable

    from ascend_runner.rank_table.model import RankTable

FILE_NAME: Final = "jobstart_hccl.json"
TIMEOUT: Final = 1800.0  # seconds; HCCL's own limit for the same wait
LOOK_EVERY: Final = 0.2  # seconds between two looks: a fifth of HCCL's, and still next to no load
SAY_EVERY: Final = 30.0  # seconds
# Seconds for which two writes may leave one stamp: 2 on FAT, 1 on old NFS, a clock tick on ext4. Within it a file is
# parsed again although its stamp has not changed, as git does with its index.
COARSEST_STAMP: Final = 2.0
LARGEST_FILE: Final = 1 << 30  # bytes; HCCL's limit for version 2.0, and 40 MB for the others
CHUNK: Final = 1 << 20  # bytes
READ_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK  # opening a FIFO must not block
FILE_MODE: Final = 0o640
FOLDER_MODE: Final = 0o750

Stamp = tuple[int, int, int, int, int]  # device, inode, size, mtime, ctime


@attrs.frozen(kw_only=True)
class Snapshot:
    """One completed table as it was found: the records, the very bytes that they were read from, and their file."""

    table: RankTable
    data: bytes
    path: str


def read(path: str | os.PathLike[str]) -> RankTable:
    """Read a table from a file, or from the jobstart_hccl.json of a folder.

    Raises RankTableNotReadyError (missing, empty, half-written, not completed), UnreadableError (cannot be opened or
    read) and RankTableFormatError (anything else).
    """
    return read_snapshot(path).table


def wait(path: str | os.PathLike[str], *, timeout: float = TIMEOUT) -> RankTable:
    """Read a table once it is completed, within `timeout` seconds. `path` need not exist yet.

    Raises RankTableNotReadyError with the reason at the limit, and RankTableError at once for what no waiting mends.
    """
    return await_snapshot(path, timeout=timeout).table


def convert(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> RankTable:
    """Read the table at `source`, write at `target` what HCCL is to read, and give the table.

    A table that HCCL reads as it stands is handed on byte for byte. Raises as `read` does, and OutputError.
    """
    snapshot = read_snapshot(source)
    try:
        write(target, codec.hand_on(snapshot.table, snapshot.data))
    except OSError as error:
        raise OutputError(f"{os.fspath(target)} cannot be written: {error.strerror}") from error

    return snapshot.table


def read_snapshot(path: str | os.PathLike[str], *, lists_decide: bool = False) -> Snapshot:
    """Read a table that is completed already; raises as `read` does. `lists_decide` is that of `codec.loads`."""
    return _Watch(os.fspath(path), lists_decide).look(0.0)


def await_snapshot(  # noqa: PLR0913  most are keywords, each with a default that most callers want
    path: str | os.PathLike[str],
    *,
    timeout: float = TIMEOUT,
    lists_decide: bool = False,
    pause: Callable[[float], None] = time.sleep,
    say: Callable[[str], None] = lambda _: None,
    clock: Callable[[], float] = time.monotonic,
) -> Snapshot:
    """Look until the table at `path` is completed, and give that snapshot; raises as `wait` does.

    `lists_decide` is that of `codec.loads`. `pause(seconds)` blocks for at most that long and may raise to end the
    wait. `say(sentence)` is told once what is waited for and why, and again every 30 s; not at all where the table is
    there at the first look.
    """
    watch = _Watch(os.fspath(path), lists_decide)
    start = now = clock()
    next_say = start
    while True:
        try:
            return watch.look(now)
        except RankTableNotReadyError as error:
            reason = error.reason

        if now - start >= timeout:
            sentence = f"the rank table {watch.path} was not completed within {timeout:g} s: {reason}"
            raise RankTableNotReadyError(sentence, reason=reason)

        if now >= next_say:
            since = f"still after {now - start:.0f} of" if now > start else "at most"
            say(f"waiting for the rank table {watch.path}, {since} {timeout:g} s: {reason}")
            next_say = now + SAY_EVERY

        pause(min(LOOK_EVERY, start + timeout - now))
        now = clock()


def read_all(fd: int, path: str) -> bytes:
    """Read what is left of an open file, pipe or device. Raises OSError, and RankTableFormatError beyond 1 GiB."""
    data = BytesIO()
    size = os.fstat(fd).st_size  # 0 of what is no file
    while size <= LARGEST_FILE and (chunk := os.read(fd, CHUNK)):
        size = max(size, data.tell() + len(chunk))
        data.write(chunk)
    if size > LARGEST_FILE:
        raise RankTableFormatError(f"the file is larger than {LARGEST_FILE >> 30} GiB", source=path, code=BAD_TABLE)

    return data.getvalue()


def write(path: str | os.PathLike[str], data: bytes) -> None:
    """Make `path` a regular file with this content, so that whoever opens it finds the old content or the new, whole.

    A file that has this content already is left alone, so that ranks of a restarted job keep the file that they know.
    A symlink is replaced, not followed. Missing folders are made. Raises OSError, and then leaves nothing behind.
    """
    target = os.fspath(path)
    _make_folder(os.path.dirname(target))
    if not _has_content(target, data):
        _replace(target, data)


def resolve(path: str) -> str:
    """Name the file that `path` stands for now: itself, or the jobstart_hccl.json of a folder.

    What does not exist yet is a file where its name ends in ".json", and a folder otherwise.
    """
    if os.path.isdir(path) or not (path.endswith(".json") or os.path.lexists(path)):
        return os.path.join(path, FILE_NAME)

    return path


@attrs.define
class _Watch:
    """What is known about a file between two looks at it."""

    wanted: str
    lists_decide: bool = False
    path: str = ""
    stamp: Stamp | None = None
    stamp_since: float = math.inf
    is_settled: bool = False
    reason: str = ""

    def look(self, now: float) -> Snapshot:
        """Give the table if it is completed; RankTableNotReadyError if a later look may find it so."""
        self.path = resolve(self.wanted)
        try:
            data = self._read_changes(now)
            table = codec.loads(data, source=self.path, lists_decide=self.lists_decide)
        except RankTableNotReadyError as error:
            self.reason = error.reason
            raise

        return Snapshot(table=table, data=data, path=self.path)

    def _read_changes(self, now: float) -> bytes:
        """Read the file, unless that would give what was read before."""
        try:
            fd = os.open(self.path, READ_FLAGS)
        except OSError as error:
            self.stamp = None
            if error.errno in {errno.ENOENT, errno.ESTALE}:
                raise _not_ready(self.path, "it does not exist") from None
            raise UnreadableError(f"the rank table {self.path} cannot be opened: {error.strerror}") from error

        try:
            return self._read_open_file(fd, now)
        except OSError as error:
            raise UnreadableError(f"the rank table {self.path} cannot be read: {error.strerror}") from error
        finally:
            os.close(fd)

    def _read_open_file(self, fd: int, now: float) -> bytes:
        stamp = _stamp(fd)
        if stamp != self.stamp:
            self.stamp, self.stamp_since, self.is_settled = stamp, math.inf, False
        elif self.is_settled:
            raise _not_ready(self.path, self.reason)
        else:
            # A stamp is old enough once it was there at two looks that are far enough apart.
            self.stamp_since = min(self.stamp_since, now)
            self.is_settled = now - self.stamp_since >= COARSEST_STAMP

        data = read_all(fd, self.path)
        if _stamp(fd) != stamp:
            self.stamp = None
            raise _not_ready(self.path, "it changed while it was read")

        return data


def _stamp(fd: int) -> Stamp:
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file")

    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _not_ready(path: str, reason: str) -> RankTableNotReadyError:
    return RankTableNotReadyError(f"{path} is not a completed rank table: {reason}", reason=reason)


def _make_folder(path: str) -> None:
    """Make a folder and those above it; os.makedirs gives its mode to the last one only."""
    if not path or os.path.isdir(path):
        return

    _make_folder(os.path.dirname(path))
    with suppress(FileExistsError):  # made by another node meanwhile, or a file: then opening what is in it fails
        os.mkdir(path, FOLDER_MODE)


def _has_content(path: str, data: bytes) -> bool:
    """Whether `path` is a regular file of ours with this content. A stranger's could change later."""
    try:
        fd = os.open(path, READ_FLAGS | os.O_NOFOLLOW)
    except OSError:  # missing, a symlink, not readable: whatever it is, it is to be replaced
        return False

    with open(fd, "rb") as file:
        status = os.fstat(fd)
        is_ours = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()

        return is_ours and status.st_size == len(data) and file.read() == data


def _replace(path: str, data: bytes) -> None:
    """Write a neighbour and rename it; without fsync, since after a crash of the machine no rank reads it."""
    neighbour = os.path.join(os.path.dirname(path), f".rank_table-{os.getpid()}-{os.urandom(4).hex()}")
    fd = os.open(neighbour, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
    try:
        with open(fd, "wb") as file:
            file.write(data)
        os.replace(neighbour, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(neighbour)
        raise

"""Copies the files of a dataset with several threads, each to a temporary file that is renamed when it is complete.

A copy that was interrupted is continued where its temporary file ends. A source that changes meanwhile is an error.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

import attrs

from ascend_runner.errors import AscendRunnerError, OutputError, reason
from ascend_runner.host import bounded
from ascend_runner.staging.datasets import OWN_PREFIX, PERMISSIONS, Entry, Kind

THREADS: Final = 8  # a single one spends most of its time waiting for a network disk
CHUNK: Final = 8 << 20  # bytes of one system call, after which a stop is noticed
SPARSE: Final = 1 << 20  # bytes from which on a file is searched for holes
PART: Final = f"{OWN_PREFIX}part-"
STAT_BLOCK: Final = 512  # bytes; the unit of st_blocks
WRITABLE: Final = 0o700
SYNCFS_REPORTS: Final = (5, 8)  # the first Linux whose syncfs(2) fails if something could not be written
NO_SENDFILE: Final = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP})


class CancelledError(Exception):
    """The copy was cancelled."""


@attrs.define(eq=False, repr=False)
class Copies:
    """Copies files of one dataset from below `source` to below `target`.

    `boot` identifies the boot of this machine: a partial file that was written since then is intact. `done` counts the
    bytes of the files that were not there before.
    """

    source: str
    target: str
    boot: str
    stop: threading.Event
    done: int = attrs.field(default=0, init=False)
    finished: int = attrs.field(default=0, init=False)  # threads
    error: AscendRunnerError | None = attrs.field(default=None, init=False)
    _lock: threading.Lock = attrs.field(factory=threading.Lock, init=False)
    _syncs_each: bool = attrs.field(factory=lambda: not _syncfs_reports(os.uname().release), init=False)

    def start(self, entries: Iterator[Entry]) -> list[threading.Thread]:
        """Start copying these files. The first failure sets `error`; `finished` counts threads that end without one.

        Raises:
            AscendRunnerError: No thread can be started.
        """
        return [bounded.start_thread(lambda: self._work(entries)) for _ in range(THREADS)]

    def _work(self, entries: Iterator[Entry]) -> None:
        path = self.source
        try:
            while True:
                with self._lock:  # a generator runs in one thread at a time
                    entry = next(entries, None)
                if entry is None:
                    self.finished += 1
                if entry is None or self.error:
                    return
                path = os.path.join(self.source, entry.path)
                self._copy(entry)
        except CancelledError:
            return
        except OSError as error:
            self.error = self.error or OutputError(f"cannot stage {error.filename or path!r}: {reason(error)}")
        except AscendRunnerError as error:
            self.error = self.error or error

    def _copy(self, entry: Entry) -> None:
        target = os.path.join(self.target, entry.path)
        if self._has_content(entry, target):
            return
        part = os.path.join(self.target, part_name(entry, self.boot))
        path = os.path.join(self.source, entry.path)
        with opened(os.open(path, os.O_RDONLY | os.O_CLOEXEC)) as source, opened(_open_part(part)) as written:
            self._check_unchanged(entry, path, source)
            self._transfer(entry, source, written)
            self._check_unchanged(entry, path, source)
            os.fchmod(written, entry.mode)
            os.utime(written, ns=(entry.mtime_ns, entry.mtime_ns))
            if self._syncs_each:  # not always: small files take several times as long
                os.fdatasync(written)
        os.replace(part, target)

    @staticmethod
    def _has_content(entry: Entry, target: str) -> bool:
        """Return whether the file is there; if only its permissions differ, set them."""
        try:
            status = os.lstat(target)
        except FileNotFoundError:
            return False
        if not entry.has_stamp(status):
            return False
        if status.st_mode & PERMISSIONS != entry.mode:
            os.chmod(target, entry.mode)
        return True

    def _transfer(self, entry: Entry, source: int, target: int) -> None:
        begin = os.fstat(target).st_size  # all that was written before
        if begin > entry.size:
            begin = 0
            os.ftruncate(target, 0)
        self._note(begin)
        for start, end in _data(source, begin, entry.size):
            self._note(start - begin)
            os.lseek(target, start, os.SEEK_SET)
            begin = start
            while begin < end:
                if self.stop.is_set() or self.error:
                    raise CancelledError
                count = _send(source, target, begin, min(CHUNK, end - begin))
                if not count:
                    return  # the source was truncated, as the check that follows reports
                self._note(count)
                begin += count
        self._note(entry.size - begin)
        os.ftruncate(target, entry.size)

    def _note(self, count: int) -> None:
        with self._lock:
            self.done += count

    @staticmethod
    def _check_unchanged(entry: Entry, path: str, source: int) -> None:
        status = os.fstat(source)
        if (status.st_size, status.st_mtime_ns) != (entry.size, entry.mtime_ns):
            raise OutputError(
                f"cannot stage {path!r}: the file changed while it was being copied; retry when it is complete"
            )


@contextmanager
def opened(fd: int) -> Iterator[int]:
    """Close a file descriptor at the end of the context."""
    try:
        yield fd
    finally:
        os.close(fd)


def part_name(entry: Entry, boot: str) -> str:
    """Return the name of the temporary copy of a file. The name changes when the file does."""
    return PART + hashlib.sha256(entry.encode() + boot.encode()).hexdigest()[:32]


def make_folder(path: str) -> None:
    """Make a writable directory, replacing any other kind of file at `path`."""
    with suppress(FileNotFoundError):
        status = os.lstat(path)
        if stat.S_ISDIR(status.st_mode):
            _make_writable(path, status)
            return
        os.unlink(path)
    os.mkdir(path)


def make_link(entry: Entry, path: str) -> None:
    """Make a symlink, replacing any file at `path`."""
    with suppress(FileNotFoundError):
        if os.path.islink(path) and os.readlink(path) == entry.target:
            return
        os.unlink(path)
    os.symlink(entry.target, path)
    os.utime(path, ns=(entry.mtime_ns, entry.mtime_ns), follow_symlinks=False)


def finish_folder(entry: Entry, path: str) -> None:
    """Give a directory its permissions and its time, after everything in it has been written."""
    os.chmod(path, entry.mode)
    os.utime(path, ns=(entry.mtime_ns, entry.mtime_ns))


def remove(entry: Entry, top: str) -> None:
    """Remove a file that is no longer in the dataset, or a directory if it is empty."""
    path = os.path.join(top, entry.path)
    with suppress(FileNotFoundError, NotADirectoryError):
        above = os.path.dirname(path)
        _make_writable(above, os.stat(above))
        if entry.kind is not Kind.FOLDER:
            os.unlink(path)
            return
        with suppress(OSError):  # it contains files of others
            os.rmdir(path)


def _syncfs_reports(release: str) -> bool:
    found = re.match(r"(\d+)\.(\d+)", release)
    return found is not None and (int(found[1]), int(found[2])) >= SYNCFS_REPORTS


def _make_writable(folder: str, status: os.stat_result) -> None:
    if status.st_mode & WRITABLE != WRITABLE:
        os.chmod(folder, status.st_mode & PERMISSIONS | WRITABLE)


def _open_part(path: str) -> int:
    """Open the temporary copy of a file, with whatever an earlier run wrote to it.

    Raises:
        OSError: It cannot be opened, or it is another user's.
    """
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    status = os.fstat(fd)
    if status.st_uid != os.geteuid() or not stat.S_ISREG(status.st_mode):
        os.close(fd)
        raise PermissionError(errno.EPERM, "it belongs to another user", path)
    return fd


def _data(fd: int, begin: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of a file from an offset on that are not holes."""
    if size < SPARSE or os.fstat(fd).st_blocks * STAT_BLOCK >= size:
        yield begin, size
        return
    while begin < size:
        try:
            start = os.lseek(fd, begin, os.SEEK_DATA)
            end = min(os.lseek(fd, start, os.SEEK_HOLE), size)
        except OSError as error:
            if error.errno != errno.ENXIO:  # not supported; otherwise there is a hole up to the end
                yield begin, size
            return
        yield start, end
        begin = end


def _send(source: int, target: int, offset: int, count: int) -> int:
    """Copy some bytes to the current position of the target; return how many."""
    try:
        return os.sendfile(target, source, offset, count)
    except OSError as error:
        if error.errno not in NO_SENDFILE:
            raise
        return os.write(target, os.pread(source, count, offset))

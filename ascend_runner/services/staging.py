"""The contents of a dataset, as entries: walked in the source, listed in a manifest, looked up in the copy.

Memory does not grow with the number of files: everything is an iterator. A symlink that stays within the dataset stays
a symlink; the target of any other is a part of the dataset itself (as with rsync --copy-unsafe-links).


Copies the files of a dataset with several threads, each to a temporary file that is renamed when it is complete.

A copy that was interrupted is continued where its temporary file ends. A source that changes meanwhile is an error.


Surveys a dataset: its contents, the parts missing from the copy, and whether there is room for them.

Performs one stage: gives a directory the contents of a dataset, and marks it as complete.

In the directory, LOCK lets one runner copy while others wait, MANIFEST lists all that may be there, and COMPLETE is
written last. The next runner continues a stage that was interrupted at any point.


Copies datasets to this node in a thread, while the runner waits for the rank table and for signals.
"""

from __future__ import annotations

import ctypes
import enum
import errno
import fcntl
import hashlib
import json
import os
import re
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Final

import attrs

from ascend_runner import files
from ascend_runner.errors import AscendRunnerError, OutputError, reason
from ascend_runner.node import bounded, disks
from ascend_runner.node.host import Host
from ascend_runner.plan.ranks import Stage, Staged
from ascend_runner.text import counted, duration, size

# Files of the runner at the top of a copy. A source that is a copy itself has them as well.
OWN_PREFIX: Final = ".staging."
MANIFEST: Final = f"{OWN_PREFIX}manifest"
LOCK: Final = f"{OWN_PREFIX}lock"
COMPLETE: Final = ".complete.json"
EMPTY: Final = frozenset({"lost+found"})  # the contents of a new file system

DANGLING: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})
PERMISSIONS: Final = 0o777  # not setuid and setgid: the copy belongs to the user of the job
SECOND: Final = 10**9  # nanoseconds
DISK_BLOCK: Final = 4096  # bytes; a file takes whole blocks
LONGEST_SUMMARY: Final = 64 << 10  # bytes: a path, of which each character may be escaped


class Kind(enum.Enum):
    """The kind of an entry; the values are those in a manifest."""

    FILE = "file"
    FOLDER = "directory"
    LINK = "symlink"
    OTHER = "other"  # a socket, a FIFO or a device


@attrs.frozen
class Entry:
    """A file, directory or symlink of a dataset; `path` is relative to its top. `size` is that of a file in bytes."""

    kind: Kind
    path: str
    mode: int
    size: int
    mtime_ns: int
    target: str = ""  # where a symlink leads

    def encode(self) -> bytes:
        """Return the entry as a line of a manifest. Names that are not UTF-8 are escaped."""
        fields = [self.kind.value, self.path, self.mode, self.size, self.mtime_ns, self.target]
        return json.dumps(fields).encode() + b"\n"

    def has_stamp(self, status: os.stat_result) -> bool:
        """Whether a file has the size and the time of this entry, which some file systems cut to seconds."""
        times = {self.mtime_ns, self.mtime_ns // SECOND * SECOND}
        return stat.S_ISREG(status.st_mode) and status.st_size == self.size and status.st_mtime_ns in times


@attrs.define
class Total:
    """The sum of entries, independent of their order: their number, their bytes and a checksum."""

    entries: int = 0
    files: int = 0
    size: int = 0
    room: int = 0  # bytes on a disk
    checksum: int = 0

    def add(self, entry: Entry, line: bytes) -> None:
        """Add an entry, which is also given as a line of the manifest."""
        self.entries += 1
        self.files += entry.kind is Kind.FILE
        self.size += entry.size
        self.room += -(-entry.size // DISK_BLOCK) * DISK_BLOCK
        value = int.from_bytes(hashlib.blake2b(line, digest_size=16).digest(), "big")
        self.checksum = (self.checksum + value) % 2**128


def walk(top: str, name: str = "") -> Iterator[Entry]:
    """Yield the entries in a directory, or only its file `name`. A directory comes before its contents.

    Raises:
        OSError: Something cannot be read; its path is the error's.
        OutputError: A symlink leads back to a directory that contains it.
    """
    if name:
        yield _entry(name, os.stat(os.path.join(top, name)))
        return
    stack = [(os.scandir(top), "", _identity(top))]
    try:
        while stack:
            entries, folder, _ = stack[-1]
            found = next(entries, None)
            if found is None:
                stack.pop()[0].close()
            elif folder or not is_own(found.name):
                entry = look(top, os.path.join(folder, found.name))
                yield entry
                if entry.kind is Kind.FOLDER:
                    path = os.path.join(top, entry.path)
                    _refuse_loop(path, [identity for _entries, _folder, identity in stack])
                    stack.append((os.scandir(path), entry.path, _identity(path)))
    finally:
        for entries, _folder, _identity_of_folder in stack:
            entries.close()


def is_own(name: str) -> bool:
    """Return whether this is the name of a file of the runner at the top of a copy."""
    return name == COMPLETE or name.startswith(OWN_PREFIX)


def has_contents(folder: str) -> bool:
    """Return whether a directory has more than the runner's files and the contents of a new file system."""
    return any(name not in EMPTY and not is_own(name) for name in os.listdir(folder))


def look(top: str, path: str) -> Entry:
    """Return the entry at a path below the top of a dataset.

    Raises:
        OSError: It cannot be read.
    """
    full = os.path.join(top, path)
    status = os.lstat(full)
    if stat.S_ISLNK(status.st_mode):
        target = os.readlink(full)
        if _stays_within(path, target):
            return Entry(Kind.LINK, path, 0, 0, status.st_mtime_ns, target)
        try:
            status = os.stat(full)
        except OSError as error:
            if error.errno not in DANGLING:
                raise
            return Entry(Kind.LINK, path, 0, 0, status.st_mtime_ns, target)
    return _entry(path, status)


def _entry(path: str, status: os.stat_result) -> Entry:
    kind = {stat.S_IFREG: Kind.FILE, stat.S_IFDIR: Kind.FOLDER}.get(stat.S_IFMT(status.st_mode), Kind.OTHER)
    size = status.st_size if kind is Kind.FILE else 0
    return Entry(kind, path, status.st_mode & PERMISSIONS, size, status.st_mtime_ns)


def is_staged(entry: Entry, top: str) -> bool:
    """Return whether the copy below `top` has an entry, ignoring times of directories, which others may change."""
    path = os.path.join(top, entry.path)
    try:
        status = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    if entry.kind is Kind.LINK:
        return stat.S_ISLNK(status.st_mode) and os.readlink(path) == entry.target
    if status.st_mode & PERMISSIONS != entry.mode:
        return False
    return stat.S_ISDIR(status.st_mode) if entry.kind is Kind.FOLDER else entry.has_stamp(status)


def listed(manifest: str) -> Iterator[Entry]:
    """Yield the entries of a manifest.

    Raises:
        OSError: It cannot be read.
        OutputError: It is damaged.
    """
    with open(manifest, "rb") as file:
        for line in file:
            if not line.startswith(b"{"):  # the summary
                yield _decode(line, manifest)


def summary(path: str) -> Mapping[str, object]:
    """Return the object in the last line of a manifest or in COMPLETE, or an empty one if missing or damaged."""
    last = files.read_end(path, LONGEST_SUMMARY).rstrip(b"\n").rpartition(b"\n")[2]
    try:
        found = json.loads(last)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _decode(line: bytes, manifest: str) -> Entry:
    try:
        kind, *rest = json.loads(line)
        return Entry(Kind(kind), *rest)
    except (ValueError, TypeError) as error:
        raise OutputError(f"{manifest!r} is damaged; remove it and start again") from error


def _stays_within(path: str, target: str) -> bool:
    if os.path.isabs(target):
        return False
    end = os.path.normpath(os.path.join(os.path.dirname(path), target))
    return end != os.pardir and not end.startswith(os.pardir + os.sep)


def _refuse_loop(folder: str, above: list[tuple[int, int]]) -> None:
    if _identity(folder) in above:
        raise OutputError(f"cannot stage {folder!r}: it is a symlink to a directory that contains it")


def _identity(path: str) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_dev, status.st_ino


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


LEAST_FREE: Final = 0.1  # fraction of the file system; platforms take a node with a full disk out of service


@attrs.define(kw_only=True)
class Survey:
    """The sizes of a dataset and of what its copy lacks, and the first path that cannot be copied ("": none)."""

    found: Total = attrs.field(factory=Total)
    missing: Total = attrs.field(factory=Total)
    skipped: str = ""


def surveying(stage: Stage, survey: Survey) -> Iterator[bytes]:
    """Survey a source, and yield its entries as lines of a manifest.

    Raises:
        OSError: Something cannot be read; its path is the error's.
        OutputError: A symlink leads back to a directory that contains it.
    """
    for entry in walk(stage.top, stage.name):
        if entry.kind is Kind.OTHER:
            survey.skipped = survey.skipped or os.path.join(stage.top, entry.path)
            continue
        line = entry.encode()
        survey.found.add(entry, line)
        if not is_staged(entry, stage.folder):
            survey.missing.add(entry, line)
        yield line


def check_room(stage: Stage, missing: Total) -> None:
    """Check that the file system of a copy has room for the missing files.

    Raises:
        OSError: The file system does not give its size.
        OutputError: Less than a tenth of the file system would stay free.
    """
    disk = os.statvfs(disks.nearest(stage.folder))
    free = disk.f_bavail * disk.f_frsize - missing.room
    if missing.size and disk.f_blocks and free < LEAST_FREE * disk.f_blocks * disk.f_frsize:
        if free < 0:
            why = f"the copy needs {size(missing.room)}, and its file system has only {size(missing.room + free)} free"
        else:
            why = (
                f"{size(missing.size)} would leave {free / (disk.f_blocks * disk.f_frsize):.0%} of its file system"
                f" free, and at least {LEAST_FREE:.0%} is required"
            )
        raise OutputError(
            f"cannot stage {stage.source!r} to {stage.folder!r}: {why}; free some space or use another directory"
        )
    if disk.f_files and disk.f_favail < missing.entries:
        raise OutputError(
            f"cannot stage {stage.source!r} to {stage.folder!r}: its file system has room for only"
            f" {counted(disk.f_favail, 'more file')}, and {missing.entries} are needed"
        )


NEW_MANIFEST: Final = f"{OWN_PREFIX}manifest.new"
BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"
SILENCE: Final = 10.0  # seconds before the first message: a small copy needs none
REPORT_INTERVAL: Final = 30.0  # seconds between further ones
LOOK_INTERVAL: Final = 0.2  # seconds between two checks of the lock, or of the threads
END_LIMIT: Final = 5.0  # seconds for the other threads after one has failed


@attrs.define(eq=False, repr=False)
class StageTask:
    """One stage. It ends soon after `stop` is set, unless a disk hangs."""

    stage: Stage
    stop: threading.Event
    say: Callable[[str], None]
    warn: Callable[[str], None]
    _began: float = attrs.field(factory=time.monotonic, init=False)
    _reported: float = attrs.field(default=0.0, init=False)  # time of the last report; 0: there is none yet
    _boot: str = attrs.field(factory=lambda: Host().read_text(BOOT_ID).strip(), init=False)

    def perform(self) -> Staged:
        """Copy what is missing.

        Raises:
            CancelledError: `stop` was set.
            OSError: Something cannot be read or written; its path is the error's.
            OutputError: The copy is impossible for another reason.
        """
        with self._locked(), self._new_manifest():
            self._remove_damaged()
            survey = self._write_manifest()
            is_complete = summary(self._own(COMPLETE)).get("checksum") == _hex(survey.found)
            if survey.missing.entries or not is_complete:
                check_room(self.stage, survey.missing)
                self._replace(survey)
        seconds = time.monotonic() - self._began
        total = f"{self._title} ({counted(survey.found.files, 'file')}, {size(survey.found.size)})"
        if self._reported:
            self.say(f"staged {total} in {duration(seconds)}; copied {size(survey.missing.size)}")
        return Staged(
            source=self.stage.source,
            place=self.stage.place,
            files=survey.found.files,
            size=survey.found.size,
            copied=survey.missing.size,
            seconds=round(seconds, 3),
        )

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock of the directory, which is made if it is missing."""
        files.make_folder(self.stage.folder)
        with opened(files.open_lock(self._own(LOCK))) as fd:
            if not self._try_lock(fd):
                self.say(f"waiting for another runner that is staging to {self.stage.folder!r}")
                while not self._try_lock(fd):
                    self._check_stop()
                    self._report(
                        lambda: f"another runner still holds the lock after {duration(time.monotonic() - self._began)}"
                    )
                    time.sleep(LOOK_INTERVAL)
            yield

    @contextmanager
    def _new_manifest(self) -> Iterator[None]:
        """Remove the new manifest at the end, unless it has replaced the former one."""
        try:
            yield
        finally:
            with suppress(OSError):  # the next runner overwrites it
                os.unlink(self._own(NEW_MANIFEST))

    def _try_lock(self, fd: int) -> bool:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:  # two runners would write to the same files
            raise OutputError(
                f"cannot stage {self.stage.source!r} to {self.stage.folder!r}: its file system does not lock files"
                f" ({reason(error)}); use a directory on a local disk"
            ) from error
        return True

    def _remove_damaged(self) -> None:
        """Remove files whose contents a crash of the machine may have lost, although their sizes are right.

        If the manifest is lost as well, their names come from the source.
        """
        former = summary(self._own(MANIFEST))
        if former.get("boot") == self._boot or os.path.lexists(self._own(COMPLETE)):
            return
        if not has_contents(self.stage.folder):  # a new directory: the source is listed only once
            return
        for entry in listed(self._own(MANIFEST)) if former else walk(self.stage.top, self.stage.name):
            self._check_stop()
            if entry.kind is Kind.FILE:
                remove(entry, self.stage.folder)

    def _write_manifest(self) -> Survey:
        survey = Survey()
        with open(self._own(NEW_MANIFEST), "wb", opener=_open_no_symlink) as manifest:
            for line in surveying(self.stage, survey):
                self._check_stop()
                manifest.write(line)
                self._report(lambda: f"listing {self.stage.source!r}: {counted(survey.found.files, 'file')} so far")
            manifest.write(self._summary(survey))
        if survey.skipped:
            self.warn(f"skipped sockets, FIFOs and devices, such as {survey.skipped!r}")
        return survey

    def _replace(self, survey: Survey) -> None:
        """Update the copy to the contents of the new manifest."""
        with suppress(FileNotFoundError):
            os.unlink(self._own(COMPLETE))
        if summary(self._own(MANIFEST)).get("checksum", _hex(survey.found)) != _hex(survey.found):
            self._remove_vanished()
        with opened(_open_no_symlink(self._own(NEW_MANIFEST), os.O_RDONLY)) as manifest:
            os.fsync(manifest)
        os.replace(self._own(NEW_MANIFEST), self._own(MANIFEST))
        with opened(_open_folder(self.stage.folder)) as folder:  # no file is renamed to its final name before
            os.fsync(folder)
        self._copy(survey.missing)
        for entry in listed(self._own(MANIFEST)):
            self._check_stop()
            if entry.kind is Kind.FOLDER:
                finish_folder(entry, os.path.join(self.stage.folder, entry.path))
        for name in os.listdir(self.stage.folder):
            if name.startswith(PART):  # parts of files that have changed or vanished since
                os.unlink(self._own(name))
        _sync(self.stage.folder)
        files.write_atomically(self._own(COMPLETE), self._summary(survey))

    def _remove_vanished(self) -> None:
        """Remove entries of the former manifest that the source no longer has. Files of others stay."""
        folders: list[Entry] = []
        for entry in listed(self._own(MANIFEST)):
            self._check_stop()
            with suppress(FileNotFoundError, NotADirectoryError):
                if look(self.stage.top, entry.path).kind is entry.kind:
                    continue
            if entry.kind is Kind.FOLDER:
                folders.append(entry)
            else:
                remove(entry, self.stage.folder)
        for entry in reversed(folders):
            remove(entry, self.stage.folder)

    def _copy(self, missing: Total) -> None:
        copying = Copies(self.stage.top, self.stage.folder, self._boot, self.stop)
        began, threads = time.monotonic(), copying.start(self._files())
        for thread in threads:
            while thread.is_alive() and not copying.error:
                thread.join(LOOK_INTERVAL)
                self._report(lambda: _progress(copying.done, missing.size, time.monotonic() - began))
        deadline = time.monotonic() + END_LIMIT
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        if copying.error:
            raise copying.error
        self._check_stop()
        if copying.finished < len(threads):
            raise OutputError(f"cannot stage {self.stage.source!r}: a copying thread ended unexpectedly")

    def _files(self) -> Iterator[Entry]:
        """Yield the files; directories and symlinks are made in between, so that the directory of each file exists."""
        for entry in listed(self._own(MANIFEST)):
            self._check_stop()
            if entry.kind is Kind.FOLDER:
                make_folder(os.path.join(self.stage.folder, entry.path))
            elif entry.kind is Kind.LINK:
                make_link(entry, os.path.join(self.stage.folder, entry.path))
            else:
                yield entry

    # --- Details ------------------------------------------------------------------------------------------------------

    @property
    def _title(self) -> str:
        return f"{self.stage.source!r} to {self.stage.place!r}"

    def _own(self, name: str) -> str:
        return os.path.join(self.stage.folder, name)

    def _summary(self, survey: Survey) -> bytes:
        document = {
            "source": self.stage.source,
            "files": survey.found.files,
            "bytes": survey.found.size,
            "checksum": _hex(survey.found),
            "boot": self._boot,
        }
        return json.dumps(document).encode() + b"\n"

    def _check_stop(self) -> None:
        if self.stop.is_set():
            raise CancelledError

    def _report(self, text: Callable[[], str]) -> None:
        now = time.monotonic()
        if now >= (self._reported + REPORT_INTERVAL if self._reported else self._began + SILENCE):
            self._reported = now
            self.say(f"staging {self._title}: {text()}")


def _progress(done: int, total: int, seconds: float) -> str:
    rate = done / max(seconds, 0.001)
    left = f", about {duration((total - done) / rate)} left" if rate else ""
    return f"{size(done)} of {size(total)}, {size(int(rate))}/s{left}"


def _hex(total: Total) -> str:
    return f"{total.checksum:032x}"


def _open_no_symlink(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, files.FILE_MODE)


def _open_folder(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _sync(folder: str) -> None:
    """Write everything to the disk of a directory: COMPLETE must be true after a crash of the machine as well."""
    with opened(_open_folder(folder)) as fd:
        if ctypes.CDLL(None, use_errno=True).syncfs(fd):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), folder)


STOP_LOOK_INTERVAL: Final = 0.1  # seconds between two checks for a stop signal
STOP_LIMIT: Final = 0.5  # seconds for the thread to end; a disk that hangs keeps it longer


class Staging:
    """Copies the datasets in a thread, one after the other."""

    def __init__(self, stages: Sequence[Stage], say: Callable[[str], None], warn: Callable[[str], None]) -> None:
        """`say` (for progress) and `warn` are called in the thread."""
        self._stages = stages
        self._say, self._warn = say, warn
        self._stop = threading.Event()
        self._error: AscendRunnerError | None = None
        self._results: list[Staged] = []
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread.

        Raises:
            AscendRunnerError: The limit of processes is reached.
        """
        self._thread = bounded.start_thread(self._run)

    def check(self) -> None:
        """Raise the error that has ended the staging, if there is one.

        Raises:
            AscendRunnerError: A dataset cannot be copied.
        """
        if self._error:
            raise self._error

    def results(self, pause: Callable[[float], None]) -> tuple[Staged, ...]:
        """Wait for the end; `pause(0.0)` raises an error if a stop signal has arrived.

        Raises:
            AscendRunnerError: A dataset cannot be copied.
            StopRequestedError: A stop signal arrived.
        """
        while self._thread and self._thread.is_alive():
            pause(0.0)
            self._thread.join(STOP_LOOK_INTERVAL)
        self.check()
        if len(self._results) < len(self._stages):
            stage = self._stages[len(self._results)]
            raise OutputError(f"cannot stage {stage.source!r}: the copy was aborted")
        return tuple(self._results)

    def close(self) -> None:
        """End the thread, and say so if it has not finished; the files that it has copied stay. May be called twice."""
        is_first = not self._stop.is_set()
        self._stop.set()
        if self._thread:
            self._thread.join(STOP_LIMIT)
        if is_first and self._thread and not self._error and len(self._results) < len(self._stages):
            stage = self._stages[len(self._results)]
            self._say(f"stopped staging {stage.source!r} to {stage.folder!r}; the next job copies the rest")

    def _run(self) -> None:
        for stage in self._stages:
            try:
                self._results.append(StageTask(stage, self._stop, self._say, self._warn).perform())
            except CancelledError:
                return
            except OSError as error:
                self._error = OutputError(f"cannot stage {error.filename or stage.source!r}: {reason(error)}")
                return
            except AscendRunnerError as error:
                self._error = error
                return

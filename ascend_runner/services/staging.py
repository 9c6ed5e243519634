"""Copies datasets to local disks, in a thread, while the runner waits for the rank table and for signals.

In the directory of a copy, LOCK lets one runner copy while others wait, MANIFEST lists what belongs to the copy, and
COMPLETE is written last. What has the size and the time of the source is there already, so that the next runner
continues a copy that was interrupted at any point. Memory does not grow with the number of files.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import hashlib
import json
import math
import os
import re
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Final

import attrs

from ascend_runner import files
from ascend_runner.errors import AscendRunnerError, OutputError, reason
from ascend_runner.node import bounded, disks
from ascend_runner.node.host import Host
from ascend_runner.plan.ranks import Stage
from ascend_runner.record.job_record import Staged
from ascend_runner.text import counted, duration, size

# Files of the runner at the top of a copy. A source that is a copy itself has them as well.
OWN_PREFIX: Final = ".staging."
MANIFEST: Final = f"{OWN_PREFIX}list"
NEW_MANIFEST: Final = f"{OWN_PREFIX}list.new"
LOCK: Final = f"{OWN_PREFIX}lock"
PART: Final = f"{OWN_PREFIX}part-"
COMPLETE: Final = ".complete.json"
EMPTY: Final = frozenset({"lost+found"})  # the contents of a new file system

LEAST_FREE: Final = 0.1  # fraction of the file system; platforms take a node with a full disk out of service
THREADS: Final = 8  # a single one spends most of its time waiting for a network disk
AT_ONCE: Final = 4096  # files that the threads share; they wait for each other once all of these are copied
CHUNK: Final = 1 << 20  # bytes of one read, after which a stop is noticed
ZEROS: Final = bytes(CHUNK)  # not written, so that holes stay holes
PERMISSIONS: Final = 0o777  # not setuid and setgid: the copy belongs to the user of the job
READABLE: Final = 0o555  # of a file: a rank must not change the data of the next job. Directories may get caches
TYPE: Final = 0o170000  # of st_mode: directory, regular file, ... (inode(7), S_IFMT)
COPIED: Final = frozenset({stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK})  # not sockets, FIFOs and devices
WRITABLE: Final = 0o700
SECOND: Final = 10**9  # nanoseconds
DISK_BLOCK: Final = 4096  # bytes; a file takes whole blocks
LONGEST_SUMMARY: Final = 64 << 10  # bytes: a path, in which each character may be escaped
DANGLING: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})
# Before Linux 5.8, syncfs(2) does not report that something could not be written, so each file is synced. Not always:
# small files take several times as long.
SYNCS_EACH: Final = tuple(map(int, re.findall(r"\d+", os.uname().release)[:2])) < (5, 8)

SILENCE: Final = 10.0  # seconds before the first message: a small copy needs none
REPORT_INTERVAL: Final = 30.0  # seconds between further ones
LOOK_INTERVAL: Final = 0.1  # seconds between two checks of the lock, or for a stop signal
STOP_LIMIT: Final = 0.5  # seconds for the thread to end; a disk that hangs keeps it longer


class CancelledError(AscendRunnerError):
    """The copy was cancelled."""


@attrs.frozen
class Entry:
    """A file, directory or symlink of a dataset."""

    path: str  # relative to the top of the dataset
    mode: int  # type and permissions
    size: int  # bytes of a file
    mtime_ns: int
    target: str = ""  # where a symlink leads

    def encode(self) -> bytes:
        """Return a line of a manifest, in which names that are not UTF-8 are escaped."""
        return _encoded([self.path, self.mode, self.size, self.mtime_ns, self.target])

    def is_staged(self, path: str, permissions: int = PERMISSIONS) -> bool:
        """Return whether it is at `path`, with those of the `permissions`: a file with its size and time.

        Some file systems cut times to seconds. Those of directories do not count: others may change them.
        """
        try:
            status = os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        if (status.st_mode ^ self.mode) & (TYPE | permissions):
            return False
        if self.target:
            return os.readlink(path) == self.target
        times = (self.mtime_ns, self.mtime_ns // SECOND * SECOND)
        return stat.S_ISDIR(self.mode) or (status.st_size == self.size and status.st_mtime_ns in times)


@attrs.define
class Total:
    """The sum of entries, independent of their order."""

    entries: int = 0
    files: int = 0
    size: int = 0  # bytes
    room: int = 0  # bytes on a disk
    checksum: int = 0

    def add(self, entry: Entry, line: bytes) -> None:
        """Add an entry, which is also given as a line of the manifest."""
        self.entries += 1
        self.files += stat.S_ISREG(entry.mode)
        self.size += entry.size
        self.room += -(-entry.size // DISK_BLOCK) * DISK_BLOCK
        value = int.from_bytes(hashlib.blake2b(line, digest_size=16).digest(), "big")
        self.checksum = (self.checksum + value) % 2**128


@attrs.define(kw_only=True)
class Survey:
    """The sizes of a dataset and of the missing part of its copy."""

    found: Total = attrs.field(factory=Total)
    missing: Total = attrs.field(factory=Total)
    skipped: str = ""  # the first path that cannot be copied


def surveying(stage: Stage, survey: Survey) -> Iterator[bytes]:
    """Survey a source, and yield its entries as lines of a manifest.

    Raises:
        OSError: Something cannot be read; its path is the error's.
        OutputError: A symlink leads back to a directory that contains it.
    """
    for entry in _walk(stage):
        if stat.S_IFMT(entry.mode) not in COPIED:
            survey.skipped = survey.skipped or os.path.join(stage.top, entry.path)
            continue
        line = entry.encode()
        survey.found.add(entry, line)
        if not entry.is_staged(os.path.join(stage.folder, entry.path)):
            survey.missing.add(entry, line)
        yield line


def _walk(stage: Stage, folder: str = "", above: tuple[tuple[int, int], ...] = ()) -> Iterator[Entry]:
    """Yield the entries of a dataset, or of a directory in it. A directory comes before its contents."""
    path = os.path.join(stage.source, folder) if folder else stage.source
    status = os.stat(path)
    if stage.name:
        yield _entry(stage.name, status)
        return
    identity = (status.st_dev, status.st_ino)
    if identity in above:
        raise OutputError(f"cannot stage {path!r}: it is a symlink to a directory that contains it")
    with os.scandir(path) as found:
        for one in found:
            if folder or not is_own(one.name):
                entry = look(stage.source, os.path.join(folder, one.name))
                yield entry
                if stat.S_ISDIR(entry.mode):
                    yield from _walk(stage, entry.path, (*above, identity))


def look(top: str, path: str) -> Entry:
    """Return the entry at a path below the top of a dataset.

    A symlink that stays within the dataset is one. The target of any other belongs to the dataset, as with
    rsync --copy-unsafe-links.

    Raises:
        OSError: It cannot be read.
    """
    full = os.path.join(top, path)
    status = os.lstat(full)
    target = os.readlink(full) if stat.S_ISLNK(status.st_mode) else ""
    end = os.path.normpath(os.path.join(os.path.dirname(path), target))
    if target and (os.path.isabs(end) or end.split(os.sep)[0] == os.pardir):
        try:
            status, target = os.stat(full), ""
        except OSError as error:
            if error.errno not in DANGLING:
                raise
    return _entry(path, status, target)


def _entry(path: str, status: os.stat_result, target: str = "") -> Entry:
    is_file = stat.S_ISREG(status.st_mode)
    mode = status.st_mode & (TYPE | (READABLE if is_file else PERMISSIONS))
    return Entry(path, mode, status.st_size if is_file else 0, status.st_mtime_ns, target)


def is_own(name: str) -> bool:
    """Return whether this is the name of a file of the runner at the top of a copy."""
    return name == COMPLETE or name.startswith(OWN_PREFIX)


def has_contents(folder: str) -> bool:
    """Return whether a directory has more than the runner's files and the contents of a new file system."""
    return any(name not in EMPTY and not is_own(name) for name in os.listdir(folder))


def summary(path: str) -> Mapping[str, object]:
    """Return the object in the last line of a manifest or in COMPLETE, or an empty one if missing or damaged."""
    last = files.read_end(path, LONGEST_SUMMARY).rstrip(b"\n").rpartition(b"\n")[2]
    try:
        found = json.loads(last)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def check_room(stage: Stage, missing: Total) -> None:
    """Check that the file system of a copy has room for the missing files.

    Raises:
        OSError: The file system does not give its size.
        OutputError: Less than a tenth of the file system would stay free.
    """
    disk, title = disks.measure(disks.nearest(stage.folder)), f"cannot stage {stage.source!r} to {stage.folder!r}"
    free = disk.free - missing.room
    if missing.size and free < LEAST_FREE * disk.size:
        why = f"the copy needs {size(missing.room)}, and its file system has only {size(disk.free)} free"
        if free >= 0:
            least = f"at least {LEAST_FREE:.0%} is required"
            why = f"{size(missing.size)} would leave {free / disk.size:.0%} of its file system free, and {least}"
        raise OutputError(f"{title}: {why}; free some space or use another directory")
    if disk.inodes and disk.free_inodes < missing.entries:
        room = counted(disk.free_inodes, "more file")
        raise OutputError(f"{title}: its file system has room for only {room}, and {missing.entries} are needed")


@attrs.define(eq=False, repr=False)
class StageTask:
    """One stage. It ends soon after `stop` is set, unless a disk hangs."""

    stage: Stage
    stop: threading.Event
    say: Callable[[str], None]
    warn: Callable[[str], None]
    syncs_each: bool = SYNCS_EACH
    done: int = attrs.field(default=0, init=False)  # bytes so far of the files that were missing
    _error: AscendRunnerError | None = attrs.field(default=None, init=False)  # the first one of a thread
    _lock: threading.Lock = attrs.field(factory=threading.Lock, init=False)  # of `done` and `_reported`
    _began: float = attrs.field(factory=time.monotonic, init=False)
    _reported: float = attrs.field(default=0.0, init=False)  # time of the last report; 0: there is none yet
    _boot: str = attrs.field(factory=lambda: Host().boot_id, init=False)

    def perform(self) -> Staged:
        """Copy what is missing.

        Raises:
            CancelledError: `stop` was set.
            OutputError: The copy is impossible.
        """
        with _naming(self.stage.source):
            files.make_folder(self.stage.folder)
            with _opened(files.open_lock(self.path(LOCK))) as lock:
                self._await(lock)
                self._remove_damaged()
                try:
                    found, missing = self._update()
                finally:
                    files.remove(self.path(NEW_MANIFEST))
        seconds = time.monotonic() - self._began
        if self._reported:
            total = f"{self._title} ({counted(found.files, 'file')}, {size(found.size)})"
            self.say(f"staged {total} in {duration(seconds)}; copied {size(missing.size)}")
        return Staged(
            source=self.stage.source,
            place=self.stage.place,
            files=found.files,
            size=found.size,
            copied=missing.size,
            seconds=round(seconds, 3),
        )

    def _await(self, lock: int) -> None:
        waiting_for = f"waiting for another runner that is staging to {self.stage.folder!r}"
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if waiting_for:
                    self.say(waiting_for)
            except OSError as error:  # two runners would write to the same files
                raise OutputError(
                    f"cannot stage {self.stage.source!r} to {self.stage.folder!r}: its file system does not lock files"
                    f" ({reason(error)}); use a directory on a local disk"
                ) from error
            else:
                return
            waiting_for = ""
            self._check_stop()
            self._report(lambda: f"another runner still holds the lock after {duration(self._seconds())}")
            time.sleep(LOOK_INTERVAL)

    def _remove_damaged(self) -> None:
        """Remove the files of an unfinished copy if the machine has crashed: sizes may be right, and contents lost."""
        is_intact = os.path.lexists(self.path(COMPLETE)) or summary(self.path(MANIFEST)).get("boot") == self._boot
        if not is_intact and has_contents(self.stage.folder):
            for entry in _walk(self.stage):
                self._check_stop()
                if stat.S_ISREG(entry.mode):
                    self._remove(entry)

    def _update(self) -> tuple[Total, Total]:
        """Copy what is missing; return the sizes of all and of that."""
        survey, document = self._list()
        checksum, former = document["checksum"], self.path(MANIFEST)
        if not survey.missing.entries and summary(self.path(COMPLETE)).get("checksum") == checksum:
            return survey.found, survey.missing
        check_room(self.stage, survey.missing)
        files.remove(self.path(COMPLETE))
        if summary(former).get("checksum", checksum) != checksum:
            self._remove_vanished()
        os.replace(self.path(NEW_MANIFEST), former)
        with _opened(os.open(self.stage.folder, os.O_RDONLY | os.O_CLOEXEC)) as folder:
            os.fsync(folder)  # before any file has its final name
            self._copy_all(survey.missing)
            # COMPLETE must be true after a crash of the machine as well.
            if ctypes.CDLL(None, use_errno=True).syncfs(folder):
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), self.stage.folder)
        files.write_atomically(self.path(COMPLETE), _encoded(document))
        return survey.found, survey.missing

    def _list(self) -> tuple[Survey, Mapping[str, object]]:
        """Write the new manifest; return the sizes of what is in it, and the summary in its last line."""
        survey, path = Survey(), self.path(NEW_MANIFEST)
        files.remove(path)
        with open(os.open(path, files.WRITE_NEW_FLAGS, files.FILE_MODE), "wb") as manifest:
            for line in surveying(self.stage, survey):
                self._check_stop()
                manifest.write(line)
                self._report(lambda: f"listing {self.stage.source!r}: {counted(survey.found.files, 'file')} so far")
            facts = {"source": self.stage.source, "files": survey.found.files, "bytes": survey.found.size}
            document = {**facts, "checksum": f"{survey.found.checksum:032x}", "boot": self._boot}
            manifest.write(_encoded(document))
            manifest.flush()
            os.fsync(manifest.fileno())
        if survey.skipped:
            self.warn(f"skipped sockets, FIFOs and devices, such as {survey.skipped!r}")
        return survey, document

    def _listed(self) -> Iterator[Entry]:
        """Yield the entries of the manifest."""
        with open(self.path(MANIFEST), "rb") as manifest:
            for line in manifest:
                self._check_stop()
                if line.startswith(b"{"):  # the summary
                    return
                try:
                    entry = Entry(*json.loads(line))
                except (ValueError, TypeError) as error:
                    raise OutputError(f"{manifest.name!r} is damaged; remove it and start again") from error
                yield entry

    def _remove_vanished(self) -> None:
        """Remove entries of the former manifest that the source no longer has. Files of others stay."""
        folders: list[Entry] = []
        for entry in self._listed():
            with suppress(FileNotFoundError, NotADirectoryError):
                if not (look(self.stage.top, entry.path).mode ^ entry.mode) & TYPE:
                    continue
            if stat.S_ISDIR(entry.mode):
                folders.append(entry)
            else:
                self._remove(entry)
        for entry in reversed(folders):
            self._remove(entry)

    def _remove(self, entry: Entry) -> None:
        path = self.path(entry.path)
        with suppress(FileNotFoundError, NotADirectoryError):
            _make_writable(os.path.dirname(path))
            if not stat.S_ISDIR(entry.mode):
                os.unlink(path)
                return
            with suppress(OSError):  # it contains files of others
                os.rmdir(path)

    def _copy_all(self, missing: Total) -> None:
        began, entries = time.monotonic(), self._made()

        def is_cut() -> bool:
            self._report(lambda: _progress(self.done, missing.size, time.monotonic() - began))
            return self.stop.is_set() or self._error is not None

        while group := list(islice(entries, AT_ONCE)):
            copied = bounded.call_each(group, self._copy, math.inf, workers=THREADS, is_cut=is_cut)
            if self._error:
                raise self._error
            self._check_stop()
            if len(copied) < len(group):
                raise OutputError(f"cannot stage {self.stage.source!r}: a copying thread ended unexpectedly")
        for entry in self._listed():
            if stat.S_ISDIR(entry.mode):
                os.chmod(self.path(entry.path), stat.S_IMODE(entry.mode))
                os.utime(self.path(entry.path), ns=(entry.mtime_ns, entry.mtime_ns))
        for name in os.listdir(self.stage.folder):
            if name.startswith(PART):  # a part of a file that has changed or vanished since
                os.unlink(self.path(name))

    def _made(self) -> Iterator[Entry]:
        """Yield the files, when their directories have been made, and symlinks as well."""
        for entry in self._listed():
            path = self.path(entry.path)
            if stat.S_ISREG(entry.mode):
                yield entry
            elif stat.S_ISDIR(entry.mode) and entry.is_staged(path, permissions=0):
                _make_writable(path)
            elif not entry.is_staged(path, permissions=0):
                files.remove(path)
                if stat.S_ISDIR(entry.mode):
                    os.mkdir(path)
                else:
                    os.symlink(entry.target, path)
                    os.utime(path, ns=(entry.mtime_ns, entry.mtime_ns), follow_symlinks=False)

    # --- In each thread -----------------------------------------------------------------------------------------------

    def _copy(self, entry: Entry) -> None:
        path = os.path.join(self.stage.top, entry.path)
        try:
            with _naming(path):
                self.copy(entry, path)
        except AscendRunnerError as error:
            self._error = self._error or error

    def copy(self, entry: Entry, path: str) -> None:
        """Copy a file to a temporary one, which is renamed when it is complete; if it is there, set its permissions.

        Raises:
            OSError: It cannot be read or written.
            OutputError: The source has changed, or `stop` was set.
        """
        target, mode = self.path(entry.path), stat.S_IMODE(entry.mode)
        if entry.is_staged(target, permissions=0):
            os.chmod(target, mode)
            return
        part = self.path(part_name(entry, self._boot))
        with _opened(os.open(path, os.O_RDONLY | os.O_CLOEXEC)) as source, _opened(_open_part(part)) as written:
            self._transfer(entry, source, written)
            status = os.fstat(source)
            if (status.st_size, status.st_mtime_ns) != (entry.size, entry.mtime_ns):
                raise OutputError(
                    f"cannot stage {path!r}: the file changed while it was being copied; retry when it is complete"
                )
            os.utime(written, ns=(entry.mtime_ns, entry.mtime_ns))
            if self.syncs_each:
                os.fdatasync(written)
            os.replace(part, target)
            os.fchmod(written, mode)  # last: a part that is read-only could not be continued

    def _transfer(self, entry: Entry, source: int, target: int) -> None:
        begin = os.fstat(target).st_size  # what was written before
        offset = begin if begin <= entry.size else 0
        os.ftruncate(target, offset)
        self._add(offset)
        while offset < entry.size:
            self._check_stop()
            data = os.pread(source, min(CHUNK, entry.size - offset), offset)
            count = len(data) if data == ZEROS[: len(data)] else os.pwrite(target, data, offset)
            if not count:
                return  # the source was truncated
            offset += count
            self._add(count)
        os.ftruncate(target, entry.size)

    def _add(self, count: int) -> None:
        with self._lock:
            self.done += count

    # --- Details ------------------------------------------------------------------------------------------------------

    @property
    def _title(self) -> str:
        return f"{self.stage.source!r} to {self.stage.place!r}"

    def _seconds(self) -> float:
        return time.monotonic() - self._began

    def path(self, name: str) -> str:
        """Return a path in the directory of the copy."""
        return os.path.join(self.stage.folder, name)

    def _check_stop(self) -> None:
        if self.stop.is_set() or self._error:
            raise CancelledError

    def _report(self, text: Callable[[], str]) -> None:
        with self._lock:
            now = time.monotonic()
            if now < (self._reported + REPORT_INTERVAL if self._reported else self._began + SILENCE):
                return
            self._reported = now
        self.say(f"staging {self._title}: {text()}")


def part_name(entry: Entry, boot: str) -> str:
    """Return the name of the temporary copy of a file. It changes when the file does, and after a crash."""
    return PART + hashlib.sha256(entry.encode() + boot.encode()).hexdigest()[:32]


def _encoded(value: object) -> bytes:
    return json.dumps(value).encode() + b"\n"


def _progress(done: int, total: int, seconds: float) -> str:
    rate = done / max(seconds, 0.001)
    left = f", about {duration((total - done) / rate)} left" if rate else ""
    return f"{size(done)} of {size(total)}, {size(int(rate))}/s{left}"


def _make_writable(folder: str) -> None:
    mode = os.stat(folder).st_mode
    if mode & WRITABLE != WRITABLE:
        os.chmod(folder, stat.S_IMODE(mode) | WRITABLE)


def _open_part(path: str) -> int:
    """Open the temporary copy of a file, with whatever an earlier run wrote to it, unless it is another user's."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    status = os.fstat(fd)
    if status.st_uid != os.geteuid() or not stat.S_ISREG(status.st_mode):
        os.close(fd)
        raise PermissionError(errno.EPERM, "it belongs to another user", path)
    return fd


@contextmanager
def _opened(fd: int) -> Iterator[int]:
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def _naming(path: str) -> Iterator[None]:
    """Turn an OSError into an OutputError, which names the path if the error has none."""
    try:
        yield
    except OSError as error:
        raise OutputError(f"cannot stage {error.filename or path!r}: {reason(error)}") from error


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
            self._thread.join(LOOK_INTERVAL)
        self.check()
        if len(self._results) < len(self._stages):
            raise OutputError(f"cannot stage {self._stages[len(self._results)].source!r}: the copy was aborted")
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
        try:
            for stage in self._stages:
                self._results.append(StageTask(stage, self._stop, self._say, self._warn).perform())
        except CancelledError:
            return
        except AscendRunnerError as error:
            self._error = error

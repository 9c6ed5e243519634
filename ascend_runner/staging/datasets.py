"""The contents of a dataset, as entries: walked in the source, listed in a manifest, looked up in the copy.

Memory does not grow with the number of files: everything is an iterator. A symlink that stays within the dataset stays
a symlink; the target of any other is a part of the dataset itself (as with rsync --copy-unsafe-links).
"""

from __future__ import annotations

import enum
import errno
import hashlib
import json
import os
import stat
from collections.abc import Iterator, Mapping
from typing import Final

import attrs

from ascend_runner import files
from ascend_runner.errors import OutputError

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

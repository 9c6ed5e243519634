"""Creates directories, log files and atomically replaced files that other users can neither write nor redirect.

Below a world-writable directory such as /tmp, any user may have placed a symlink or a directory where the runner is to
write. Every function that creates something refuses these. Elsewhere, symlinks of the platform are followed.
"""

from __future__ import annotations

import array
import errno
import fcntl
import itertools
import os
import stat
import termios
from contextlib import suppress
from typing import Final

from ascend_runner.errors import OutputError, reason

# The umask decides about reading, and about writing by the group. Others may never write, whatever it says.
FOLDER_MODE: Final = 0o775
FILE_MODE: Final = 0o664
SCRIPT_MODE: Final = 0o700  # it has the whole environment of a rank
READ_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # opening a FIFO must not block
FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC  # to open a directory and lock it
WRITE_NEW_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
NEIGHBOUR: Final = ".ascend-runner-"  # a new file before it is renamed
LEFTOVER_AGE: Final = 60.0  # seconds by the clock of the file system; a writer needs milliseconds
ENTRIES_LIMIT: Final = 10_000  # directory entries examined, as a directory on a network disk may be large
# Errors of every call on a disk that is gone: a network or FUSE file system without its server, a device pulled out.
_GONE: Final = frozenset(
    {errno.ENOTCONN, errno.ECONNABORTED, errno.ESHUTDOWN, errno.ESTALE, errno.EHOSTDOWN, errno.ENODEV, errno.ENXIO}
)
# O_APPEND: after `: > log` the output continues at the beginning, not after as many NULs as the file was long.
LOG_FLAGS: Final = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


def make_folder(path: str) -> None:
    """Create a directory and its parents, unless they exist.

    Raises:
        OutputError: The directory cannot be created, or must not be used.
    """
    refuse_foreign(path)  # before the first mkdir: it could create a directory at the other end of a symlink
    if os.path.isdir(path):
        return
    try:
        _make_missing(path)
    except OSError as error:
        raise OutputError(f"cannot create the directory {error.filename!r}: {reason(error)}") from error

    refuse_foreign(path)


def refuse_foreign(path: str) -> None:
    """Refuse symlinks and other users' files at each step of `path` whose parent directory is world-writable.

    Raises:
        OutputError: There is one.
    """
    step = os.path.abspath(path)
    above = os.path.dirname(step)
    while step != above:
        if _is_writable_by_all(above):
            _refuse_foreign_file(step, above)
        step, above = above, os.path.dirname(above)


def open_new_log(path: str) -> int:
    """Open `path` as a new, empty file and return its fd. A log that is still there is renamed to `*.run-N.txt`.

    Raises:
        OutputError: The file cannot be created, or it is not a regular file.
    """
    refuse_foreign(path)
    found = _lstat(path)
    if found is not None and not stat.S_ISREG(found.st_mode):
        kind = "a symlink" if stat.S_ISLNK(found.st_mode) else "a directory or device"
        raise OutputError(f"log file {path!r} is {kind}, not a regular file")

    try:
        _keep_earlier(path)
        return os.open(path, LOG_FLAGS | os.O_EXCL, FILE_MODE)
    except OSError as error:
        raise OutputError(f"cannot create the log file {path!r}: {reason(error)}") from error


def reopen_log(path: str) -> int:
    """Open a log file to append to it, as a new one if it is missing, and return its fd.

    Raises:
        OutputError: The file cannot be opened, or must not be used.
    """
    refuse_foreign(path)
    try:
        return os.open(path, LOG_FLAGS, FILE_MODE)
    except OSError as error:
        raise OutputError(f"cannot open the log file {path!r}: {reason(error)}") from error


def open_lock(path: str) -> int:
    """Open the file `path`, which is made if it is missing, to lock it; return its fd.

    Raises:
        OutputError: It must not be used.
        OSError: It cannot be opened.
    """
    refuse_foreign(path)
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, FILE_MODE)


def try_lock(fd: int, kind: int = fcntl.LOCK_EX) -> bool:
    """Lock an open file unless another process holds the lock; on a file system without locks, return True as well."""
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def lost_disk(path: str, error: BaseException | None) -> str:
    """Return the warning about a disk that is gone, the same for all files of a directory; "" for other errors."""
    cause = error.__cause__ if isinstance(error, OutputError) else error
    if not (isinstance(cause, OSError) and cause.errno in _GONE):
        return ""
    return f"the disk with {os.path.dirname(path)!r} is gone; output, events and report are incomplete there"


def write_atomically(path: str, data: bytes, mode: int = FILE_MODE) -> None:
    """Make `path` a regular file with this content: a reader finds the old content or the new, never a part.

    The content goes to a new file beside `path`, which is then renamed. A symlink is replaced, not followed, and
    refused in a world-writable directory. A file of ours that has this content already stays: the ranks of a restarted
    job keep the inode that they may have open. New files that killed writers have left in the directory are removed.
    Without fsync: these files are not read after a crash of the machine.

    Raises:
        OutputError: The file cannot be written; nothing is left behind.
    """
    refuse_foreign(path)
    try:
        if not _has_content(path, data):
            _replace(path, data, mode)
    except OSError as error:
        raise OutputError(f"cannot write {path!r}: {reason(error)}") from error


def append(path: str, line: bytes) -> None:
    """Append a line to a file in one write, so that readers see only whole lines, even if the writer is killed.

    Raises:
        OutputError: The line cannot be written; nothing of it is left.
    """
    fd = reopen_log(path)
    try:
        with open(fd, "ab", buffering=0):  # to close it may fail as well, on a disk that is gone
            _write_whole(fd, line)
    except OSError as error:
        raise OutputError(f"cannot write {path!r}: {reason(error)}") from error


def move(path: str, target: str) -> None:
    """Rename a file.

    Raises:
        OutputError: It cannot be renamed.
    """
    try:
        os.rename(path, target)
    except OSError as error:
        raise OutputError(f"cannot rename {path!r} to {target!r}: {reason(error)}") from error


def remove(*paths: str) -> None:
    """Remove files. Ignore files that are missing or cannot be removed."""
    for path in paths:
        with suppress(OSError):
            os.unlink(path)


def read_end(path: str, size: int) -> bytes:
    """Return the last `size` bytes of a file; b"" if it cannot be read or is not a regular file, such as a symlink."""
    try:
        fd = os.open(path, READ_FLAGS)
        with open(fd, "rb") as file:
            status = os.fstat(fd)
            file.seek(max(0, status.st_size - size))
            return file.read(size) if stat.S_ISREG(status.st_mode) else b""
    except OSError:
        return b""


def read_parts(path: str, size: int, count: int) -> tuple[list[bytes], bool]:
    """Return the content of a file, and whether it is only a sample, as the file has more than `size` bytes.

    A sample has `count` parts, spread evenly from the beginning to the end and cut to whole lines. The content is empty
    if the file cannot be read or is not a regular file.
    """
    try:
        fd = os.open(path, READ_FLAGS)
        with open(fd, "rb") as file:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                return [], False
            if status.st_size <= size:
                return [file.read(size)], False
            parts = []
            for part in range(count):
                file.seek((status.st_size - size // count) * part // max(1, count - 1))
                data = file.read(size // count)
                parts.append(data if part == 0 else data.partition(b"\n")[2])
            return [data.rpartition(b"\n")[0] for data in parts], True
    except OSError:
        return [], False


def _write_whole(fd: int, line: bytes) -> None:
    size = os.fstat(fd).st_size
    if os.write(fd, line) < len(line):
        os.ftruncate(fd, size)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _has_content(path: str, data: bytes) -> bool:
    """Whether `path` is a regular file of ours with this content. Another user's file could change later."""
    try:
        fd = os.open(path, READ_FLAGS)
    except OSError:  # missing, a symlink or not readable: to be replaced in any case
        return False

    with open(fd, "rb") as file:
        status = os.fstat(fd)
        is_ours = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()
        return is_ours and status.st_size == len(data) and file.read() == data


def _replace(path: str, data: bytes, mode: int) -> None:
    # A name of fixed length: `path` may be as long as the file system allows.
    folder = os.path.dirname(path)
    neighbour = os.path.join(folder, f"{NEIGHBOUR}{os.urandom(8).hex()}")
    fd = os.open(neighbour, WRITE_NEW_FLAGS, mode)
    try:
        with open(fd, "wb") as file:
            try_lock(fd)  # the lock is held while the file is written
            _remove_leftovers(folder, os.fstat(fd).st_mtime - LEFTOVER_AGE)
            file.write(data)
        os.replace(neighbour, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(neighbour)
        raise


def _remove_leftovers(folder: str, before: float) -> None:
    """Remove the files that killed writers have left in a directory: old enough, and not locked by any process."""
    with suppress(OSError), os.scandir(folder or ".") as entries:
        for entry in itertools.islice(entries, ENTRIES_LIMIT):
            if entry.name.startswith(NEIGHBOUR) and entry.stat(follow_symlinks=False).st_mtime < before:
                _remove_leftover(entry.path)


def _remove_leftover(path: str) -> None:
    with suppress(OSError):  # another user's, or a writer is using it
        fd = os.open(path, READ_FLAGS)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(path)
        finally:
            os.close(fd)


def _make_missing(path: str) -> None:
    """Create a directory and its parents, each with FOLDER_MODE; os.makedirs gives the mode to the last one only."""
    if os.path.isdir(path):
        return
    above = os.path.dirname(path)
    if above != path:
        _make_missing(above)
    try:
        os.mkdir(path, FOLDER_MODE)
    except FileExistsError:
        if not os.path.isdir(path):  # otherwise another runner has created it meanwhile
            raise


def _keep_earlier(path: str) -> None:
    if not os.path.lexists(path):
        return
    base, extension = os.path.splitext(path)
    number = 1
    while True:
        earlier = f"{base}.run-{number}{extension}"
        try:
            os.close(os.open(earlier, WRITE_NEW_FLAGS, FILE_MODE))
            break
        except FileExistsError:
            number += 1
    try:
        # Over the empty file created above, so that no other log is replaced; hard links may be unsupported.
        os.rename(path, earlier)
    except OSError:
        os.unlink(earlier)
        raise


def _refuse_foreign_file(path: str, above: str) -> None:
    found = _lstat(path)
    if found is None:
        return
    if stat.S_ISLNK(found.st_mode):
        raise OutputError(f"refusing to use {path!r}: it is a symlink in the world-writable directory {above!r}")
    if found.st_uid not in {os.geteuid(), 0}:
        raise OutputError(
            f"refusing to use {path!r}: it belongs to user {found.st_uid}, in the world-writable directory {above!r}"
        )


def _is_writable_by_all(folder: str) -> bool:
    try:
        return bool(os.stat(folder).st_mode & stat.S_IWOTH)  # follows symlinks: their own mode is 0777
    except OSError:
        return False


def _lstat(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except OSError:
        return None


def bytes_in_pipe(fd: int) -> int:
    """Return how many bytes of a pipe nobody has read; `fd` is either end."""
    size = array.array("i", [0])
    fcntl.ioctl(fd, termios.FIONREAD, size)
    return size[0]

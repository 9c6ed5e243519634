"""The folders and log files that the runner makes: private, new, and never through what a stranger has laid there."""

from __future__ import annotations

import fcntl
import os
import stat

from ascend_runner.annotations import Final
from ascend_runner.errors import OutputError, reason

FOLDER_MODE: Final = 0o750
FILE_MODE: Final = 0o640


def make_folder(path: str) -> None:
    """Make the folder and those above it, where missing. Below a world-writable folder (/tmp) it must be our own.

    Errors: OutputError.
    """
    _refuse_strangers(path)  # first, or a folder would be made at the other end of a stranger's symlink
    try:
        _make_missing(path)
    except OSError as error:
        raise OutputError(f"cannot make the folder {error.filename!r}: {reason(error)}") from error

    _refuse_strangers(path)


def open_new_log(path: str) -> int:
    """Open `path` as a new, empty file and return its fd. A log of an earlier run is kept under the name `*.run-N.txt`.

    Errors: OutputError, for what is no regular file, and for another user's file in a world-writable folder, too.
    """
    _refuse_strangers(path)
    found = _lstat(path)
    if found is not None and not stat.S_ISREG(found.st_mode):
        what = "a symlink" if stat.S_ISLNK(found.st_mode) else "a folder or device"
        raise OutputError(f"{path!r} is {what}, expected a regular file: refused")

    try:
        _keep_earlier(path)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)
    except OSError as error:
        raise OutputError(f"cannot make the log file {path!r}: {reason(error)}") from error

    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # tells other jobs that the log has a living writer
    except OSError:
        return fd  # a file system without locks
    return fd


def write_whole(path: str, data: bytes) -> None:
    """Make `path` hold `data`: whoever opens it finds the old content or the new one, whole. Errors: OutputError."""
    _refuse_strangers(path)
    neighbour = f"{path}.{os.getpid()}"
    try:
        fd = os.open(neighbour, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)
        try:
            with open(fd, "wb") as file:
                file.write(data)
            os.rename(neighbour, path)
        except OSError:
            os.unlink(neighbour)
            raise
    except OSError as error:
        raise OutputError(f"cannot write {path!r}: {reason(error)}") from error


def read_end(path: str, size: int) -> bytes:
    """Give the last `size` bytes of a file of ours; b"" where it is no more to be had."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, "rb") as file:
            file.seek(max(0, os.fstat(fd).st_size - size))
            return file.read(size)
    except OSError:
        return b""


def _make_missing(path: str) -> None:
    """Make the folder and those above it, each with our mode; os.makedirs gives it to the last one only."""
    if os.path.isdir(path):
        return
    above = os.path.dirname(path)
    if above != path:
        _make_missing(above)
    try:
        os.mkdir(path, FOLDER_MODE)
    except FileExistsError:
        if not os.path.isdir(path):  # else another rank's runner was faster
            raise


def _keep_earlier(path: str) -> None:
    if not os.path.lexists(path):
        return
    _refuse_living_writer(path)
    base, extension = os.path.splitext(path)
    number = 1
    while True:
        earlier = f"{base}.run-{number}{extension}"
        try:
            os.close(os.open(earlier, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE))
            break
        except FileExistsError:
            number += 1
    try:
        os.rename(path, earlier)  # in place of an empty file of ours, never of another's log, and without hard links
    except OSError:
        os.unlink(earlier)
        raise


def _refuse_living_writer(path: str) -> None:
    """Refuse to put aside what another job writes at this moment: the two would destroy each other's logs."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        raise OutputError(
            f"{path!r} is being written by another job of the same name: choose another --log-dir, or name this job by"
            " BATCH_JOB_ID"
        ) from None
    except OSError:
        return  # a file system without locks
    finally:
        os.close(fd)


def _refuse_strangers(path: str) -> None:
    """Refuse symlinks and other users' property at each step of `path` that everybody may have put there."""
    step = os.path.abspath(path)
    above = os.path.dirname(step)
    while step != above:
        if _is_writable_by_all(above):
            _refuse_stranger(step, above)
        step, above = above, os.path.dirname(above)


def _refuse_stranger(path: str, above: str) -> None:
    found = _lstat(path)
    if found is None:
        return
    if stat.S_ISLNK(found.st_mode):
        raise OutputError(f"{path!r} is a symlink in {above!r}, where everybody can write: refused")
    if found.st_uid not in {os.geteuid(), 0}:
        raise OutputError(f"{path!r} belongs to user {found.st_uid}, in {above!r}, where everybody can write: refused")


def _is_writable_by_all(folder: str) -> bool:
    try:
        return bool(os.stat(folder).st_mode & stat.S_IWOTH)  # of what a symlink leads to; its own mode is always 0777
    except OSError:
        return False


def _lstat(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except OSError:
        return None

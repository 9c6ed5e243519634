"""Reads and writes tables: files, directories, pipes, standard input and output."""

from __future__ import annotations

import os
import stat
import sys
from typing import Final

from ascend_runner import files, tool
from ascend_runner.errors import OutputError, UnreadableError, reason
from ascend_runner.rank_table import codec, source
from ascend_runner.rank_table.model import RankTable
from ascend_runner.text import is_whole_number

PROGRAM: Final = "ascend-rank-table"
STANDARD: Final = "-"
DESCRIPTOR_DIGITS: Final = 9  # more than any descriptor has
READ_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC


def name_of(path: str) -> str:
    """Return the name of an input in messages: for a directory, its jobstart_hccl.json."""
    if path == STANDARD:
        return "standard input"

    return os.path.join(path, source.FILE_NAME) if os.path.isdir(path) else path


def read_bytes(path: str) -> bytes:
    """Read a file, the jobstart_hccl.json of a directory, a pipe, a device, or standard input.

    Raises:
        UnreadableError: The file cannot be read.
        RankTableFormatError: The file is too large.
    """
    name = name_of(path)
    if path == STANDARD and sys.stdin is None:
        raise UnreadableError(f"cannot read {name}: it is closed")

    try:
        return source.read_all(sys.stdin.fileno(), name) if path == STANDARD else read_file(name)
    except OSError as error:
        raise UnreadableError(f"cannot read {name}: {reason(error)}") from error


def read_file(name: str) -> bytes:
    """Read a file, pipe or device.

    Raises:
        OSError: The file cannot be read.
        RankTableFormatError: The file is too large.
    """
    fd = os.open(name, READ_FLAGS)
    try:
        return source.read_all(fd, name)
    finally:
        os.close(fd)


def read_table(path: str, *, lists_decide: bool) -> RankTable:
    """Read a table; errors as for `read_bytes` and `codec.loads`."""
    return codec.loads(read_bytes(path), source=name_of(path), lists_decide=lists_decide)


def identity_of(name: str) -> tuple[int, int] | None:
    """Return the identity of a file, which is the same under each of its names, or None if it does not exist."""
    try:
        status = os.stat(name)
    except OSError:
        return None

    return status.st_dev, status.st_ino


def regular_path(path: str) -> str:
    """Return the real path of a regular file, which need not exist, or "" for pipes, devices and standard streams."""
    if path == STANDARD or _descriptor_of(path) is not None:
        return ""

    try:
        is_regular = stat.S_ISREG(os.stat(path).st_mode)
    except OSError:  # it does not exist yet, or is unreachable
        is_regular = True
    return os.path.realpath(path) if is_regular else ""


def write_bytes(path: str, data: bytes) -> None:
    """Write a regular file atomically, and a pipe, a device or a standard stream directly.

    A symlink is followed. Missing directories are not created, as the name may be mistyped.

    Raises:
        BrokenPipeError: The reader of standard output has closed the pipe.
        OutputError: The output cannot be written.
    """
    if path == STANDARD:
        tool.write_output(data)
        return

    try:
        regular = regular_path(path)
        folder = os.path.dirname(regular)
        if folder and not os.path.isdir(folder):
            raise OutputError(f"cannot write {path}: no such directory: {folder}")
        if regular:
            files.write_atomically(regular, data)
            return

        descriptor = _descriptor_of(path)
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC) if descriptor is None else os.dup(descriptor)
        with open(fd, "wb") as file:
            file.write(data)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {reason(error)}") from error


def tell(sentence: str) -> None:
    """Print a message to standard error."""
    tool.tell(PROGRAM, sentence)


def _descriptor_of(path: str) -> int | None:
    """Return the open descriptor of this process that a path stands for (/dev/stdout, /dev/fd/3), by its links."""
    own = os.path.realpath("/proc/self/fd")
    for _ in range(40):  # as many links as the kernel follows
        folder, name = os.path.split(path)
        folder = os.path.realpath(folder)
        if folder == own and is_whole_number(name, DESCRIPTOR_DIGITS):
            return int(name)
        if not os.path.islink(path):
            return None
        path = os.path.join(folder, os.readlink(path))

    return None

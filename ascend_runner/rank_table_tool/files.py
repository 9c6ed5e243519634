"""Where tables come from and go to: files, folders, pipes, standard input and output. And where sentences go."""

from __future__ import annotations

import os
import stat
import sys
from io import TextIOWrapper
from typing import TYPE_CHECKING, Final, TextIO

from ascend_runner.errors import OutputError, UnreadableError
from ascend_runner.rank_table import codec, source
from ascend_runner.rank_table_tool.words import plain

if TYPE_CHECKING:
    from ascend_runner.rank_table.model import RankTable

STANDARD: Final = "-"
MOST_DIGITS: Final = 10  # a descriptor's number has fewer
READ_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC


def name_of(path: str) -> str:
    """Give the name of a source in sentences: of a folder, its jobstart_hccl.json."""
    if path == STANDARD:
        return "standard input"

    return os.path.join(path, source.FILE_NAME) if os.path.isdir(path) else path


def read_bytes(path: str) -> bytes:
    """Read a file, the jobstart_hccl.json of a folder, a pipe, or standard input.

    Errors: UnreadableError, and RankTableFormatError for what is too large.
    """
    name = name_of(path)
    if path == STANDARD and sys.stdin is None:
        raise UnreadableError(f"{name} cannot be read: it is closed")

    try:
        return source.read_all(sys.stdin.fileno(), name) if path == STANDARD else read_file(name)
    except OSError as error:
        raise UnreadableError(f"{name} cannot be read: {error.strerror}") from error


def read_file(name: str) -> bytes:
    """Read a file, pipe or device. Raises OSError, and RankTableFormatError for what is too large."""
    fd = os.open(name, READ_FLAGS)
    try:
        return source.read_all(fd, name)
    finally:
        os.close(fd)


def read_table(path: str, *, lists_decide: bool = False) -> tuple[RankTable, bytes]:
    """Read a table, and give the bytes that it was read from. Errors: those of `read_bytes` and of `codec.loads`."""
    data = read_bytes(path)

    return codec.loads(data, source=name_of(path), lists_decide=lists_decide), data


def identity_of(name: str) -> tuple[int, int] | None:
    """Tell a file from all others, whatever it is called; None where there is none."""
    try:
        status = os.stat(name)
    except OSError:
        return None

    return status.st_dev, status.st_ino


def regular_path(path: str) -> str:
    """Give the real path of what is a regular file, or will be one; "" for pipes, devices and standard streams."""
    if path == STANDARD or _descriptor_of(path) is not None:
        return ""

    try:
        is_regular = stat.S_ISREG(os.stat(path).st_mode)
    except OSError:  # it does not exist yet, or never will
        is_regular = True
    return os.path.realpath(path) if is_regular else ""


def write_bytes(path: str, data: bytes) -> None:
    """Write a regular file so that it is whole or not there, and a pipe, a device or a standard stream straight.

    A symlink stays, and what it names is written. No folder is made: a name that is mistyped must not become one.
    Errors: OutputError, BrokenPipeError of standard output.
    """
    if path == STANDARD:
        _put_out(data)
        return

    try:
        regular = regular_path(path)
        folder = os.path.dirname(regular)
        if folder and not os.path.isdir(folder):
            raise OutputError(f"{path} cannot be written: there is no folder {folder}")
        if regular:
            source.write(regular, data)
            return

        descriptor = _descriptor_of(path)
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC) if descriptor is None else os.dup(descriptor)
        with open(fd, "wb") as file:
            file.write(data)
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {error.strerror}") from error


def say(text: str) -> None:
    """Write a part of the answer to standard output. Errors: those of `write_bytes`."""
    _put_out(text.encode(sys.stdout.encoding if sys.stdout else "ascii", errors="backslashreplace"))


def tell(sentence: str) -> None:
    """Say something besides the answer; where nobody listens it is lost."""
    try:
        sys.stderr.write(f"ascend-rank-table: {plain(sentence)}\n")
        sys.stderr.flush()
    except OSError:
        _discard(sys.stderr)


def mend_streams() -> None:
    """Make the standard streams fit for names of any script, and for having been closed by the caller."""
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="ascii")  # noqa: SIM115 - open until the end
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # else it is closed, or a program's own
            stream.reconfigure(errors="backslashreplace")


def flush() -> None:
    """Bring out what others have written to standard output. Errors: those of `write_bytes`."""
    if sys.stdout:
        _put_out(b"")


def _put_out(data: bytes) -> None:
    if sys.stdout is None:
        raise OutputError("standard output cannot be written: it is closed")

    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except OSError as error:
        _discard(sys.stdout)
        if isinstance(error, BrokenPipeError):
            raise
        raise OutputError(f"standard output cannot be written: {error.strerror}") from error


def _discard(stream: TextIO) -> None:
    """Let what a stream still holds go nowhere: at the end Python would try to write it once more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC), stream.fileno())


def _descriptor_of(path: str) -> int | None:
    """Tell which open descriptor of this process a path stands for (/dev/stdout, /dev/fd/3), by its links."""
    own = os.path.realpath("/proc/self/fd")
    for _ in range(40):  # links, as the kernel follows at most
        folder, name = os.path.split(path)
        folder = os.path.realpath(folder)
        if folder == own and name.isascii() and name.isdigit() and len(name) < MOST_DIGITS:
            return int(name)
        if not os.path.islink(path):
            return None
        path = os.path.join(folder, os.readlink(path))

    return None

"""Where tables come from and go to: files, folders, pipes, standard input and output."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

from ascend_runner.errors import OutputError, RankTableError
from ascend_runner.rank_table import codec, source

if TYPE_CHECKING:
    from ascend_runner.rank_table.model import RankTable

STANDARD: Final = "-"


class UnreadableError(RankTableError):
    """A file cannot be read at all, so that nothing can be said about a table."""


def name_of(path: str) -> str:
    """Give the name of a source in sentences."""
    return "standard input" if path == STANDARD else source.resolve(path)


def read_bytes(path: str) -> bytes:
    """Read a file, the jobstart_hccl.json of a folder, a pipe, or standard input. Errors: UnreadableError."""
    if path == STANDARD:
        return sys.stdin.buffer.read()

    resolved = source.resolve(path)
    try:
        with open(resolved, "rb") as file:
            return file.read()
    except OSError as error:
        raise UnreadableError(f"{resolved} cannot be read: {error.strerror}") from error


def read_table(path: str) -> tuple[RankTable, bytes]:
    """Read a table, and give the bytes that it was read from. Errors: UnreadableError and those of `codec.loads`."""
    data = read_bytes(path)

    return codec.loads(data, source=name_of(path)), data


def write_bytes(path: str, data: bytes) -> None:
    """Write a file so that it is whole or not there, or standard output. Errors: OutputError, BrokenPipeError."""
    if path == STANDARD:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return

    try:
        source.write(path, data)
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {error.strerror}") from error


def discard_output() -> None:
    """After the reader of standard output has gone: let nothing more be written, as nobody would see it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

"""Standard output, which carries a command's result, and standard error, which carries everything else."""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper
from typing import TextIO

from ascend_runner.errors import OutputError
from ascend_runner.text import printable


def prepare() -> None:
    """Make the standard streams accept text in any script, and replace a closed standard error."""
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="ascii")  # noqa: SIM115 - open until the end
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # otherwise it is closed, or a program's own
            stream.reconfigure(errors="backslashreplace")


def write_text(text: str) -> None:
    """Write a part of the result; errors as for `write_bytes`."""
    write_bytes(text.encode(sys.stdout.encoding if sys.stdout else "ascii", errors="backslashreplace"))


def write_bytes(data: bytes) -> None:
    """Write a part of the result.

    Raises:
        BrokenPipeError: The reader has closed the pipe.
        OutputError: Standard output cannot be written.
    """
    if sys.stdout is None:
        raise OutputError("cannot write standard output: it is closed")

    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except OSError as error:
        _discard(sys.stdout)
        if isinstance(error, BrokenPipeError):
            raise
        raise OutputError(f"cannot write standard output: {error.strerror}") from error


def flush() -> None:
    """Write what others have left in the buffer of standard output; errors as for `write_bytes`."""
    if sys.stdout:
        write_bytes(b"")


def tell(sentence: str) -> None:
    """Print a message to standard error, and ignore a closed one."""
    try:
        sys.stderr.write(f"ascend-rank-table: {printable(sentence)}\n")
        sys.stderr.flush()
    except OSError:
        _discard(sys.stderr)


def _discard(stream: TextIO) -> None:
    """Discard what a stream still holds, which Python would try to write once more at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC), stream.fileno())

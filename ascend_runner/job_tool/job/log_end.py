"""The end of a log, from the beginning of a line, and its last lines without secrets."""

from __future__ import annotations

from typing import Final

from ascend_runner import files
from ascend_runner.board import reader

LINE: Final = 4096  # bytes at the end of a log that are searched for its last lines


def read(path: str, size: int) -> bytes:
    """Return the last `size` bytes of a log without a line that is cut off; of a longer line, its last words.

    Raises:
        ValueError: The path has a NUL or half of a surrogate pair.
    """
    end = files.read_end(path, size)
    return end if len(end) < size else end.partition(b"\n")[2] or reader.after_secret(end)


def last_line(end: bytes) -> str:
    """Return the last line of the end of a log."""
    return "".join(last_lines(end)[-1:])


def last_lines(end: bytes) -> tuple[str, ...]:
    """Return the last lines of the end of a log, about a screen of them at most."""
    return reader.end_lines(end[-LINE:], len(end))

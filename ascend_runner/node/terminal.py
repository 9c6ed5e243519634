"""The terminal of this process, if it has one: its width, its colors, and whether this process is in its foreground."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

STDIN: Final = 0
STDOUT: Final = 1
STDERR: Final = 2


def is_in_background(group: int) -> bool:
    """Whether standard input is the terminal of this session and another process group is in its foreground."""
    try:
        return os.tcgetpgrp(0) != group
    except OSError:  # no terminal, or the terminal of another session
        return False


def columns(fd: int) -> int:
    """Return the width of a terminal; 0 if the file is not a terminal, or its width is unknown."""
    return _size(fd).columns


def rows(fd: int) -> int:
    """Return the height of a terminal; 0 if the file is not a terminal, or its height is unknown."""
    return _size(fd).lines


def _size(fd: int) -> os.terminal_size:
    try:
        return os.get_terminal_size(fd)
    except OSError:
        return os.terminal_size((0, 0))


def can_move_cursor(environ: Mapping[str, str]) -> bool:
    """Whether the standard streams are a terminal on which a program can draw a screen and read keys."""
    return environ.get("TERM", "dumb") not in {"", "dumb"} and all(map(os.isatty, (STDIN, STDOUT, STDERR)))


def has_colors(fd: int, environ: Mapping[str, str]) -> bool:
    """Whether output to a file may be colored: NO_COLOR, FORCE_COLOR (no-color.org) or the terminal decides.

    Without TERM, as under mpirun started by a batch system, nobody is watching the terminal.
    """
    if environ.get("NO_COLOR") or environ.get("FORCE_COLOR"):
        return not environ.get("NO_COLOR")
    return environ.get("TERM", "dumb") != "dumb" and os.isatty(fd)

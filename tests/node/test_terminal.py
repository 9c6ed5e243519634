"""The properties of a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import termios
from collections.abc import Iterator, Mapping

import pytest

from ascend_runner.node import terminal


@pytest.fixture
def tty() -> Iterator[int]:
    """Provide a terminal of 100 columns."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
    yield slave
    os.close(master)
    os.close(slave)


@pytest.fixture
def pipe() -> Iterator[int]:
    """Provide a file that is not a terminal."""
    reader, writer = os.pipe()
    yield writer
    os.close(reader)
    os.close(writer)


def test_columns(tty: int, pipe: int) -> None:
    """A terminal has a width, and nothing else does."""
    assert (100, 0) == (terminal.columns(tty), terminal.columns(pipe))


@pytest.mark.parametrize(
    ("environ", "on_terminal", "on_pipe"),
    [
        ({"TERM": "xterm"}, True, False),
        ({"TERM": "dumb"}, False, False),
        ({}, False, False),
        ({"TERM": "xterm", "NO_COLOR": "1"}, False, False),
        ({"TERM": "xterm", "NO_COLOR": ""}, True, False),
        ({"TERM": "dumb", "FORCE_COLOR": "1"}, True, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False, False),
    ],
)
def test_colors(tty: int, pipe: int, environ: Mapping[str, str], *, on_terminal: bool, on_pipe: bool) -> None:
    """NO_COLOR wins, then FORCE_COLOR, then what the terminal is."""
    assert (on_terminal, on_pipe) == (terminal.has_colors(tty, environ), terminal.has_colors(pipe, environ))

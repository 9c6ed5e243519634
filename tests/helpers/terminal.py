"""A pseudo-terminal with the program in its foreground, as at an interactive shell."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from tests.helpers.surroundings import CLEAN, LEANER
from tests.helpers.waiting import LIMIT

MOMENT = 0.1  # seconds

# The first process of a session takes the terminal, and its group is in the foreground then.
TAKE_IT = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"


class Terminal:
    """Runs one command in a terminal; `screen` is all that it has shown, echoed input included."""

    def __init__(
        self, command: list[str], folder: Path, env: dict[str, str] | None = None, columns: int = 80, rows: int = 24
    ) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.popen = subprocess.Popen(
            [sys.executable, "-S", "-c", TAKE_IT, *command],
            env={**CLEAN, **LEANER, "TERM": "xterm", "NO_COLOR": "1", **(env or {})},
            cwd=folder,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)
        self.screen = ""

    def type(self, text: str) -> None:
        """Type some text, or a control character."""
        os.write(self._master, text.encode())

    def wait_for(self, text: str) -> None:
        """Read until this text was shown."""
        deadline = time.monotonic() + LIMIT
        while text not in self.screen:
            if not self._read(deadline - time.monotonic()):
                pytest.fail(f"not seen in {LIMIT:g} s: {text!r}; the screen:\n{self.screen}")

    def finish(self, typing: str = "") -> int:
        """Read to the end, typing this text whenever there was no output for a moment, and return the exit status."""
        deadline = time.monotonic() + LIMIT
        while self.popen.poll() is None and time.monotonic() < deadline:
            if not self._read(MOMENT):
                self.type(typing)
        while self._read(0.0):
            pass
        return self.popen.wait(max(0.0, deadline - time.monotonic()))

    def close(self) -> None:
        """Kill the command if it is still running."""
        self.popen.kill()
        self.popen.wait()
        os.close(self._master)

    def _read(self, seconds: float) -> bool:
        ready, _, _ = select.select([self._master], [], [], max(0.0, seconds))
        try:
            data = os.read(self._master, 65536) if ready else b""
        except OSError:  # EIO: nobody has the terminal open any more
            return False
        self.screen += data.decode(errors="replace").replace("\r\n", "\n")
        return bool(data)

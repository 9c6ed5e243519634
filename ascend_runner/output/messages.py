"""The runner's own lines on the console: `[ascend-runner] 03:12:45 ERROR <sentence>`.

Formats a message and passes it on. Where it goes, and when, is decided by the caller's `write` (see `console`).
"""

from __future__ import annotations

import enum
import time
from typing import Callable, Final

from ascend_runner.text import colored, printable

NAME: Final = "[ascend-runner]"
FURTHER_LINE: Final = "\n  "


class Level(enum.Enum):
    """The severity of a message, in rising order."""

    DEBUG = "DEBUG"
    INFO = "INFO"
    WARNING = "WARNING"
    ERROR = "ERROR"


_ORDER: Final = tuple(Level)
_STYLES: Final = {Level.DEBUG: "2", Level.INFO: "1", Level.WARNING: "1;33", Level.ERROR: "1;31"}


class Messages:
    """Writes messages of at least the `lowest` level. All warnings are kept in `warnings`, shown or not."""

    def __init__(self, write: Callable[[bytes], None], lowest: Level = Level.INFO, *, has_colors: bool = False) -> None:
        """`write` takes one whole message, with a newline at its end."""
        self.lowest = lowest
        self.has_colors = has_colors
        self.begins_with_time = False
        self.warnings: list[str] = []
        self._notes: set[str] = set()
        self._write = write

    def debug(self, sentence: str) -> None:
        """Report a detail that only --verbose shows."""
        self._send(Level.DEBUG, printable(sentence))

    def info(self, sentence: str) -> None:
        """Report progress."""
        self._send(Level.INFO, printable(sentence))

    def note(self, sentence: str) -> None:
        """Report a fact about the job once, although each attempt plans the job anew and finds the same facts."""
        if sentence not in self._notes:
            self._notes.add(sentence)
            self.info(sentence)

    def warning(self, sentence: str) -> None:
        """Report something unexpected that does not stop the job."""
        self.warnings.append(sentence)
        self._send(Level.WARNING, printable(sentence))

    def error(self, text: str) -> None:
        """Report a failure; further lines of `text` begin with two spaces."""
        self._send(Level.ERROR, text)

    def _send(self, level: Level, text: str) -> None:
        if _ORDER.index(level) >= _ORDER.index(self.lowest):
            self._write(format_message(level, text, has_colors=self.has_colors, begins_with_time=self.begins_with_time))


def format_message(level: Level, text: str, *, has_colors: bool = False, begins_with_time: bool = False) -> bytes:
    """Format a message for output; characters that could control a terminal are escaped.

    Further lines stay indented, so that a newline in a name cannot forge a message of the runner.
    """
    clean = FURTHER_LINE.join(map(printable, text.split(FURTHER_LINE)))
    now = time.strftime("%H:%M:%S")
    head = f"{now} {NAME} {level.value}" if begins_with_time else f"{NAME} {now} {level.value}"
    if has_colors:
        head = colored(head, _STYLES[level])
    return f"{head} {clean}\n".encode(errors="backslashreplace")

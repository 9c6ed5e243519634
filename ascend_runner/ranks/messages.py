"""The runner's own messages, with secrets masked.

Formats a message and passes it on. Where it goes, and when, is decided by the caller's `write` (see `console`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from ascend_runner.ranks.message_format import Level, format_message
from ascend_runner.secrets import Masker
from ascend_runner.text import printable

_ORDER: Final = tuple(Level)


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
        self._lock = threading.Lock()

    def debug(self, sentence: str) -> None:
        """Report a detail that only --verbose shows."""
        self._send(Level.DEBUG, printable(sentence))

    def details(self, text: str) -> None:
        """Report details that only --verbose shows; further lines of `text` begin with two spaces."""
        self._send(Level.DEBUG, text)

    def info(self, sentence: str) -> None:
        """Report progress."""
        self._send(Level.INFO, printable(sentence))

    def note(self, sentence: str) -> None:
        """Report a fact about the job once, although each attempt plans the job again and finds the same facts."""
        if sentence not in self._notes:
            self._notes.add(sentence)
            self.info(sentence)

    def warning(self, sentence: str) -> None:
        """Report something unexpected that does not stop the job."""
        self.warnings.append(sentence)
        self._send(Level.WARNING, printable(sentence))

    def warn_once(self, sentence: str) -> None:
        """Report something unexpected that may be found in each attempt, or by several threads."""
        with self._lock:
            if sentence not in self.warnings:
                self.warning(sentence)

    def result(self, text: str) -> None:
        """Report how a job has ended without a failure; further lines of `text` begin with two spaces."""
        self._send(Level.INFO, text)

    def error(self, text: str) -> None:
        """Report a failure; further lines of `text` begin with two spaces."""
        self._send(Level.ERROR, text)

    def _send(self, level: Level, text: str) -> None:
        if _ORDER.index(level) >= _ORDER.index(self.lowest):
            text = Masker().text(text)
            self._write(format_message(level, text, has_colors=self.has_colors, begins_with_time=self.begins_with_time))

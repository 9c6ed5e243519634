"""Cuts a rank's byte stream into whole, prefixed lines for the console. Pure; decodes nothing.

No line is split or merged. A line longer than `WRAP_AT` is wrapped, and the prefix is repeated. An unfinished line is
held back until `show_unfinished` is called, and then continued.

A carriage return lets a line be drawn again, as progress bars do. Such a line is either passed on state by state, or
folded into its last state; intermediate states are then visible only to callers of `show_unfinished`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

WRAP_AT: Final = 64 * 1024  # bytes


class LineCutter:
    """Cuts one stream. Keeps its unfinished line between two reads."""

    def __init__(self, prefix: bytes, *, folds: bool = False, time: Callable[[], bytes] = bytes) -> None:
        """With `folds`, only the last state of a line that is drawn again with carriage returns is returned.

        `time` returns what precedes the prefix of the lines that are read now, always of the same length.
        """
        self.continued: int | None = None
        """The length of the prefix of the last piece if that continues the line before it, else None."""
        self._time, self._timeless = time, prefix
        self._prefix = prefix  # after the time of the present call
        self._folds = folds
        self._rest = b""
        self._has_return = False  # whether the unfinished line had a carriage return
        self._is_begun = False  # whether the unfinished line was shown up to where `_rest` begins
        self._is_rest_shown = False  # whether the state of a progress bar was shown

    @property
    def is_waiting(self) -> bool:
        """Whether there is an unfinished line that has not been shown."""
        return bool(self._rest) and not self._is_rest_shown

    @property
    def has_bar(self) -> bool:
        """Whether the unfinished line is a progress bar that is folded."""
        return self._has_return and self._folds

    def feed(self, data: bytes) -> list[bytes | memoryview]:
        """Return the pieces to write, in order: whole lines only, each with its prefix."""
        self._is_rest_shown = False
        self._begin_call()
        if self._is_redrawn(data) or self._has_long_line(data):
            return self._feed_slowly(data)

        end = data.rfind(b"\n") + 1
        if not end:
            self._rest += data
            return []

        if self._is_begun:
            return self._feed_slowly(data)
        # One pass over the bytes: insert the prefix after each newline, then leave out the unfinished line.
        prefix, first = self._prefix, self._prefix + self._rest
        prefixed = data.replace(b"\n", b"\n" + prefix) if prefix else data
        self._begin_line(data[end:])
        return [first, memoryview(prefixed)[: len(prefixed) - len(prefix) - len(self._rest)]]

    def skip(self, data: bytes) -> int:
        """Drop `data`; return the number of lines that `feed` would have returned."""
        if self._is_redrawn(data) or self._has_long_line(data):
            return sum(bytes(piece).count(b"\n") for piece in self._feed_slowly(data))

        end = data.rfind(b"\n") + 1
        if end:
            self._begin_line(data[end:])
        else:
            self._rest += data
        return len(data) - len(data.replace(b"\n", b""))  # twice as fast as count()

    def show_unfinished(self) -> bytes:
        """Return the unfinished line as it is now, without a newline; b"" if it was shown or is empty.

        A progress bar ends in a carriage return, so that its next state is written over it. Any other line is continued
        by the next piece, see `continued`.
        """
        self._begin_call()
        if not self.is_waiting:
            return b""
        if self.has_bar:
            self._is_rest_shown = True
            return self._prefix + self._rest.rstrip(b"\r") + b"\r"
        shown, self._rest = self._prefix + self._rest, b""
        self._is_begun = not shown.endswith(b"\r")
        return shown

    def finish(self) -> bytes:
        """Return the end of the last line with a newline added, if the stream ended without one."""
        self._begin_call()
        last = self._prefix + self._rest + b"\n" if self._rest or self._is_begun else b""
        self._begin_line(b"")
        return last

    def _begin_call(self) -> None:
        self._prefix = self._time() + self._timeless
        self.continued = len(self._prefix) if self._is_begun else None

    def _begin_line(self, rest: bytes) -> None:
        self._rest = rest
        self._has_return = self._is_begun = self._is_rest_shown = False

    def _is_redrawn(self, data: bytes) -> bool:
        """Whether there is a carriage return that does not end a line together with a newline."""
        return b"\r" in self._rest or (b"\r" in data and data.count(b"\r") != data.count(b"\r\n"))

    def _has_long_line(self, data: bytes) -> bool:
        start = -len(self._rest)
        while len(data) - start > WRAP_AT:
            end = data.rfind(b"\n", max(start, 0), start + WRAP_AT + 1)
            if end < 0:
                return True
            start = end + 1
        return False

    def _feed_slowly(self, data: bytes) -> list[bytes | memoryview]:
        pieces = self._fold(self._rest + data) if self._folds else self._cut(self._rest + data)
        return [b"".join(pieces)]

    def _cut(self, text: bytes) -> list[bytes]:
        """Cut after each carriage return and newline."""
        pieces, prefix = [], self._prefix
        *lines, rest = text.splitlines(keepends=True) or [b""]
        if rest.endswith(b"\n"):
            lines, rest = [*lines, rest], b""
        for line in lines:
            if len(line) > WRAP_AT:
                wrapped, end = self._wrapped(line, len(line.rstrip(b"\r\n")))
                pieces += [*wrapped, prefix + end]
            else:
                pieces.append(prefix + line)
        # After a carriage return a newline may follow: "\r\n" is one ending.
        wrapped, rest = self._wrapped(rest, len(rest.rstrip(b"\r")))
        pieces += wrapped
        if pieces:
            self._begin_line(b"")
        self._rest = rest
        return pieces

    def _fold(self, text: bytes) -> list[bytes]:
        """Cut after each newline, and leave out states that were drawn over."""
        pieces = []
        *lines, unfinished = text.split(b"\n")
        if b"\r" in (*lines[:1], unfinished)[0][:-1]:
            self.continued = None  # the part of the line that was shown is drawn over
        if lines:
            self._begin_line(b"")
        for line in lines:
            wrapped, state = self._last_state(line)
            pieces += [*wrapped, self._prefix + state + b"\n"]
        wrapped, self._rest = self._last_state(unfinished)
        if b"\r" in unfinished[:-1] or wrapped:
            self._is_begun = False
        self._has_return |= b"\r" in unfinished
        return [*pieces, *wrapped]

    def _last_state(self, line: bytes) -> tuple[list[bytes], bytes]:
        """Return the wrapped parts of a line, and its last state that is not empty, ending in a carriage return."""
        pieces: list[bytes] = []
        if len(line) <= WRAP_AT:
            last = line.rstrip(b"\r").rpartition(b"\r")[2]
        else:
            last = b""
            for state in line.split(b"\r"):
                wrapped, end = self._wrapped(state, len(state)) if len(state) > WRAP_AT else ([], state)
                pieces += wrapped
                last = end or last
        return pieces, last + b"\r" if line.endswith(b"\r") else last

    def _wrapped(self, line: bytes, size: int) -> tuple[list[bytes], bytes]:
        """Cut a line of `size` bytes, apart from its ending; return the whole pieces, and the end."""
        starts = range(0, size - WRAP_AT, WRAP_AT)
        pieces = [self._prefix + line[start : start + WRAP_AT] + b"\n" for start in starts]
        return pieces, line[len(starts) * WRAP_AT :]

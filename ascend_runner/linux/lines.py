"""Cuts a rank's byte stream into whole, prefixed lines for the console. Pure; decodes nothing.

No line is cut or merged. A line longer than `WRAP_AT` is wrapped, with the prefix repeated. A carriage return ends a
piece as a newline does, so that a progress bar is seen while it moves, and keeps its prefix.
"""

from __future__ import annotations

from ascend_runner.annotations import Final

WRAP_AT: Final = 64 * 1024  # bytes


class LineCutter:
    """Keeps the unfinished line of one stream between two reads."""

    def __init__(self, prefix: bytes) -> None:
        self._prefix = prefix
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes | memoryview]:
        """Give the pieces to write, in order: whole lines only, each with its prefix."""
        if b"\r" in data or b"\r" in self._rest or self._has_long_line(data):
            return self._feed_slowly(data)

        end = data.rfind(b"\n") + 1
        if not end:
            self._rest += data
            return []

        # One pass over the bytes: prefix after every newline, then leave out what belongs to the unfinished line.
        prefix, first = self._prefix, self._prefix + self._rest
        prefixed = data.replace(b"\n", b"\n" + prefix) if prefix else data
        self._rest = data[end:]
        return [first, memoryview(prefixed)[: len(prefixed) - len(prefix) - len(self._rest)]]

    def skip(self, data: bytes) -> int:
        """Leave out what `feed` would give, without the work of making it; how many lines that is."""
        if b"\r" in data or b"\r" in self._rest or self._has_long_line(data):
            return sum(bytes(piece).count(b"\n") for piece in self._feed_slowly(data))

        end = data.rfind(b"\n") + 1
        self._rest = data[end:] if end else self._rest + data
        return data.count(b"\n")

    def finish(self) -> bytes:
        """Give the last line, if the stream ended without a newline; one is added."""
        rest, self._rest = self._rest, b""
        return self._prefix + rest + b"\n" if rest else b""

    def _has_long_line(self, data: bytes) -> bool:
        start = -len(self._rest)
        while len(data) - start > WRAP_AT:
            end = data.rfind(b"\n", max(start, 0), start + WRAP_AT + 1)
            if end < 0:
                return True
            start = end + 1
        return False

    def _feed_slowly(self, data: bytes) -> list[bytes | memoryview]:
        text = self._rest + data
        pieces = []
        start = 0
        while start < len(text):
            end = _end_of_piece(text, start)
            if end is None:
                break
            ending = b"" if text[end - 1] in b"\r\n" else b"\n"
            pieces.append(self._prefix + text[start:end] + ending)
            start = end
        self._rest = text[start:]
        return [b"".join(pieces)]


def _end_of_piece(text: bytes, start: int) -> int | None:
    """Find where the piece that begins at `start` ends; None while that cannot be known."""
    limit = start + WRAP_AT
    newline = text.find(b"\n", start, limit + 1)
    carriage_return = text.find(b"\r", start, newline if newline >= 0 else limit + 1)
    if carriage_return >= 0:
        after = carriage_return + 1
        if after == len(text):
            return None  # a newline may follow: "\r\n" is one ending
        return after + 1 if text[after] == ord("\n") else after
    if newline >= 0:
        return newline + 1

    return limit if len(text) > limit else None

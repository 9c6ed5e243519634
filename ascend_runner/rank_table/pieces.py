"""Long lists in little memory: parsed a piece at a time, and what is kept of an entry, kept folded.

A rank list of 65,536 ranks has 33 MB as a file and took 250 MB as objects, nearly all of them the levels of ranks,
which are looked at once. Which bytes are JSON is still the parser's say: what it has not taken is not cut.
"""

from __future__ import annotations

import marshal
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PIECE: Final = 1 << 20  # bytes; and below it a document is not cut


@attrs.frozen
class Pieces:
    """The items of an array, parsed anew whenever they are asked for. `cuts` are where each piece begins and ends."""

    data: bytes
    cuts: tuple[tuple[int, int], ...]
    parse: Callable[[bytes], object]

    def __iter__(self) -> Iterator[object]:
        """Give one item after the other."""
        for piece in self.parsed():
            yield from piece

    def parsed(self) -> Iterator[list[object]]:
        """Give one piece after the other. Errors: those of the parser, where it is not a part of an array."""
        for start, end in self.cuts:
            piece = self.parse(b"[%b]" % self.data[start:end])
            if isinstance(piece, list):  # always, by its brackets
                yield piece


class Folded(Mapping[str, object]):
    """A mapping as bytes, and not as objects, which would take five times as much."""

    __slots__ = ("_bytes",)

    def __init__(self, values: dict[str, object]) -> None:
        """Fold a mapping of what JSON has. Errors: ValueError where it is nested too deeply."""
        self._bytes = marshal.dumps(values)

    def __getitem__(self, key: str) -> object:
        """Look up one value."""
        return self.unfold()[key]

    def __iter__(self) -> Iterator[str]:
        """Give the keys."""
        return iter(self.unfold())

    def __len__(self) -> int:
        """Count the keys."""
        return len(self.unfold())

    def __repr__(self) -> str:
        """Show what is folded."""
        return repr(self.unfold())

    def unfold(self) -> dict[str, object]:
        """Give all of it, as a copy."""
        values: dict[str, object] = marshal.loads(self._bytes)  # noqa: S302  from this process, a line above

        return values


def fold(values: dict[str, object]) -> Mapping[str, object]:
    """Fold a mapping, if it can be."""
    try:
        return Folded(values)
    except ValueError:
        return values


def unfold(values: Mapping[str, object]) -> dict[str, object]:
    """Give a copy of a mapping, folded or not."""
    return values.unfold() if isinstance(values, Folded) else dict(values)


def parse(data: bytes, key: str, parser: Callable[[bytes], object], *, size: int = PIECE) -> dict[str, object] | None:
    """Parse a document whose array of objects at `key` is long, and cut that into Pieces; None where it cannot be cut.

    It is cut at commas, where an object begins as the first one does, and every piece is parsed once to see that it is
    one. Errors: those of the parser.
    """
    name = b'"%b"' % key.encode()
    before = re.search(name + rb"\s*:\s*\[", data) if len(data) > size and data.count(name) == 1 else None
    first = re.compile(rb'\s*(\{\s*"[^"\\]*")').match(data, before.end()) if before else None
    if not before or not first:
        return None

    end = data.rfind(b"]")
    around = data[: before.end()] + data[end:]
    cuts = tuple(_cut(data, before.end(), end, first[1], size))
    pieces = Pieces(data, cuts, parser)
    document = parser(around)
    # A backslash could spell the same key in another way.
    if not isinstance(document, dict) or document.get(key) != [] or b"\\" in around or not all(pieces.parsed()):
        return None

    document[key] = pieces
    return document


def _cut(data: bytes, start: int, end: int, opening: bytes, size: int) -> Iterator[tuple[int, int]]:
    while True:
        following = data.find(opening, start + size, end)
        comma = data.rfind(b",", start, following) if following >= 0 else -1
        if comma < 0:
            yield start, end
            return

        yield start, comma
        start = comma + 1

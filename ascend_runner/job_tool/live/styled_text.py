"""Text in the cells of a terminal: styles, widths, short numbers, and curves of block characters. Pure."""

from __future__ import annotations

import enum
import statistics
import unicodedata
from collections.abc import Sequence
from typing import Final

BLOCKS: Final = "▁▂▃▄▅▆▇█"
ELLIPSIS: Final = "…"
MINUTE, HOUR, DAY = 60, 3600, 86400  # seconds


class Style(enum.Enum):
    """How a text is shown; the app decides on the colors."""

    PLAIN = "plain"
    DIM = "dim"
    BOLD = "bold"
    HEAD = "head"
    TITLE = "title"
    KEY = "key"
    GOOD = "good"
    ODD = "odd"
    BAD = "bad"
    CURVE = "curve"


Span = tuple[str, Style]
Line = tuple[Span, ...]


def width(text: str) -> int:
    """Return how many cells a printable text takes: two for each wide character, none for a combining one."""
    if text.isascii():
        return len(text)
    return sum(_width(char) for char in text)


def _width(char: str) -> int:
    if unicodedata.combining(char) or unicodedata.category(char) in {"Mn", "Me"}:
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def cut(text: str, cells: int) -> str:
    """Return a text, or its beginning and an ellipsis if it needs more cells."""
    if width(text) <= cells:
        return text
    kept, room = "", cells - 1
    for char in text:
        room -= _width(char)
        if room < 0:
            break
        kept += char
    return kept + ELLIPSIS if cells > 0 else ""


def cut_start(text: str, cells: int) -> str:
    """Return a text, or an ellipsis and its end if it needs more cells."""
    return text if width(text) <= cells else cut(text[::-1], cells)[::-1]


def padded(text: str, cells: int, *, is_right: bool = False) -> str:
    """Return a text padded to a number of cells."""
    text = cut(text, cells)
    space = " " * (cells - width(text))
    return space + text if is_right else text + space


def short_duration(seconds: float) -> str:
    """Write a duration in its largest unit: "12 s", "4 min", "2 h", "3 d"."""
    for size, unit in ((DAY, "d"), (HOUR, "h"), (MINUTE, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{int(seconds)} s"


def curve(values: Sequence[int], cells: int) -> str:
    """Draw values as blocks, at most one for each cell; zero is a space.

    A full block is twice the median of those above zero, so that a burst does not flatten the rest.
    """
    if not values or cells <= 0:
        return ""
    count = min(cells, len(values))
    edges = [index * len(values) // count for index in range(count + 1)]
    means = [sum(values[begin:end]) / (end - begin) for begin, end in zip(edges, edges[1:])]
    above = [mean for mean in means if mean > 0]
    scale = len(BLOCKS) / (2 * statistics.median(above)) if above else 0.0
    return "".join(BLOCKS[min(len(BLOCKS) - 1, int(mean * scale))] if mean > 0 else " " for mean in means)


def bar(part: float, cells: int) -> tuple[str, str]:
    """Return the two parts of a bar that shows which part is done."""
    done = round(max(0.0, min(1.0, part)) * cells)
    return "━" * done, "─" * (cells - done)

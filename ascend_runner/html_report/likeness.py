"""Groups ranks whose texts are alike, so that a page has each text once, however many ranks share it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import attrs

from ascend_runner.text import printable

_NUMBER: Final = re.compile(r"0x[0-9a-fA-F]+|[0-9]+(?:\.[0-9]+)?")
ESCAPED: Final = re.compile(r"[&<>\"']")  # each becomes about five characters in HTML

_MARKS: Final = re.compile(r"[\s|]*[~^][\s~^]*")  # marks below a line of a traceback
MARKS_SIZE: Final = 40  # bytes of the element around them
MOST_GROUPS: Final = 64


@attrs.frozen(kw_only=True)
class Group:
    """Ranks whose lines are identical except for numbers; `lines` are those of the first one."""

    rank_ids: tuple[int, ...]
    lines: tuple[str, ...]


def group(texts: Mapping[int, Sequence[str]], first: Iterable[int] = ()) -> list[Group]:
    """Group the ranks; each of `first` comes first and has a group of its own."""
    alone = [rank_id for rank_id in dict.fromkeys(first) if texts.get(rank_id)]
    alike: dict[tuple[str, ...], list[int]] = {}
    for rank_id, lines in texts.items():
        if rank_id not in alone and lines:
            alike.setdefault(tuple(_NUMBER.sub("#", line) for line in lines), []).append(rank_id)
    return [
        *(Group(rank_ids=(rank_id,), lines=tuple(texts[rank_id])) for rank_id in alone),
        *(Group(rank_ids=tuple(rank_ids), lines=tuple(texts[rank_ids[0]])) for rank_ids in alike.values()),
    ]


def within(groups: Sequence[Group], limit: int) -> tuple[list[Group], tuple[int, ...]]:
    """Keep at most MOST_GROUPS groups that take at most `limit` bytes; return them and the ranks of the others.

    A group that is too long for the rest loses its first lines.
    """
    kept: list[Group] = []
    for index, one in enumerate(groups):
        lines: list[str] = []
        for line in reversed(one.lines):
            limit -= size(line)
            if limit < 0:
                break
            lines.insert(0, line)
        if lines:
            kept.append(attrs.evolve(one, lines=tuple(lines)))
        if limit < 0 or len(kept) == MOST_GROUPS:
            left = groups[index + bool(lines) :]
            return kept, tuple(sorted(rank_id for more in left for rank_id in more.rank_ids))
    return kept, ()


def size(line: str) -> int:
    """Return about how many bytes a line takes in the file, or a little more."""
    clean = printable(line)
    element = MARKS_SIZE if is_marks(line) else 0
    return len(clean.encode(errors="backslashreplace")) + 4 * len(ESCAPED.findall(clean)) + element + 1


def is_marks(line: str) -> bool:
    """Return whether a line marks a part of the line above it, as in the tracebacks of Python: "    ~~^~~"."""
    return _MARKS.fullmatch(line) is not None

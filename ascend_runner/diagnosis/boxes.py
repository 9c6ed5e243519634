"""Rewrites the tracebacks that rich draws as boxes into the interpreter's own format.

A box has a title, for each frame "path:line in function" (wrapped at the width of the terminal) and the lines around
it, the current one marked; the exception follows below the box, wrapped as well.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

BOX_LIMIT: Final = 2000  # lines: a frame may have a hundred local variables
_TOP: Final = re.compile(r"[╭┌+][─━-]+ Traceback \(most recent call last\) [─━-]+[╮┐+]?\s*$")
_BOTTOM: Final = re.compile(r"[╰└+][─━-]{20,}[╯┘+]?\s*$")
_SIDE: Final = re.compile(r"[│|] ?(.*?)\s*[│|]?\s*$")
_FRAME: Final = re.compile(r"(?P<file>\S.*?):(?P<line>\d+) in (?P<name>.+)$|in (?P<name2>\S+):(?P<line2>\d+)$")
_INNER_BOX: Final = re.compile(r"[╭┌│╰└]|\+-|\| ")  # of local variables, which typer shows
_MARKED: Final = re.compile(r"\s*[❱>] ?\d+ [│|]?(.*)")
_WIDEST: Final = 100  # a box of this width may be narrower than its terminal (rich/traceback.py)
_MESSAGE_LIMIT: Final = 20  # lines
# What starts a line of its own: a record of a program (wandb: ...) or of CANN ([ERROR] ...), or its time.
_OTHER: Final = re.compile(r"\s|[a-z][\w.-]*: |\[(?:[A-Z]+\]|Error|rank|\d)|\d{4}-\d\d-\d\d[ T]|Traceback |[╭│╰]")


def unboxed(lines: Sequence[str]) -> list[str]:
    """Return the lines with each box replaced; there may be fewer of them."""
    found: list[str] = []
    index = 0
    while index < len(lines):
        top = _TOP.search(lines[index]) if "Traceback (most" in lines[index] else None
        end = _bottom(lines, index + 1, top.start()) if top else -1
        if top is None or end < 0:
            found.append(lines[index])
            index += 1
            continue
        tag = lines[index][: top.start()]
        found.append(f"{tag}Traceback (most recent call last):")
        found += [f"{tag}{frame}" for frame in _frames([line[len(tag) :] for line in lines[index + 1 : end]])]
        index = end + 1
        below = [line[len(tag) :] for line in lines[index : index + _MESSAGE_LIMIT]]
        count = _wrapped(below, len(lines[end].rstrip()) - len(tag))
        if count > 1:
            found.append(tag + " ".join(line.strip() for line in below[:count]))
            index += count
    return found


def _bottom(lines: Sequence[str], start: int, column: int) -> int:
    for index in range(start, min(len(lines), start + BOX_LIMIT)):
        if _BOTTOM.match(lines[index][column:]):
            return index
    return -1


def _wrapped(lines: Sequence[str], width: int) -> int:
    """Count the lines below a box that are one: rich starts another where the next word does not fit."""
    count = 0 if width >= _WIDEST else 1
    while 0 < count < len(lines) and lines[count].strip() and not _OTHER.match(lines[count]):
        before, after = lines[count - 1].rstrip(), lines[count].rstrip()
        if max(len(before), len(after)) > width or len(f"{before} {after.split()[0]}") <= width:
            break
        count += 1
    return count


def _frames(box: Sequence[str]) -> list[str]:
    """Return the frames in a box, each with the line that was executed."""
    found: list[str] = []
    text = ""  # of a frame's heading, which may take several lines
    for line in box:
        side = _SIDE.match(line)
        inner = side[1] if side else ""
        if _INNER_BOX.match(inner):
            continue
        marked = _MARKED.match(inner)
        if marked:
            found.append(f"    {re.sub('│   ?', '    ', marked[1]).strip()}")
        text = f"{text} {inner.strip()}".strip() if inner.strip() and not inner.startswith("  ") else ""
        if frame := _FRAME.match(text):
            name = frame["name"] or frame["name2"]
            found.append(f'  File "{frame["file"] or "?"}", line {frame["line"] or frame["line2"]}, in {name}')
            text = ""
    return found

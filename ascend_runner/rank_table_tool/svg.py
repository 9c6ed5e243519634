"""The few SVG elements that a picture consists of. Independent of rank tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import attrs

SANS: Final = "system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif"
MONOSPACE: Final = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace"
ADVANCE: Final = 0.62  # width of a monospaced character over its size
SANS_ADVANCE: Final = 0.56  # of other characters, on average; rather too much than too little
PLAIN_WEIGHT: Final = 400
BOLD: Final = 600
NO_LINE: Final = ""


@attrs.frozen(kw_only=True)
class Type:
    """The style of a text. `is_code`: monospaced; `is_centred`: centred on its position, not starting there."""

    size: int
    colour: str
    weight: int = PLAIN_WEIGHT
    is_code: bool = False
    is_centred: bool = False


@attrs.frozen
class Box:
    """A position and a size."""

    x: float
    y: float
    width: float
    height: float


@attrs.frozen(kw_only=True)
class Paint:
    """The fill and outline of a box."""

    fill: str
    line: str = NO_LINE
    line_width: int = 1
    radius: int = 0


def document(width: int, height: int, title: str, parts: Iterable[str]) -> str:
    """Return the whole picture."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" font-family="{SANS}">'
    )
    styles = f"<style>.m{{font-family:{MONOSPACE}}}.c{{text-anchor:middle}}</style>"
    paper = box(Box(0, 0, width, height), Paint(fill="#ffffff"))

    return "\n".join((head, f"<title>{_escaped(title)}</title>", styles, paper, *parts, "</svg>\n"))


def text(x: float, y: float, content: str, style: Type) -> str:
    """Return a text with its base line at `y`."""
    classes = " ".join(name for name, holds in (("m", style.is_code), ("c", style.is_centred)) if holds)
    kind = f' class="{classes}"' if classes else ""
    weight = f' font-weight="{style.weight}"' if style.weight != PLAIN_WEIGHT else ""

    place = f'x="{x:g}" y="{y:g}" font-size="{style.size}"'
    return f'<text {place} fill="{style.colour}"{weight}{kind}>{_escaped(content)}</text>'


def box(at: Box, paint: Paint) -> str:
    """Return a box."""
    line = f' stroke="{paint.line}" stroke-width="{paint.line_width}"' if paint.line else ""
    radius = f' rx="{paint.radius}"' if paint.radius else ""

    place = f'x="{at.x:g}" y="{at.y:g}" width="{at.width:g}" height="{at.height:g}"'
    return f'<rect {place}{radius} fill="{paint.fill}"{line}/>'


def hinted(hint: str, parts: Iterable[str]) -> str:
    """Give some parts a tooltip."""
    return f"<g><title>{_escaped(hint)}</title>{''.join(parts)}</g>"


def width_of(content: str, style: Type) -> float:
    """Estimate the width of a text, as the viewer's font is unknown."""
    return len(content) * style.size * (ADVANCE if style.is_code or style.weight != PLAIN_WEIGHT else SANS_ADVANCE)


def fitted(content: str, style: Type, width: float) -> str:
    """Return a monospaced text, shortened to a width."""
    most = max(1, int(width / (style.size * ADVANCE)))

    return content if len(content) <= most else f"{content[: most - 1]}\N{HORIZONTAL ELLIPSIS}"


def _escaped(content: str) -> str:
    """Escape a text for XML, which allows neither most control characters nor halves of surrogate pairs."""
    allowed = "".join(character if _is_allowed(character) else "\N{REPLACEMENT CHARACTER}" for character in content)

    return allowed.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _is_allowed(character: str) -> bool:
    return character in "\t\n" or (
        character >= " " and not "\ud800" <= character <= "\udfff" and character not in "\ufffe\uffff"
    )

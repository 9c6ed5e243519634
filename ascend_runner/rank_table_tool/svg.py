"""The few elements of SVG that a picture is made of. Knows nothing of tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterable

SANS: Final = "system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif"
MONOSPACE: Final = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace"
ADVANCE: Final = 0.62  # width of a monospaced character over its size
SANS_ADVANCE: Final = 0.56  # of other characters, on average and rather too much
PLAIN_WEIGHT: Final = 400
BOLD: Final = 600
NO_LINE: Final = ""


@attrs.frozen(kw_only=True)
class Type:
    """How a text is set. `is_code`: monospaced; `is_centred`: around its place, not from it on."""

    size: int
    colour: str
    weight: int = PLAIN_WEIGHT
    is_code: bool = False
    is_centred: bool = False


@attrs.frozen
class Box:
    """A place and a size."""

    x: float
    y: float
    width: float
    height: float


@attrs.frozen(kw_only=True)
class Paint:
    """How a box is filled and outlined."""

    fill: str
    line: str = NO_LINE
    line_width: int = 1
    radius: int = 0


def document(width: int, height: int, title: str, parts: Iterable[str]) -> str:
    """Put the parts of a picture together."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" font-family="{SANS}">'
    )
    styles = f"<style>.m{{font-family:{MONOSPACE}}}.c{{text-anchor:middle}}</style>"
    paper = box(Box(0, 0, width, height), Paint(fill="#ffffff"))

    return "\n".join((head, f"<title>{_escaped(title)}</title>", styles, paper, *parts, "</svg>\n"))


def text(x: float, y: float, content: str, style: Type) -> str:
    """Write a text with its base line at `y`."""
    classes = " ".join(name for name, holds in (("m", style.is_code), ("c", style.is_centred)) if holds)
    kind = f' class="{classes}"' if classes else ""
    weight = f' font-weight="{style.weight}"' if style.weight != PLAIN_WEIGHT else ""

    place = f'x="{x:g}" y="{y:g}" font-size="{style.size}"'
    return f'<text {place} fill="{style.colour}"{weight}{kind}>{_escaped(content)}</text>'


def box(at: Box, paint: Paint) -> str:
    """Draw a box."""
    line = f' stroke="{paint.line}" stroke-width="{paint.line_width}"' if paint.line else ""
    radius = f' rx="{paint.radius}"' if paint.radius else ""

    place = f'x="{at.x:g}" y="{at.y:g}" width="{at.width:g}" height="{at.height:g}"'
    return f'<rect {place}{radius} fill="{paint.fill}"{line}/>'


def hinted(hint: str, parts: Iterable[str]) -> str:
    """Show a text while the pointer rests on some parts."""
    return f"<g><title>{_escaped(hint)}</title>{''.join(parts)}</g>"


def width_of(content: str, style: Type) -> float:
    """Tell about how wide a text is; nobody here knows the font."""
    return len(content) * style.size * (ADVANCE if style.is_code or style.weight != PLAIN_WEIGHT else SANS_ADVANCE)


def fitted(content: str, style: Type, width: float) -> str:
    """Shorten a monospaced text to a width."""
    most = max(1, int(width / (style.size * ADVANCE)))

    return content if len(content) <= most else f"{content[: most - 1]}\N{HORIZONTAL ELLIPSIS}"


def _escaped(content: str) -> str:
    """Make a text fit for XML, which has no place for most control characters nor for halves of surrogate pairs."""
    allowed = "".join(character if _is_allowed(character) else "\N{REPLACEMENT CHARACTER}" for character in content)

    return allowed.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _is_allowed(character: str) -> bool:
    return character in "\t\n" or (
        character >= " " and not "\ud800" <= character <= "\udfff" and character not in "\ufffe\uffff"
    )

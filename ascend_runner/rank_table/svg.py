"""The few SVG elements that a picture consists of. Independent of rank tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ascend_runner.text import printable

SANS: Final = "system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif"
MONOSPACE: Final = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace"
ADVANCE: Final = 0.62  # width of a monospaced or bold character over its size, an overestimate
INK: Final = "#16232e"
FAINT: Final = "#5d6b78"
# What a text may be, by letter: monospaced, centered on its position instead of starting there, bold, faint.
STYLES: Final = (
    f"text{{fill:{INK}}}.m{{font-family:{MONOSPACE}}}.c{{text-anchor:middle}}.b{{font-weight:600}}.f{{fill:{FAINT}}}"
)


def document(width: int, height: int, title: str, parts: Iterable[str], *, has_style: bool = True) -> str:
    """Return the whole picture; without a style of its own, the page that it is on has one."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" font-family="{SANS}">'
    )
    paper = box(0, 0, width, height, fill="#ffffff")

    own = (f"<style>{STYLES}</style>", paper) if has_style else ()
    return "\n".join((head, f"<title>{_escaped(title)}</title>", *own, *parts, "</svg>\n"))


def text(x: float, y: float, content: str, size: int, style: str) -> str:
    """Return a text with its base line at `y`, in the styles of some letters of STYLES."""
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" class="{" ".join(style)}">{_escaped(content)}</text>'


def box(x: float, y: float, width: float, height: float, **attributes: object) -> str:
    """Return a box with further attributes, where "_" stands for "-"."""
    more = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in attributes.items())
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"{more}/>'


def hinted(hint: str, *parts: str) -> str:
    """Return some parts with a tooltip."""
    return f"<g><title>{_escaped(printable(hint))}</title>{''.join(parts)}</g>"


def fitted(content: str, size: int, width: float) -> str:
    """Return a monospaced text, shortened to a width."""
    most = max(1, int(width / (size * ADVANCE)))
    return content if len(content) <= most else f"{content[: most - 1]}\N{HORIZONTAL ELLIPSIS}"


def _escaped(content: str) -> str:
    """Escape a text for XML, which allows neither most control characters nor halves of surrogate pairs."""
    allowed = "".join(character if _is_allowed(character) else "\N{REPLACEMENT CHARACTER}" for character in content)
    return allowed.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _is_allowed(character: str) -> bool:
    return character in "\t\n" or (
        character >= " " and not "\ud800" <= character <= "\udfff" and character not in "\ufffe\uffff"
    )

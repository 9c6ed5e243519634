"""Draws lines of styled text on the screen of `ascend-job top`.

They are no markup, whatever a log contains, and only those that have changed are drawn. The colors are the terminal's.
"""

from __future__ import annotations

from typing import Final

from rich.segment import Segment
from rich.style import Style as RichStyle
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from ascend_runner.tools.job.top_frame import Line, Style

# So that they suit its background.
STYLES: Final = {
    Style.PLAIN: RichStyle(),
    Style.DIM: RichStyle(dim=True),
    Style.BOLD: RichStyle(bold=True),
    Style.HEAD: RichStyle(dim=True, underline=True),
    Style.TITLE: RichStyle(bold=True, reverse=True),
    Style.KEY: RichStyle(color="cyan", bold=True),
    Style.GOOD: RichStyle(color="green"),
    Style.ODD: RichStyle(color="yellow", bold=True),
    Style.BAD: RichStyle(color="red", bold=True),
    Style.CURVE: RichStyle(color="cyan"),
}


class Picture(Widget):
    """Shows the lines of a frame."""

    DEFAULT_CSS = "Picture { width: 100%; height: 100%; }"

    def __init__(self) -> None:
        super().__init__()
        self._lines: tuple[Line, ...] = ()

    def show(self, lines: tuple[Line, ...]) -> None:
        """Show other lines; only the differences are drawn."""
        old, self._lines = self._lines, lines
        pairs = zip(lines, (*old, *[None] * len(lines)))
        width = self.size.width
        changed = [Region(0, y, width, 1) for y, (line, before) in enumerate(pairs) if line != before]
        if len(old) > len(lines):
            self.refresh()
        elif changed:
            self.refresh(*changed)

    def render_line(self, y: int) -> Strip:
        """Return a line of the screen."""
        line = self._lines[y] if y < len(self._lines) else ()
        segments = [Segment(text, STYLES[style]) for text, style in line]
        return Strip(segments).adjust_cell_length(self.size.width).simplify()

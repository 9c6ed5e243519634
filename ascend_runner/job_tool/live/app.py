"""The screen of `ascend-job top`, a thin application of textual: it shows frames and passes keys on.

The frames come as lines of styled text, so no log is ever parsed as markup. Only lines that have changed are drawn.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Collection
from typing import ClassVar, Final

import attrs
from rich.segment import Segment
from rich.style import Style as RichStyle
from textual.app import App, ComposeResult, SuspendNotSupported
from textual.binding import Binding, BindingType
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from ascend_runner.host import bounded
from ascend_runner.job_tool.live.frame import Frame, Screen, frame
from ascend_runner.job_tool.live.styled_text import Line, Style
from ascend_runner.job_tool.live.view import JobView

INTERVAL: Final = 1.0  # seconds
PAGE: Final = 10  # ranks
# The colors are those of the terminal, so that they suit its background.
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

Look = Callable[[Collection[int]], JobView]


@attrs.frozen(kw_only=True)
class Actions:
    """The actions of keys outside of the screen, for the rank at the cursor. Each returns a note, or "" for none."""

    log: Callable[[int], str]
    stacks: Callable[[int], str]
    events: Callable[[int], str]


class Seen(Message):
    """A new view of the job."""

    def __init__(self, view: JobView) -> None:
        super().__init__()
        self.view = view


class Picture(Widget):
    """Shows the lines of a frame."""

    DEFAULT_CSS = "Picture { width: 100%; height: 100%; }"

    def __init__(self) -> None:
        super().__init__()
        self._lines: tuple[Line, ...] = ()

    def show(self, lines: tuple[Line, ...]) -> None:
        """Show other lines; only those that differ are drawn."""
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


class Top(App[None]):
    """Shows a job until the user quits."""

    ENABLE_COMMAND_PALETTE = False
    CSS = "Screen { background: ansi_default; color: ansi_default; overflow: hidden; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,ctrl+c", "quit", "quit"),
        Binding("up,k", "move(-1)", "up"),
        Binding("down,j", "move(1)", "down"),
        Binding("pageup", f"move({-PAGE})", "up"),
        Binding("pagedown,space", f"move({PAGE})", "down"),
        Binding("enter", "leave('log')", "log"),
        Binding("s", "leave('stacks')", "stacks"),
        Binding("e", "leave('events')", "events"),
        Binding("a", "all", "all ranks"),
    ]

    def __init__(self, look: Look, actions: Actions, interval: float = INTERVAL) -> None:
        """`look` is called in a thread with the ranks that are shown, and once before the first frame."""
        super().__init__(ansi_color=True)
        self._look_at_job, self._actions, self._seconds = look, actions, interval
        self.picture = Picture()
        self._has_quit = threading.Event()
        self._view: JobView | None = None
        self._frame = Frame((), (), None)
        self._chosen: int | None = None  # by the user; until then the cursor stays on the first rank
        self._shows_all = False
        self._note = ""

    def compose(self) -> ComposeResult:
        """Fill the screen."""
        yield self.picture

    def on_mount(self) -> None:
        """Begin to observe the job. SIGTERM quits, so that the terminal is restored."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self.exit)
        bounded.start_thread(self._run)

    def on_unmount(self) -> None:
        """Stop observing the job."""
        self._has_quit.set()

    def on_resize(self) -> None:
        """Draw again."""
        self._draw()

    def on_seen(self, message: Seen) -> None:
        """Show a new view of the job."""
        self._view = message.view
        self._draw()

    @property
    def is_drawn(self) -> bool:
        """Whether the job has been drawn."""
        return bool(self._frame.lines)

    def action_move(self, rows: int) -> None:
        """Move the cursor."""
        self._note = ""
        ranks = self._frame.ranks
        if ranks and self._frame.selected is not None:
            place = ranks.index(self._frame.selected) + rows
            self._chosen = ranks[max(0, min(len(ranks) - 1, place))]
            self._draw()

    def action_all(self) -> None:
        """Show all ranks, or those that differ."""
        self._note = ""
        self._shows_all = not self._shows_all
        self._draw()

    def action_leave(self, name: str) -> None:
        """Show something else on the terminal, and come back."""
        rank_id = self._frame.selected
        if rank_id is None:
            return
        act: Callable[[int], str] = getattr(self._actions, name)
        try:
            with self.suspend():
                self._note = act(rank_id)
        except SuspendNotSupported:
            self._note = "cannot suspend the live view on this terminal"
        self._draw()

    def _draw(self) -> None:
        if self._view is None or not self.picture.is_attached:
            return
        size = self.size
        screen = Screen(
            columns=size.width, rows=size.height, selected=self._chosen, shows_all=self._shows_all, note=self._note
        )
        self._frame = frame(self._view, screen)
        self.picture.show(self._frame.lines)

    def _run(self) -> None:
        """Observe the job at intervals until the user quits."""
        while not self._has_quit.is_set():
            self.post_message(Seen(self._look_at_job(self._frame.ranks)))
            self._has_quit.wait(self._seconds)

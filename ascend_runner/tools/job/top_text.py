"""A text over the table of `ascend-job top`: a log, stacks, events or the keys, which is scrolled and searched.

It is read again while it is shown, in a thread. It stays at its end unless the user scrolls back. The table shares the
line for a search and the thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.screen import Screen
from textual.widgets import Input

from ascend_runner.errors import AscendRunnerError
from ascend_runner.node import bounded
from ascend_runner.text import shown
from ascend_runner.tools.job.top_frame import Line, Style, cut, padded, width
from ascend_runner.tools.job.top_picture import Picture

Read = Callable[[], Sequence[str]]
KEYS: Final = (("↑↓", "scroll"), ("/", "search"), ("n N", "next, previous"), ("q", "back"))
FRAME: Final = 2  # lines of the screen for the title and the keys


class Prompt(Input):
    """The line in which the user types what to search for. Escape cancels it."""

    DEFAULT_CSS = """
    Prompt, Prompt:focus { dock: bottom; height: 1; border: none; padding: 0; background: ansi_default; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "back")]

    def __init__(self) -> None:
        super().__init__(placeholder="search, and Enter")

    @classmethod
    async def ask(cls, screen: Screen[Any]) -> None:
        """Show the line on a screen. The next key already belongs to it."""
        prompt = cls()
        await screen.mount(prompt)
        screen.set_focus(prompt)  # at once, unlike `focus`

    @staticmethod
    def take(message: Input.Submitted) -> str:
        """Return what was typed, for this caller only, and remove the line. The next key belongs to the screen."""
        message.stop()
        message.input.screen.set_focus(None)
        message.input.remove()
        return message.value

    def action_leave(self) -> None:
        """Remove the line."""
        self.remove()


class Reader:
    """Calls a function in a thread, at intervals or once, and posts the messages that it returns.

    If the terminal does not read, the event loop may wait for it. Each message would then stay in the pipe that wakes
    the loop, and once that is full, signals fail. So no message is posted before the last one was handled.
    """

    def __init__(self, read: Callable[[], Message], post: Callable[[Message], object], interval: float) -> None:
        """With the interval 0, `read` is called once."""
        self._read, self._post, self._interval = read, post, interval
        self._has_stopped = threading.Event()
        self._may_post = threading.Event()
        self._may_post.set()

    def start(self) -> None:
        """Start reading.

        Raises:
            AscendRunnerError: No thread can be started.
        """
        bounded.start_thread(self._run)

    def note_handled(self) -> None:
        """Allow the next message to be posted."""
        self._may_post.set()

    def stop(self) -> None:
        """Stop reading."""
        self._has_stopped.set()

    def _run(self) -> None:
        while not self._has_stopped.is_set():
            message = self._read()
            if self._may_post.is_set():
                self._may_post.clear()
                self._post(message)
            if not self._interval:
                return
            self._has_stopped.wait(self._interval)


class TextRead(Message):
    """What a text is now."""

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__()
        self.lines = lines


class TextView(Screen[None]):
    """Shows a text until the user leaves it."""

    CSS = "TextView { background: ansi_default; color: ansi_default; overflow: hidden; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,escape,question_mark,h,f1", "leave", "back"),
        Binding("up,k", "scroll(-1)", "up"),
        Binding("down,j,enter", "scroll(1)", "down"),
        Binding("pageup,b", "page(-1)", "up"),
        Binding("pagedown,space", "page(1)", "down"),
        Binding("home,g", "home", "beginning"),
        Binding("end,G", "end", "end"),
        Binding("slash", "search", "search"),
        Binding("n", "find(1)", "next"),
        Binding("N", "find(-1)", "previous"),
    ]

    def __init__(self, title: str, read: Read, *, first: Sequence[str] = (), interval: float = 0.0) -> None:
        """`read` is called at this interval, or once without one; `first` is shown until it has returned."""
        super().__init__()
        self._title = title
        self._reader = Reader(lambda: TextRead([*read()]), self.post_message, interval)
        self._texts = [*first]
        self._rows: list[str] = []  # the text, cut to the width of the screen
        self._top = 0
        self._is_at_end = interval > 0
        self._pattern = ""
        self._note = ""
        self.picture = Picture()

    def compose(self) -> ComposeResult:
        """Fill the screen."""
        yield self.picture

    def on_mount(self) -> None:
        """Begin to read; what is known without a thread is shown at once."""
        try:
            self._reader.start()
        except AscendRunnerError as error:  # the limit of processes
            self._texts = [*self._texts, str(error)]
            self._lay_out()

    def on_unmount(self) -> None:
        """Stop reading."""
        self._reader.stop()

    def on_resize(self) -> None:
        """Cut the text to the new width."""
        self._lay_out()

    def on_text_read(self, message: TextRead) -> None:
        """Show the text as it is now."""
        self._reader.note_handled()
        if message.lines != self._texts:
            self._texts = [*message.lines]
            self._lay_out()

    def on_input_submitted(self, message: Input.Submitted) -> None:
        """Search for what the user has typed, starting with the first line on the screen."""
        self._pattern = Prompt.take(message)
        self._go_to_match(range(self._top, len(self._rows)))

    def action_leave(self) -> None:
        """Return to the table."""
        self.dismiss()

    def action_scroll(self, rows: int) -> None:
        """Scroll by some rows; at the end, the text is followed again."""
        self._top += rows
        self._is_at_end = self._top >= self._last_top
        self._draw()

    def action_page(self, pages: int) -> None:
        """Scroll by a screen."""
        self.action_scroll(pages * max(1, self._room - 1))

    def action_home(self) -> None:
        """Scroll to the beginning."""
        self.action_scroll(-len(self._rows))

    def action_end(self) -> None:
        """Scroll to the end."""
        self.action_scroll(len(self._rows))

    async def action_search(self) -> None:
        """Ask what to search for."""
        await Prompt.ask(self)

    def action_find(self, step: int) -> None:
        """Go to the next or the previous match."""
        count = len(self._rows)
        self._go_to_match(range(self._top + 1, count) if step > 0 else range(min(self._top, count) - 1, -1, -1))

    def _go_to_match(self, places: range) -> None:
        pattern = self._pattern.casefold()
        place = next((place for place in places if pattern and pattern in self._rows[place].casefold()), None)
        self._note = f"no further match of {self._pattern!r}" if place is None and pattern else ""
        if place is not None:
            self._top, self._is_at_end = place, False
        self._draw()

    @property
    def _room(self) -> int:
        return max(1, self.size.height - FRAME)

    @property
    def _last_top(self) -> int:
        return max(0, len(self._rows) - self._room)

    def _lay_out(self) -> None:
        cells = max(1, self.size.width - 1)
        self._rows = [row for text in self._texts for row in _wrapped(shown(text), cells)]
        self._draw()

    def _draw(self) -> None:
        if not self.picture.is_attached:
            return
        last = len(self._rows) - 1 if self._pattern else self._last_top  # a match may be on the last line
        self._top = max(0, min(last, self._last_top if self._is_at_end else self._top))
        rows = self._rows[self._top : self._top + self._room]
        lines: list[Line] = [((padded(f" {self._title}", self.size.width), Style.TITLE),)]
        lines += [self._with_matches(row) for row in rows]
        lines += [()] * (self._room - len(rows))
        keys: Line = tuple(span for key, what in KEYS for span in ((f" {key}", Style.KEY), (f" {what} ", Style.DIM)))
        lines.append(((f" {cut(self._note, self.size.width - 1)}", Style.ODD),) if self._note else keys)
        self.picture.show(tuple(lines))

    def _with_matches(self, row: str) -> Line:
        pattern, folded = self._pattern.casefold(), row.casefold()
        spans, place = [(" ", Style.PLAIN)], 0
        while pattern and len(folded) == len(row) and (found := folded.find(pattern, place)) >= 0:
            end = found + len(pattern)
            spans += [(row[place:found], Style.PLAIN), (row[found:end], Style.ODD)]
            place = end
        return (*spans, (row[place:], Style.PLAIN))


def _wrapped(text: str, cells: int) -> list[str]:
    """Return the rows of a line of text; each wide character takes two cells."""
    rows = []
    while width(text) > cells:
        part = text[:cells] if text.isascii() else cut(text, cells + 1)[:-1]
        rows.append(part or text[:1])
        text = text[len(rows[-1]) :]
    return [*rows, text]

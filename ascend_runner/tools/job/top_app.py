"""The screen of `ascend-job top` on this terminal: a thin application of textual.

The frames come as lines of styled text, so no log is ever parsed as markup. It never leaves the screen: what would need
a pager is a view of its own.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing, suppress
from functools import partial
from typing import ClassVar, Final

import attrs
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import Input

from ascend_runner.errors import AscendRunnerError
from ascend_runner.node import executables
from ascend_runner.text import lines_of
from ascend_runner.tools.job import jobs, processes, screens
from ascend_runner.tools.job.jobs import FoundJob
from ascend_runner.tools.job.top import Observer
from ascend_runner.tools.job.top_frame import HELP, NO_OUTPUT, Frame, JobView, Screen, frame, matches
from ascend_runner.tools.job.top_picture import Picture
from ascend_runner.tools.job.top_text import Prompt, Reader, TextView

INTERVAL: Final = 1.0  # seconds
PAGE: Final = 10  # ranks
MOST_OF_A_LOG: Final = 1 << 20  # bytes at its end that a view can scroll back to


Look = Callable[[Collection[int]], JobView]


@attrs.frozen(kw_only=True)
class Texts:
    """What the views over the table show, as lines; `log` is that of a rank, and `stacks` takes its time."""

    log: Callable[[int], Sequence[str]]
    stacks: Callable[[], Sequence[str]]
    events: Callable[[], Sequence[str]]


class Seen(Message):
    """A new view of the job."""

    def __init__(self, view: JobView) -> None:
        super().__init__()
        self.view = view


class Top(App[None]):
    """Shows a job until the user quits."""

    ENABLE_COMMAND_PALETTE = False
    CSS = "Screen { background: ansi_default; color: ansi_default; overflow: hidden; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,ctrl+c,f10", "quit", "quit"),
        Binding("up,k", "move(-1)", "up"),
        Binding("down,j", "move(1)", "down"),
        Binding("pageup", f"move({-PAGE})", "up"),
        Binding("pagedown,space", f"move({PAGE})", "down"),
        Binding("home,g", "move(-1000000)", "first"),
        Binding("end,G", "move(1000000)", "last"),
        Binding("enter,l", "log", "log"),
        Binding("s", "stacks", "stacks"),
        Binding("e", "events", "events"),
        Binding("a", "all", "all ranks"),
        Binding("less_than_sign", "sort(-1)", "sort"),
        Binding("greater_than_sign", "sort(1)", "sort"),
        Binding("slash,f3", "search", "search"),
        Binding("n", "find(1)", "next"),
        Binding("N", "find(-1)", "previous"),
        Binding("question_mark,h,f1", "help", "help"),
    ]

    def __init__(self, look: Look, texts: Texts, interval: float = INTERVAL) -> None:
        """`look` is called in a thread with the ranks that are shown, and once before the first frame."""
        super().__init__(ansi_color=True)
        self._texts, self._seconds = texts, interval
        self._reader = Reader(lambda: Seen(look(self._frame.ranks)), self.post_message, interval)
        self.picture = Picture()
        self._view: JobView | None = None
        self._frame = Frame((), (), None)
        self._chosen: int | None = None  # by the user; until then the cursor stays on the first rank
        self._shows_all = False
        self._sort = ""
        self._pattern = ""
        self._note = ""

    def compose(self) -> ComposeResult:
        """Fill the screen."""
        yield self.picture

    def on_mount(self) -> None:
        """Begin to observe the job. SIGTERM quits, so that the terminal is restored."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self.exit)
        self._reader.start()

    def on_unmount(self) -> None:
        """Stop observing the job."""
        self._reader.stop()

    def on_resize(self) -> None:
        """Draw again."""
        self._draw()

    def on_seen(self, message: Seen) -> None:
        """Show a new view of the job."""
        self._reader.note_handled()
        self._view = message.view
        self._draw()

    def on_input_submitted(self, message: Input.Submitted) -> None:
        """Move the cursor to the first rank that has what the user has typed."""
        self._pattern = Prompt.take(message)
        self.action_find(0)

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
            self._choose(ranks[max(0, min(len(ranks) - 1, place))])

    def action_all(self) -> None:
        """Show all ranks, or only the outliers."""
        self._note, self._shows_all = "", not self._shows_all
        self._draw()

    def action_sort(self, step: int) -> None:
        """Sort by the next or the previous column; before the first one, the outliers come first."""
        heads = ("", *self._frame.heads)
        place = heads.index(self._sort) if self._sort in heads else 0
        self._note, self._sort = "", heads[(place + step) % len(heads)]
        self._draw()

    async def action_search(self) -> None:
        """Ask what to search for."""
        await Prompt.ask(self.screen)

    def action_find(self, step: int) -> None:
        """Move the cursor to the next or the previous rank that has the text in its row."""
        ranks = self._frame.ranks
        if not (self._view and self._pattern and ranks):
            return
        found = {one.rank_id for one in self._view.ranks if matches(one, self._pattern)}
        at = ranks.index(self._frame.selected) if self._frame.selected in ranks else 0
        places = [(at + offset * (step or 1)) % len(ranks) for offset in range(abs(step), len(ranks) + abs(step))]
        place = next((place for place in places if ranks[place] in found), None)
        self._note = f"no rank with {self._pattern!r} in its row" if place is None else ""
        self._choose(self._chosen if place is None else ranks[place])

    def action_log(self) -> None:
        """Follow the log of the rank at the cursor."""
        rank_id = self._frame.selected
        if rank_id is not None:
            read = partial(self._texts.log, rank_id)
            self.push_screen(TextView(f"log of rank {rank_id}", read, interval=self._seconds))

    def action_stacks(self) -> None:
        """Compare the stacks of the ranks of this node."""
        first = (f"comparing the stacks for up to {processes.COMPARED:g} s ...",)
        self.push_screen(TextView("stacks", self._texts.stacks, first=first))

    def action_events(self) -> None:
        """Show the events of the job."""
        self.push_screen(TextView("events", self._texts.events, interval=self._seconds))

    def action_help(self) -> None:
        """Explain the keys."""
        self.push_screen(TextView("keys", lambda: HELP, first=HELP))

    def _choose(self, rank_id: int | None) -> None:
        self._chosen = rank_id
        self._draw()

    def _draw(self) -> None:
        if self._view is None or not self.picture.is_attached:
            return
        size = self.size
        screen = Screen(
            columns=size.width,
            rows=size.height,
            selected=self._chosen,
            shows_all=self._shows_all,
            sort=self._sort,
            note=self._note,
        )
        self._frame = frame(self._view, screen)
        self.picture.show(self._frame.lines)


def end_of_log(path: str) -> Sequence[str]:
    """Return the last lines of a log; of a line that was drawn again, the last state."""
    if not path:
        return ["the log of this rank cannot be found"]
    end = jobs.read(path, MOST_OF_A_LOG)
    return lines_of(end.rstrip(b"\n")) if end else [NO_OUTPUT]


def _stacks(job: FoundJob, environ: Mapping[str, str]) -> Sequence[str]:
    found = processes.leaders(jobs.take(job))
    if not found:
        return [f"no rank of {job.name} is running on this machine"]
    py_spy = executables.find_py_spy(environ.get("PATH", os.defpath))
    return processes.text(found, py_spy, processes.COMPARED).splitlines()


def _events(job: FoundJob) -> Sequence[str]:
    try:
        return [*screens.event_lines(job, follows=False)]
    except AscendRunnerError as error:
        return [str(error)]


LOWEST_PRIORITY: Final = 19  # nice(1): the ranks need the processor more


def show(job: FoundJob, environ: Mapping[str, str]) -> None:
    """Show a job until the user quits. The first frame is drawn at the usual priority, so that it appears soon."""
    looks = itertools.count()
    with closing(Observer(job, environ)) as observer:

        def look(shown: Collection[int]) -> JobView:
            if next(looks) == 1:
                _lower_priority()
            return observer.look(shown)

        texts = Texts(
            log=lambda rank_id: end_of_log(observer.log_path(rank_id)),
            stacks=lambda: _stacks(job, environ),
            events=lambda: _events(job),
        )
        Top(look, texts).run()


def _lower_priority() -> None:
    """Lower the priority of all threads: setpriority(2) changes only one thread's."""
    for tid in os.listdir("/proc/self/task"):
        with suppress(ProcessLookupError):  # it has just ended
            os.setpriority(os.PRIO_PROCESS, int(tid), LOWEST_PRIORITY)

"""The screen of `ascend-job top` on this terminal: a thin application of textual, and the pager beside it.

The frames come as lines of styled text, so no log is ever parsed as markup. Only lines that have changed are drawn.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import shlex
import signal
import subprocess
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing, suppress
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

from ascend_runner import programs
from ascend_runner.errors import AscendRunnerError, reason
from ascend_runner.node import bounded, executables
from ascend_runner.text import printable
from ascend_runner.tools.job import jobs, processes, screens
from ascend_runner.tools.job.jobs import FoundJob
from ascend_runner.tools.job.top import Observer
from ascend_runner.tools.job.top_frame import Frame, JobView, Line, Screen, Style, frame

LESS: Final = "less"
# No question before a log with control characters, which are shown as "^[" even if the variable LESS has -r or -R;
# no preprocessor, which cannot follow a file.
LESS_OPTIONS: Final = ("-f", "-+r", "-+R", "-L")


@attrs.frozen(kw_only=True)
class Pager:
    """Shows texts about a job in the pager, or on the terminal if there is none."""

    job: FoundJob
    environ: Mapping[str, str]
    log_path: Callable[[int], str]

    def log(self, rank_id: int) -> str:
        """Follow the log of a rank."""
        path = self.log_path(rank_id)
        if not path:
            return f"cannot find the log of rank {rank_id}"
        command = self._command()
        if not command:  # with the same escapes as `ascend-job logs`
            follow = ("logs", self.job.log_dir, "-f", "-r", str(rank_id))
            return _run((*programs.argv(programs.JOB), *follow))
        options = ("+F",) if os.path.basename(command[0]) == LESS else ()
        return _run((*command, *options, path))

    def stacks(self, _rank_id: int) -> str:
        """Show the stacks of all ranks of this node."""
        found = processes.leaders(jobs.take(self.job))
        if not found:
            return f"no rank of {self.job.name} is running on this machine"
        note = f"comparing the stacks for up to {processes.COMPARED:g} s ..."
        print(note, flush=True)  # noqa: T201  on the normal screen, which the user sees meanwhile
        py_spy = executables.find_py_spy(self.environ.get("PATH", os.defpath))
        return self._show(processes.text(found, py_spy, processes.COMPARED))

    def events(self, _rank_id: int) -> str:
        """Show the events of the job."""
        return self._show("".join(f"{line}\n" for line in screens.event_lines(self.job, follows=False)))

    def _show(self, text: str) -> str:
        command = self._command()
        if command:
            return _run(command, text)
        print(text)  # noqa: T201  as above
        with suppress(EOFError, KeyboardInterrupt):
            input("press Enter to return ")
        return ""

    def _command(self) -> Sequence[str]:
        """Return the command of the user's pager, or of less, or () if neither is installed."""
        search_path = self.environ.get("PATH", os.defpath)
        words = [LESS]
        with suppress(ValueError):  # an unclosed quotation
            words = shlex.split(self.environ.get("PAGER", "")) or words
        for command in (words, [LESS]):
            try:
                found = executables.find_executable(command[0], cwd=os.getcwd(), search_path=search_path)
            except AscendRunnerError:
                continue
            return (found, *command[1:], *(LESS_OPTIONS if os.path.basename(found) == LESS else ()))
        return ()


def _run(command: Sequence[str], text: str = "") -> str:
    """Run a command on the terminal until the user leaves it, or SIGTERM ends both; return a note if it fails."""
    stops: list[int] = []
    started: list[subprocess.Popen[bytes]] = []

    def stop(signum: int, _frame: object) -> None:
        stops.append(signum)
        for popen in started:
            popen.terminate()

    # Ctrl-C is for the command, which does not inherit a handler.
    handlers = {
        signum: signal.signal(signum, act) for signum, act in ((signal.SIGINT, _ignore), (signal.SIGTERM, stop))
    }
    try:
        with subprocess.Popen(command, stdin=subprocess.PIPE if text else None) as popen:
            started.append(popen)
            if stops:  # before it was started
                popen.terminate()
            popen.communicate(text.encode(errors="replace") if text else None)
    except OSError as error:
        return f"cannot start {printable(command[0])}: {reason(error)}"
    finally:
        for signum, handler in handlers.items():
            signal.signal(signum, handler)
    return f"{printable(command[0])} failed (exit status {popen.returncode})" if popen.returncode > 0 else ""


def _ignore(_signum: int, _frame: object) -> None:
    """Do nothing at a signal."""


INTERVAL: Final = 1.0  # seconds
PAGE: Final = 10  # ranks
# The colors are the terminal's, so that they suit its background.
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
        """Show all ranks, or only the outliers."""
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


LOWEST_PRIORITY: Final = 19  # nice(1): the ranks need the processor more


def show(job: FoundJob, environ: Mapping[str, str]) -> None:
    """Show a job until the user quits. The first frame is drawn at the usual priority, so that it appears soon."""
    looks = itertools.count()
    with closing(Observer(job, environ)) as observer:

        def look(shown: Collection[int]) -> JobView:
            if next(looks) == 1:
                _lower_priority()
            return observer.look(shown)

        pager = Pager(job=job, environ=environ, log_path=observer.log_path)
        Top(look, Actions(log=pager.log, stacks=pager.stacks, events=pager.events)).run()


def _lower_priority() -> None:
    """Lower the priority of all threads: setpriority(2) changes only one thread's."""
    for tid in os.listdir("/proc/self/task"):
        with suppress(ProcessLookupError):  # it has just ended
            os.setpriority(os.PRIO_PROCESS, int(tid), LOWEST_PRIORITY)

"""The screen of `ascend-job top`, driven through textual's pilot."""

from __future__ import annotations

import asyncio
import fcntl
import signal
import sys
import termios
import threading
from collections.abc import Awaitable, Callable, Collection, Iterator
from functools import partial
from pathlib import Path

import attrs
import pytest
from textual.geometry import Region
from textual.pilot import Pilot
from textual.widget import Widget

from ascend_runner.tools.job.top_app import Texts, Top, end_of_log
from ascend_runner.tools.job.top_frame import JobView, State
from ascend_runner.tools.job.top_picture import Picture
from tests.helpers.live_views import EIGHT, SIXTY_FOUR, THOUSAND, rank
from tests.helpers.waiting import LIMIT, wait_until

Check = Callable[[Pilot[None]], Awaitable[None]]
TEXTS = ["[bold red]x[/]", "[link=file:///etc]x", "[/]", "\\[", "{x}", "段错误" * 30, "e\u0301" * 99]
FAST = 0.05  # seconds between two looks; more often, and textual's pilot waits a second for an idle process


class Shown(Top):
    """The application with a job that a test changes; `texts` has what the views show, and `read` what was read."""

    def __init__(self, job: JobView) -> None:
        self.read: list[tuple[str, int]] = []
        self.lines_of_log: list[str] = ["first", "[bold]second[/]", "last"]
        self.asked: Collection[int] = ()
        self.looks = self.reads = 0
        self.job = job

        def read(name: str, rank_id: int = -1) -> list[str]:
            self.reads += 1
            if (name, rank_id) not in self.read[-1:]:
                self.read.append((name, rank_id))
            return [*self.lines_of_log] if name == "log" else [f"the {name}"]

        texts = Texts(log=partial(read, "log"), stacks=partial(read, "stacks"), events=partial(read, "events"))
        super().__init__(self.look, texts, FAST)

    def look(self, shown: Collection[int]) -> JobView:
        """Return the job."""
        self.asked = shown
        self.looks += 1
        return self.job

    @property
    def lines(self) -> list[str]:
        """The lines on the screen."""
        picture = self.screen.query_one(Picture)
        return [picture.render_line(y).text for y in range(picture.size.height)]


@pytest.fixture(autouse=True)
def event_loop() -> Iterator[None]:
    """Set an event loop: before Python 3.10, the locks of an application belong to that of its creation."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    asyncio.set_event_loop(None)
    loop.close()


def run(app: Shown, check: Check, size: tuple[int, int] = (140, 24)) -> None:
    """Run the application until it has been checked."""

    async def main() -> None:
        async with app.run_test(size=size) as pilot:
            await until(pilot, lambda: app.is_drawn)
            await check(pilot)

    asyncio.get_event_loop().run_until_complete(asyncio.wait_for(main(), LIMIT))


async def until(pilot: Pilot[None], is_true: Callable[[], object]) -> None:
    """Wait until a condition holds."""
    while not is_true():
        await pilot.pause(FAST)


def test_views_of_the_selected_rank() -> None:
    """The log is that of the rank at the cursor, which begins at the odd one; q and Escape lead back."""
    app = Shown(EIGHT)

    async def check(pilot: Pilot[None]) -> None:
        for keys, title in (
            (("enter",), "log of rank 5"),
            (("down", "s"), "stacks"),
            (("down", "down", "up", "e"), "events"),
            (("pagedown", "l"), "log of rank 7"),
            (("pageup", "enter"), "log of rank 5"),
            (("end", "home", "enter"), "log of rank 5"),
            (("question_mark",), "keys"),
            (("h",), "keys"),
            (("f1",), "keys"),
        ):
            await pilot.press(*keys)
            await until(pilot, lambda title=title: title in app.lines[0])  # type: ignore[misc]  # a default value
            await pilot.press("escape" if title == "stacks" else "q")
            await until(pilot, lambda: "ranks: " in app.lines[2])

    run(app, check)

    assert [("log", 5), ("stacks", -1), ("events", -1), ("log", 7), ("log", 5)] == app.read  # the last one twice


def test_view_without_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the limit of processes, a view says so, and the application goes on."""
    app = Shown(EIGHT)

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def check(pilot: Pilot[None]) -> None:
        monkeypatch.setattr(threading.Thread, "start", refuse)  # RLIMIT_NPROC does not bind root
        await pilot.press("enter")
        await until(pilot, lambda: "cannot start a thread" in app.lines[1])
        await pilot.press("q", "question_mark")
        await until(pilot, lambda: "choose a rank" in app.lines[1])

    run(app, check)


def test_log_is_followed() -> None:
    """New lines appear at the end, unless the user has scrolled back; it is no markup."""
    app = Shown(EIGHT)
    app.lines_of_log = [f"line {number}" for number in range(100)]

    async def check(pilot: Pilot[None]) -> None:
        await pilot.press("enter")
        await until(pilot, lambda: "line 99" in app.lines[-2])
        app.lines_of_log.append("[bold red]x[/]")
        await until(pilot, lambda: "[bold red]x[/]" in app.lines[-2])
        await pilot.press("home")
        app.lines_of_log.append("later")
        await until(pilot, lambda: "line 0" in app.lines[1])
        await pilot.press("end")
        await until(pilot, lambda: "later" in app.lines[-2])
        for keys, line in ((("home", "pagedown"), "line 21"), (("pagedown", "pageup"), "line 21")):
            await pilot.press(*keys)
            await until(pilot, lambda line=line: line in app.lines[1])  # type: ignore[misc]  # a default value

    run(app, check)


def test_log_without_output(tmp_path: Path) -> None:
    """It says so; of a line that was drawn again, the last state is shown."""
    log = tmp_path / "log"
    shown = []
    for content in (b"", b"1%\r2%\nend\r\n"):
        log.write_bytes(content)
        shown.append([*end_of_log(str(log))])

    assert [["no output yet"], ["2%", "end"]] == shown
    assert ["the log of this rank cannot be found"] == end_of_log("")


def test_terminal_that_does_not_read() -> None:
    """While the event loop waits for the terminal, the pipe that wakes it does not fill: signals need it."""
    app = Shown(EIGHT)
    unread = []

    def has_counted(looks: int, reads: int) -> bool:
        return app.looks >= looks and app.reads >= reads

    async def check(pilot: Pilot[None]) -> None:
        await pilot.press("enter")
        await until(pilot, lambda: app.lines[0].startswith(" log of"))
        for count in (3, 20):  # the loop is held up
            wait_until(partial(has_counted, app.looks + count, app.reads + count))
            unread.append(_in_wakeup_pipe())

    run(app, check)

    first, later = unread
    assert 0 < first == later


def _in_wakeup_pipe() -> int:
    """Return how much memory the bytes take that nobody has read yet from the pipe that wakes the event loop."""
    wakeup = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(wakeup)
    return int.from_bytes(fcntl.ioctl(wakeup, termios.TIOCOUTQ, bytes(4)), sys.byteorder)


def test_search_in_a_text() -> None:
    """The view goes to each match, and says when there is none."""
    app = Shown(EIGHT)
    app.lines_of_log = [f"line {number}" for number in range(100)]

    async def check(pilot: Pilot[None]) -> None:
        await pilot.press("enter", "home", "slash", *"NE 4", "enter")
        await until(pilot, lambda: "line 4" in app.lines[1])
        await pilot.press("n")
        await until(pilot, lambda: "line 40" in app.lines[1])
        await pilot.press("N")
        await until(pilot, lambda: app.lines[1].split() == ["line", "4"])
        await pilot.press("slash", *"xyz", "enter")
        await until(pilot, lambda: "no further match of 'xyz'" in app.lines[-1])
        await pilot.press("slash", "a", "escape", "q")
        await until(pilot, lambda: "ranks: " in app.lines[2])

    run(app, check)


def test_search_in_a_text_is_none_for_a_rank() -> None:
    """The cursor of the table stays where it was, although a row has the text as well."""
    app = Shown(EIGHT)

    async def check(pilot: Pilot[None]) -> None:
        await pilot.press("enter")
        await until(pilot, lambda: "log of rank 5" in app.lines[0])
        await pilot.press("slash", *"rank 3", "enter", "q")
        await until(pilot, lambda: "ranks: " in app.lines[2])
        await pilot.press("enter")
        await until(pilot, lambda: "log of rank " in app.lines[0])
        assert "log of rank 5" in app.lines[0]

    run(app, check)


def test_search_for_a_rank() -> None:
    """The cursor goes to the next rank with the text in its row."""
    app = Shown(EIGHT)

    async def check(pilot: Pilot[None]) -> None:
        await pilot.press("slash", *"rank 3", "enter", "enter")
        await until(pilot, lambda: "log of rank 3" in app.lines[0])
        await pilot.press("q", "slash", *"nothing", "enter")
        await until(pilot, lambda: "no rank with 'nothing' in its row" in app.lines[-1])

    run(app, check)


def test_sort() -> None:
    """`>` sorts by the next column, `<` by the previous one, and before the first column outliers come first."""
    app = Shown(EIGHT)

    def first() -> str:
        return app.lines[6].removeprefix("▸").split()[0]  # below the heads of the columns

    async def check(pilot: Pilot[None]) -> None:
        assert "5" == first()
        await pilot.press("home", ">")
        await until(pilot, lambda: "0" == first())
        await pilot.press("<")
        await until(pilot, lambda: "5" == first())

    run(app, check)


@pytest.mark.parametrize("key", ["q", "ctrl+c"])
def test_quit(key: str) -> None:
    """The application ends, and the thread that looks at the job with it."""
    app = Shown(EIGHT)

    async def check(pilot: Pilot[None]) -> None:
        await pilot.press(key)
        await until(pilot, lambda: not app.is_running)

    run(app, check)

    assert 0 == app.return_code


def test_resize() -> None:
    """The frame has the size of the terminal after each change."""
    app = Shown(EIGHT)

    async def check(pilot: Pilot[None]) -> None:
        for columns, rows in ((80, 24), (300, 50), (20, 5), (1, 1), (140, 24)):
            await pilot.resize_terminal(columns, rows)
            await until(pilot, lambda rows=rows: rows == len(app.lines))  # type: ignore[misc]  # a default value
            assert {columns} == {len(line) for line in app.lines}

    run(app, check)


def test_cursor_follows_its_rank() -> None:
    """The cursor stays on the rank that the user has chosen, wherever that is shown."""
    app = Shown(EIGHT)

    async def check(pilot: Pilot[None]) -> None:
        await pilot.press("down", "down")
        app.job = attrs.evolve(EIGHT, ranks=(rank(0), rank(1, state=State.FAILED, ending="failed (exit status 1)")))
        await until(pilot, lambda: "failed (exit status 1)" in app.lines[6])
        await pilot.press("enter")
        await until(pilot, lambda: "log of rank 1" in app.lines[0])

    run(app, check)


def test_all_ranks() -> None:
    """`a` shows all ranks and, pressed again, those that differ; only what is shown is read."""
    app = Shown(SIXTY_FOUR)

    async def check(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: len(app.asked) == 4)
        await pilot.press("a")
        await until(pilot, lambda: len(app.asked) == 64)
        await pilot.press("a")
        await until(pilot, lambda: len(app.asked) == 4)

    run(app, check)


def test_job_that_ends() -> None:
    """The end of the job is shown, until the user quits."""
    app = Shown(EIGHT)

    async def check(pilot: Pilot[None]) -> None:
        ended = tuple(attrs.evolve(one, state=State.SUCCEEDED) for one in EIGHT.ranks)
        app.job = attrs.evolve(EIGHT, headline="succeeded after 2 h 31 min", ranks=ended, is_over=True)
        await until(pilot, lambda: "succeeded after" in app.lines[0])
        assert "8 succeeded" in app.lines[2]

    run(app, check)


def test_no_ranks_yet() -> None:
    """Keys do nothing if there is no rank."""
    app = Shown(attrs.evolve(EIGHT, ranks=()))

    async def check(pilot: Pilot[None]) -> None:
        await pilot.press("enter", "up", "down", "a", "greater_than_sign", "n")

    run(app, check)

    assert [] == app.read


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_texts_are_shown_as_they_are(text: str) -> None:
    """Nothing in a log or a name is markup, and lines keep their width."""
    app = Shown(attrs.evolve(EIGHT, name=text, ranks=tuple(rank(number, last_lines=(text,)) for number in range(3))))

    async def check(_pilot: Pilot[None]) -> None:
        assert text[:10] in app.lines[0]
        assert all(text[:10] in line for line in app.lines[6:9])

    run(app, check)


def test_map() -> None:
    """A job of 1,024 ranks is shown, and its odd ranks can be selected."""
    app = Shown(THOUSAND)

    async def check(pilot: Pilot[None]) -> None:
        await pilot.press("down", "enter")
        await until(pilot, lambda: "log of rank 224" in app.lines[0])

    run(app, check, size=(80, 24))


def test_only_changed_lines_are_drawn() -> None:
    """A line that is as it was is not drawn again."""
    app = Shown(EIGHT)
    drawn: list[int] = []

    async def check(pilot: Pilot[None]) -> None:
        await pilot.pause()
        refresh = app.picture.refresh

        def counted(*regions: Region, **options: bool) -> Widget:
            drawn.extend(region.y for region in regions)
            return refresh(*regions, **options)

        app.picture.refresh = counted  # type: ignore[method-assign,assignment]  # takes fewer options
        app.job = attrs.evolve(EIGHT, headline="stopping")
        await until(pilot, lambda: "stopping" in app.lines[0])

    run(app, check)

    assert {0} == {*drawn}

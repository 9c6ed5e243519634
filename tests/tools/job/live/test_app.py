"""The screen of `ascend-job top`, driven through textual's pilot."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager

import attrs
import pytest
from textual.geometry import Region
from textual.pilot import Pilot
from textual.widget import Widget

from ascend_runner.tools.job.top_app import Actions, Top
from ascend_runner.tools.job.top_frame import JobView, State
from tests.helpers.live_views import EIGHT, SIXTY_FOUR, THOUSAND, rank
from tests.helpers.waiting import LIMIT

Check = Callable[[Pilot[None]], Awaitable[None]]
TEXTS = ["[bold red]x[/]", "[link=file:///etc]x", "[/]", "\\[", "{x}", "段错误" * 30, "e\u0301" * 99]
FAST = 0.05  # seconds between two looks; more often, and textual's pilot waits a second for an idle process


class Shown(Top):
    """The application with a job that a test changes; `left` has what was shown outside of it."""

    def __init__(self, job: JobView) -> None:
        self.left: list[tuple[str, int]] = []
        self.asked: Collection[int] = ()
        self.job = job

        def act(name: str) -> Callable[[int], str]:
            def note(rank_id: int) -> str:
                self.left.append((name, rank_id))
                return "came back"

            return note

        super().__init__(self.look, Actions(log=act("log"), stacks=act("stacks"), events=act("events")), FAST)

    def look(self, shown: Collection[int]) -> JobView:
        """Return the job."""
        self.asked = shown
        return self.job

    @contextmanager
    def suspend(self) -> Iterator[None]:
        """Leave the screen, which needs a real terminal."""
        yield

    @property
    def lines(self) -> list[str]:
        """The lines on the screen."""
        picture = self.picture
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


def test_keys_of_the_selected_rank() -> None:
    """Enter, s and e are about the rank at the cursor, which begins at the odd one."""
    app = Shown(EIGHT)

    async def check(pilot: Pilot[None]) -> None:
        await pilot.press("enter", "down", "s", "down", "down", "up", "e", "pagedown", "enter", "pageup", "enter")

    run(app, check)

    assert [("log", 5), ("stacks", 0), ("events", 1), ("log", 7), ("log", 5)] == app.left


def test_note() -> None:
    """What comes back from outside is shown instead of the keys, until the next one."""
    app = Shown(EIGHT)

    async def check(pilot: Pilot[None]) -> None:
        await pilot.press("enter")
        await until(pilot, lambda: "came back" in app.lines[-1])
        await pilot.press("down")
        await until(pilot, lambda: "quit" in app.lines[-1])

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

    run(app, check)

    assert [("log", 1)] == app.left


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
        await pilot.press("enter", "s", "e", "up", "down", "a")

    run(app, check)

    assert [] == app.left


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

    run(app, check, size=(80, 24))

    assert [("log", 224)] == app.left


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

"""Lines of a log for a terminal: whole, without control characters, chosen by a pattern."""

from __future__ import annotations

import re

import pytest

from ascend_runner.tools.job.logs import LONGEST, LineFilter, LineReader

HOSTILE = "\x1b[2J\x1b]0;title\x07\x9b31m\x08\x00\u202e\ud800\r\x0b\x85\u2028end\n".encode("utf-8", "surrogatepass")


def test_lines_are_whole() -> None:
    """A line is shown when it is complete, however its bytes come."""
    reader = LineReader()
    shown = [[*reader.feed(data)] for data in (b"a", b"b\nc", b"\n\n", "\u4e2d".encode()[:1], "\u4e2d".encode()[1:])]

    assert [[], ["ab"], ["c", ""], [], []] == shown
    assert ["\u4e2d"] == [*reader.state()]


def test_progress_bar() -> None:
    """A line that is drawn again is shown in its last state, and before it ends as often as is asked for."""
    reader = LineReader()
    first = [*reader.feed(b"10%\r20%\r")], reader.has_new_state, [*reader.state()], reader.has_new_state
    second = [*reader.feed(b"30%")], reader.has_new_state, [*reader.feed(b"\r\n")], reader.has_new_state

    assert ([], True, ["20%"], False) == first
    assert ([], True, ["30%"], False) == second


def test_state_is_shown_once() -> None:
    """An unfinished line that was shown is not shown again before it changes, not even at the end of the job."""
    reader = LineReader()

    assert [] == [*reader.feed(b"10%\r20%")]
    assert [["20%"], []] == [[*reader.state()], [*reader.state()]]


def test_nothing_controls_the_terminal() -> None:
    """No control character, mark of direction or separator of lines passes."""
    (line,) = LineReader().feed(HOSTILE)

    assert line.isprintable()
    assert line.endswith("end")


@pytest.mark.parametrize("size", [LONGEST + 1, 5 * LONGEST])
def test_very_long_line(size: int) -> None:
    """It is shown in parts, without a gap."""
    reader, step = LineReader(), 1 << 18
    parts = [line for at in range(0, size, step) for line in reader.feed(b"x" * min(step, size - at))]
    parts += reader.state()

    assert size == sum(map(len, parts))
    assert LONGEST >= max(map(len, parts))


@pytest.mark.parametrize(
    ("line_filter", "expected"),
    [
        (LineFilter(), ["1", "2", "13"]),
        (LineFilter(lines=2), ["2", "13"]),
        (LineFilter(lines=0), []),
        (LineFilter(pattern=re.compile("1")), ["1", "13"]),
        (LineFilter(pattern=re.compile("1"), lines=1), ["13"]),
    ],
)
def test_chosen_lines(line_filter: LineFilter, expected: list[str]) -> None:
    """The last lines are those of the lines that match."""
    assert expected == [*line_filter.chosen(iter(["1", "2", "13"]))]

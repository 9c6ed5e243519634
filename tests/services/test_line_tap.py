"""Lines about steps are found in the output of ranks, however it is cut, and cost little."""

from __future__ import annotations

import pytest

from ascend_runner.services.pace import BURST, MOST_LINES, SHORTEST_BURST, LineTap
from ascend_runner.training.steps import LONGEST


def tap(share: float = 1.0) -> tuple[LineTap, list[bytes]]:
    """Return a tap for two texts, and the lines that it finds."""
    lines: list[bytes] = []
    return LineTap((b"took ", b"%|"), lines.append, share), lines


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_lines_in_pieces(size: int) -> None:
    """A line is whole, whatever pieces it comes in; states of a progress bar are lines, too."""
    data = b"nothing\nstep 1 took 2\n\nx\r\n 1%| 1/9\r 2%| 2/9\rtook 3\r\nend took "
    found, lines = tap()
    for start in range(0, len(data), size):
        found(data[start : start + size])

    assert [b"step 1 took 2", b" 1%| 1/9", b" 2%| 2/9", b"took 3"] == lines


def test_long_line() -> None:
    """Of a line that is too long, the begin is read, and the memory for it is bounded."""
    found, lines = tap()
    found(b"took 7")
    for _ in range(10):
        found(b"." * LONGEST)
    found(b"\nx\n")

    assert [b"took 7".ljust(LONGEST, b".")] == lines


def test_flood() -> None:
    """Of output that comes faster than that of a training, only a part is searched, from the begin of a line on."""
    found, lines = tap()
    flood = b"took 7\n" * BURST
    found(flood)
    found(flood)

    assert lines
    assert {b"took 7"} == set(lines)
    assert len(lines) <= 2 * MOST_LINES


def test_newest_lines_of_a_read() -> None:
    """Of many lines that are read at once the last ones are passed on, in their order: they have the current step."""
    found, lines = tap()
    found(b"".join(b"took %d\n" % number for number in range(3 * MOST_LINES)))

    assert [b"took %d" % number for number in range(2 * MOST_LINES, 3 * MOST_LINES)] == lines


def test_many_ranks_share_the_limits() -> None:
    """A rank has at least as much as a few lines need."""
    found, lines = tap(share=1e-6)
    found(b"x" * (SHORTEST_BURST - 20) + b"\ntook 7")
    found(b"\n")

    assert [b"took 7"] == lines

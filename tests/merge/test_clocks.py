"""How far the clocks of two nodes differ, and what was certainly before what."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

import pytest

from ascend_runner.merge import clocks
from ascend_runner.merge.clocks import DISK, STEPS, SYNCHRONIZED, TICK
from ascend_runner.merge.model import Clock, Node

UNKNOWN = Clock()


def node(
    number: int, clock: Clock = UNKNOWN, steps: Mapping[int, float] | None = None, log_end: float | None = None
) -> Node:
    """Return a node whose part of the job ended at 1,000 s by its clock."""
    return Node(number=number, ended=1000.0, clock=clock, steps=steps or {}, log_end=log_end)


def logged(ahead: float) -> dict[int, float]:
    """Return the times of steps that take 2 s, by a clock that is ahead."""
    return {step: 900.0 + 2 * step + ahead for step in range(10)}


def disk(offset: float) -> Clock:
    """Return a clock that is behind that of the disk."""
    return Clock(disk_offset=offset, round_trip=0.1)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (node(0), node(1), (-inf, inf, "")),
        (node(0, Clock(max_error=0.2)), node(1, Clock(max_error=0.3)), (-0.5, 0.5, SYNCHRONIZED)),
        (node(0, Clock(max_error=0.2)), node(1), (-inf, inf, "")),
        (node(0, disk(-40.0)), node(1, disk(1.0)), (41 - 0.2 - 2 * TICK, 41 + 0.2 + 2 * TICK, DISK)),
        (node(0, steps=logged(41.0)), node(1, steps=logged(0.0)), (38.0, 44.0, STEPS)),
        (node(0, steps=logged(41.0)), node(1, steps={3: 906.0}), (-inf, inf, "")),  # one line decides nothing
    ],
)
def test_difference(first: Node, second: Node, expected: tuple[float, float, str]) -> None:
    """A difference is an interval, with its source; it has the opposite sign the other way round."""
    found, opposite = clocks.difference(first, second), clocks.difference(second, first)

    assert pytest.approx(expected[:2]) == (found.low, found.high)
    assert pytest.approx((-expected[1], -expected[0])) == (opposite.low, opposite.high)
    assert {expected[2]} == {found.source, opposite.source}


def test_contradiction() -> None:
    """Of two sources that exclude each other the narrower one counts; of others, what they have in common."""
    wrong = node(0, Clock(max_error=0.2), logged(41.0)), node(1, Clock(max_error=0.2), logged(0.0))
    right = node(0, Clock(max_error=4.0), logged(5.0)), node(1, Clock(max_error=4.0), logged(0.0))

    assert (-0.4, 0.4) == (clocks.difference(*wrong).low, clocks.difference(*wrong).high)
    assert (STEPS, "") == (clocks.contradiction(*wrong), clocks.contradiction(*right))
    assert (2.0, 8.0) == (clocks.difference(*right).low, clocks.difference(*right).high)


@pytest.mark.parametrize(
    ("at", "later", "expected"),
    [(990.0, 991.0, True), (990.0, 990.3, False), (990.0, 980.0, False), (None, 991.0, False)],
)
def test_order(at: float | None, later: float, expected: object) -> None:
    """Something is before something else only if the whole interval says so."""
    nodes = node(0, Clock(max_error=0.2)), node(1, Clock(max_error=0.3))

    assert expected == clocks.is_before(nodes[0], at, nodes[1], later)


def test_drift() -> None:
    """The longer before the comparison, the less is certain: a clock drifts."""
    nodes = node(0, Clock(max_error=0.2)), node(1, Clock(max_error=0.3))

    assert clocks.is_before(nodes[0], 995.0, nodes[1], 996.0)
    assert not clocks.is_before(nodes[0], -9000.0, nodes[1], -8999.0)


def test_clock_that_was_set() -> None:
    """Times of a report are by the clock at its start; if it was set meanwhile, they are corrected by that."""
    nodes = node(0, Clock(max_error=0.2, step=-41.0)), node(1, Clock(max_error=0.3))

    assert clocks.is_before(nodes[0], 1035.0, nodes[1], 999.0)


def test_silence() -> None:
    """Whether a node was silent before, or active after, a moment of another one is known by the clock of the disk."""
    witness = node(0, disk(100.0))
    silent, active, unknown = (node(1, log_end=end) for end in (1040.0, 1095.0, None))

    assert clocks.fell_silent_before(silent, witness, 990.0, 35.0)
    assert not clocks.fell_silent_before(active, witness, 990.0, 35.0)
    assert not clocks.fell_silent_before(unknown, witness, 990.0, 35.0)
    assert not clocks.fell_silent_before(silent, node(2), 990.0, 35.0)
    assert clocks.was_active_after(active, witness, 990.0)
    assert not clocks.was_active_after(silent, witness, 990.0)

"""Compares the clocks of nodes: the interval by which they differ, and the source of that estimate.

A time on one node precedes a time on another only if it does so for every possible difference.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from statistics import median
from typing import Final

import attrs

from ascend_runner.merge.model import Node

# A clock drifts from the moment it was compared. The kernel assumes at most this much (MAXFREQ, 500 ppm).
DRIFT: Final = 0.0005
TICK: Final = 0.02  # seconds; file systems take their times from a coarse clock
LOG_TIME: Final = 1.0  # seconds; many programs log whole seconds
FEWEST_STEPS: Final = 2  # steps that two logs must share, so that a single odd line decides nothing

SYNCHRONIZED, DISK, STEPS = "synchronized", "by the disk", "by steps"


@attrs.frozen
class Difference:
    """The time by which one clock is ahead of another: between `low` and `high` seconds, as the `source` says."""

    low: float = -inf
    high: float = inf
    source: str = ""

    @property
    def is_known(self) -> bool:
        """Whether the difference is bounded."""
        return self.high - self.low < inf

    @property
    def middle(self) -> float:
        """The best estimate."""
        return (self.low + self.high) / 2

    @property
    def margin(self) -> float:
        """How far the estimate may be off."""
        return (self.high - self.low) / 2

    def __neg__(self) -> Difference:
        return Difference(-self.high, -self.low, self.source)


UNKNOWN: Final = Difference()
NONE: Final = Difference(0.0, 0.0)


def difference(first: Node, second: Node) -> Difference:
    """Return how far the clock of `first` is ahead of that of `second`.

    If sources contradict each other, the widest ones are ignored.
    """
    if first is second:
        return NONE
    known = sorted(_sources(first, second), key=lambda found: found.margin)
    found = UNKNOWN
    for one in known:
        low, high = max(found.low, one.low), min(found.high, one.high)
        if low <= high:
            found = Difference(low, high, found.source or one.source)
    return found


def contradiction(first: Node, second: Node) -> str:
    """Return the source that contradicts a narrower one, or "" if there is none."""
    known = sorted(_sources(first, second), key=lambda found: found.margin)
    best = difference(first, second)
    return next((one.source for one in known if one.high < best.low or one.low > best.high), "")


def is_before(first: Node, at: float | None, second: Node, later: float | None) -> bool:
    """Return whether `at` on the clock of `first` was certainly before `later` on the clock of `second`."""
    if at is None or later is None:
        return False
    between = _on_last_clock(first, at) - _on_last_clock(second, later)
    return between + _drift(first, at) + _drift(second, later) < difference(first, second).low


def fell_silent_before(silent: Node, second: Node, later: float | None, seconds: float) -> bool:
    """Return whether the last output of `silent` was certainly over `seconds` before `later` on `second`'s clock."""
    ahead = _disk_ahead(second)
    if silent.log_end is None or later is None or not ahead.is_known:
        return False
    return silent.log_end + seconds + _drift(second, later) < _on_last_clock(second, later) + ahead.low


def was_active_after(node: Node, second: Node, at: float | None) -> bool:
    """Return whether a rank of `node` certainly wrote something after `at` on the clock of `second`."""
    ahead = _disk_ahead(second)
    if node.log_end is None or at is None or not ahead.is_known:
        return False
    return node.log_end > _on_last_clock(second, at) + _drift(second, at) + ahead.high


def _sources(first: Node, second: Node) -> Iterator[Difference]:
    errors = first.clock.max_error, second.clock.max_error
    if errors[0] is not None and errors[1] is not None:
        yield Difference(-sum(filter(None, errors)), sum(filter(None, errors)), SYNCHRONIZED)
    disks = _disk_ahead(first), _disk_ahead(second)
    if disks[0].is_known and disks[1].is_known:
        yield Difference(disks[1].low - disks[0].high, disks[1].high - disks[0].low, DISK)
    yield from _by_steps(first, second)


def _disk_ahead(node: Node) -> Difference:
    """Return how far the clock of the disk is ahead of that of a node."""
    offset = node.clock.disk_offset
    if offset is None:
        return UNKNOWN
    margin = node.clock.round_trip + TICK
    return Difference(offset - margin, offset + margin, DISK)


def _by_steps(first: Node, second: Node) -> Iterator[Difference]:
    """Compare the times of the same steps: no rank can end a step before all have begun it.

    Unlike the times of a report, those in a log are by the clock at that moment.
    """
    common = sorted(first.steps.keys() & second.steps.keys())
    if len(common) < FEWEST_STEPS:
        return
    longest = max(_longest(first, common), _longest(second, common)) + LOG_TIME
    ahead = median(first.steps[step] - second.steps[step] for step in common)
    yield Difference(ahead - longest, ahead + longest, STEPS)


def _longest(node: Node, steps: list[int]) -> float:
    """Return the longest time between consecutive steps in the list, which is at least that of one step."""
    return max(abs(node.steps[later] - node.steps[step]) for step, later in zip(steps, steps[1:]))


def _on_last_clock(node: Node, at: float) -> float:
    """Convert a time in a report, which is by the clock at the start of the job, to the clock at its end."""
    return at + node.clock.step


def _drift(node: Node, at: float) -> float:
    return abs((node.ended if node.ended is not None else at) - at) * DRIFT

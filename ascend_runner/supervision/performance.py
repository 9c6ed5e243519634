"""Decides from the figures of its steps whether a training is slow. What follows is decided elsewhere.

Each of three rules reports its third breach in a row, and later the third step or window in a row without a breach:

- The ratio of hardware time to end-to-end time is above a threshold, as guides of platforms define it. It also rises
  when the host gets faster, so a report has both times, and the usual ones before.
- The speed has dropped: the median time of the last steps is longer than the best one of as many steps so far.
- A rank is slower than the others: the median of their hardware times is a small part of its own. Times of whole steps
  would prove nothing, because ranks that exchange gradients wait for the slowest one.

The first two rules are about the training: they report the first rank that breaks them, and the last one that recovers.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable, Iterable, Iterator
from typing import Final

import attrs

from ascend_runner.supervision.causes import Rule, Slowdown
from ascend_runner.training.steps import Step

IN_A_ROW: Final = 3
WINDOW: Final = 20  # steps in a median
WARM_UP: Final = 20  # steps before the first speed that can be the best: graphs are compiled then
SHORTEST_GAP: Final = 0.1  # seconds between two lines for a speed; several may be written at once
MOST_SERIES: Final = 16  # series of a rank
STRAGGLER: Final = 0.7  # the part of its own time that the others take; a rank with less is a straggler
FEWEST_RANKS: Final = 3  # if two ranks differ, either may be the slow one


def _median(values: Iterable[float]) -> float:
    """Return the median, of an even number of values the higher one of the two in the middle."""
    ordered = sorted(values)
    return ordered[len(ordered) // 2]


def _window() -> deque[float]:
    return deque(maxlen=WINDOW)


@attrs.define
class _Row:
    """Counts breaches in a row; once the rule is broken, steps or windows in a row without one."""

    is_broken: bool = False
    _length: int = 0

    def turns(self, *, is_breach: bool) -> bool:
        """Count the next step or window; return whether the rule is broken with it, or no longer is."""
        self._length = 0 if is_breach is self.is_broken else self._length + 1
        if self._length < IN_A_ROW:
            return False
        self.is_broken, self._length = is_breach, 0
        return True


@attrs.define
class _Series:
    """The times of steps that one kind of line gives, in seconds."""

    to_warm_up: int = WARM_UP
    times: deque[float] = attrs.field(factory=_window)
    best: float = math.inf
    row: _Row = attrs.field(factory=_Row)

    def add(self, time: float) -> float | None:
        """Take the next time; return the median of the last ones once there are enough."""
        if self.to_warm_up:
            self.to_warm_up -= 1
            return None
        self.times.append(time)
        if len(self.times) < WINDOW:
            return None
        now = _median(self.times)
        self.best = min(self.best, now)
        return now


@attrs.define
class _Rank:
    """What is known of a rank. Times are in seconds; `usual` has the steps that have not broken the ratio."""

    ratio: _Row = attrs.field(factory=_Row)
    usual: tuple[deque[float], deque[float]] = attrs.field(factory=lambda: (_window(), _window()))
    series: dict[Hashable, _Series] = attrs.field(factory=dict)
    hardware: deque[float] = attrs.field(factory=_window)
    straggling: _Row = attrs.field(factory=_Row)
    last: tuple[int, float] | None = None  # a step that came without a time, and when it came


@attrs.define
class Performance:
    """The figures of all ranks of a node. A rule without a limit is not applied.

    `threshold` is the highest ratio of hardware to end-to-end time, and `drop` the part of its best speed that a
    training may lose.
    """

    threshold: float | None = None
    drop: float | None = None
    _ranks: dict[int, _Rank] = attrs.field(init=False, factory=dict)
    _broken: dict[Rule, set[Hashable]] = attrs.field(init=False, factory=lambda: {rule: set() for rule in Rule})
    _applied: set[Rule] = attrs.field(init=False, factory=set)

    @property
    def not_applied(self) -> tuple[Rule, ...]:
        """The rules with a limit for which no step had the figures so far."""
        limits = {Rule.RATIO: self.threshold, Rule.DROP: self.drop}
        return tuple(rule for rule, limit in limits.items() if limit is not None and rule not in self._applied)

    def note(self, rank_id: int, step: Step, at: float = 0.0) -> tuple[Slowdown, ...]:
        """Record the figures of a step that a rank printed at the time `at`; return the changes to report."""
        rank = self._ranks.setdefault(rank_id, _Rank())
        return (*self._ratio(rank_id, rank, step), *self._drop(rank_id, rank, step, at), *self._stragglers(rank, step))

    def _ratio(self, rank_id: int, rank: _Rank, step: Step) -> Iterator[Slowdown]:
        hardware, e2e = _time(step.hardware), _time(step.e2e)
        if self.threshold is None or hardware is None or e2e is None:
            return
        self._applied.add(Rule.RATIO)
        is_breach = hardware / e2e > self.threshold
        if rank.ratio.turns(is_breach=is_breach) and self._is_first_or_last(Rule.RATIO, rank_id, is_breach=is_breach):
            own, reference = rank.usual
            usual = (_median(own), _median(reference)) if own and is_breach else None
            yield Slowdown(
                rule=Rule.RATIO,
                rank_id=rank_id,
                own=hardware,
                reference=e2e,
                usual=usual,
                step=step.step,
                is_over=not is_breach,
            )
        if not is_breach:
            for times, time in zip(rank.usual, (hardware, e2e)):
                times.append(time)

    def _drop(self, rank_id: int, rank: _Rank, step: Step, at: float) -> Iterator[Slowdown]:
        found = _speed(rank, step, at) if self.drop is not None else None
        if found or step.step is not None:
            self._applied.add(Rule.DROP)
        if found is None or self.drop is None:
            return
        kind, unit, time = found
        series = rank.series.setdefault(kind, _Series()) if len(rank.series) < MOST_SERIES else rank.series.get(kind)
        now = series and series.add(time)
        if not (series and now):
            return
        is_breach = series.best / now < 1 - self.drop
        if series.row.turns(is_breach=is_breach) and self._is_first_or_last(
            Rule.DROP, (rank_id, kind), is_breach=is_breach
        ):
            yield Slowdown(
                rule=Rule.DROP,
                rank_id=rank_id,
                own=now,
                reference=series.best,
                unit=unit,
                step=step.step,
                is_over=not is_breach,
            )

    def _stragglers(self, rank: _Rank, step: Step) -> Iterator[Slowdown]:
        """Compare the ranks whenever one of them has enough times; a rank with less than half of them is left out."""
        hardware = _time(step.hardware)
        if hardware is None:
            return
        rank.hardware.append(hardware)
        if len(rank.hardware) < WINDOW:
            return
        medians = {
            number: _median(one.hardware) for number, one in self._ranks.items() if len(one.hardware) >= WINDOW / 2
        }
        if len(medians) < FEWEST_RANKS:
            return
        reference = _median(medians.values())
        for number, own in medians.items():
            self._ranks[number].hardware.clear()
            is_breach = reference / own < STRAGGLER
            if self._ranks[number].straggling.turns(is_breach=is_breach):
                yield Slowdown(
                    rule=Rule.STRAGGLER,
                    rank_id=number,
                    own=own,
                    reference=reference,
                    step=step.step,
                    is_over=not is_breach,
                )

    def _is_first_or_last(self, rule: Rule, subject: Hashable, *, is_breach: bool) -> bool:
        """Record that a subject breaks a rule or has recovered; return whether it is the first or the last one."""
        broken = self._broken[rule]
        was_broken = bool(broken)
        (broken.add if is_breach else broken.discard)(subject)
        return bool(broken) is not was_broken


def _time(seconds: float | None) -> float | None:
    """Return a time if it can be compared, or None otherwise."""
    return seconds if seconds is not None and 0 < seconds < math.inf else None


def _speed(rank: _Rank, step: Step, at: float) -> tuple[Hashable, str, float] | None:
    """Return the kind of a figure, the unit of a throughput, and the time of the step, or None if it is unknown.

    Bars of a training and of its evaluation differ in their number of steps, and so in their kind. The time of a line
    without any is measured between two of them, and is a mean if they come fast. The inverse of a throughput serves as
    a time.
    """
    for name, seconds in (("seconds", step.seconds), ("e2e", step.e2e)):
        time = _time(seconds)
        if time is not None:
            return (name, step.steps), "", time
    throughput = _time(step.throughput)
    if throughput is not None:
        return step.unit, step.unit, 1 / throughput
    if step.step is None:
        return None
    before, began = rank.last or (step.step, at)
    if step.step > before and at - began < SHORTEST_GAP:
        return None
    if step.step != before or rank.last is None:
        rank.last = step.step, at
    if step.step <= before:
        return None
    return ("between lines", step.steps), "", (at - began) / (step.step - before)

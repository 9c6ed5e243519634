"""Decides from the figures of its steps whether a training is slow. What follows is decided elsewhere.

There are three rules. Each reports its third breach in a row, and the next one only after a step that was none:

- The ratio of hardware time to end-to-end time is above a threshold, as guides of platforms define it. It also rises
  when the host gets faster, so a report has both times.
- The speed has dropped: the median time of the last steps is longer than the best one of as many steps so far.
- A rank is slower than the others: the median of their hardware times is a small part of its own. Times of whole steps
  would prove nothing, because ranks that exchange gradients wait for the slowest one.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Iterable
from typing import Final, Optional

import attrs

from ascend_runner.training.steps import Step

IN_A_ROW: Final = 3
WINDOW: Final = 20  # steps whose median counts
WARM_UP: Final = 20  # steps of a rank before them: the first ones compile graphs
STRAGGLER: Final = 0.7  # the part of its own time that the others take; a rank with less is a straggler
FEWEST_RANKS: Final = 3  # of two that differ, either may be the slow one


class Rule(enum.Enum):
    """A way in which a training is slow."""

    RATIO = "ratio"  # hardware / end-to-end time
    DROP = "drop"
    STRAGGLER = "straggler"


@attrs.frozen(kw_only=True)
class Breach:
    """A rule that a rank has broken `IN_A_ROW` times, with the last times in seconds.

    `own` is its hardware time, or a median of its times, and `reference` its end-to-end time, its best median, or the
    median of all ranks.
    """

    rule: Rule
    rank_id: int
    own: float
    reference: float
    step: Optional[int] = None


def median(values: Iterable[float]) -> float:
    """Return the median, of an even number of values the higher one of the two in the middle."""
    ordered = sorted(values)
    return ordered[len(ordered) // 2]


@attrs.define
class _Rank:
    """What is known of a rank: its last times of steps and of the hardware, in seconds, and its breaches in a row."""

    to_warm_up: int = WARM_UP
    seconds: deque[float] = attrs.field(factory=lambda: deque(maxlen=WINDOW))
    best: float = float("inf")
    hardware: deque[float] = attrs.field(factory=lambda: deque(maxlen=WINDOW))
    in_a_row: dict[Rule, int] = attrs.field(factory=lambda: dict.fromkeys(Rule, 0))

    def is_reported(self, rule: Rule, *, is_breach: bool) -> bool:
        """Count a breach, or end the row; return whether this breach is to be reported."""
        self.in_a_row[rule] = self.in_a_row[rule] + 1 if is_breach else 0
        return self.in_a_row[rule] == IN_A_ROW


@attrs.define
class Performance:
    """The figures of all ranks of a node. A rule without a limit is not applied.

    `threshold` is the highest ratio of hardware to end-to-end time, and `drop` the part of its best speed that a
    training may lose.
    """

    threshold: Optional[float] = None
    drop: Optional[float] = None
    _ranks: dict[int, _Rank] = attrs.field(init=False, factory=dict)

    def note(self, rank_id: int, step: Step) -> tuple[Breach, ...]:
        """Take the figures of a rank's step; return what is to be reported now."""
        rank = self._ranks.setdefault(rank_id, _Rank())
        if rank.to_warm_up:
            rank.to_warm_up -= 1
            return ()
        own = [*self._ratio(rank, step), *self._drop(rank, step)]
        found = [Breach(rule=rule, rank_id=rank_id, own=a, reference=b, step=step.step) for rule, a, b in own]
        return (*found, *self._stragglers(rank, step))

    def _ratio(self, rank: _Rank, step: Step) -> Iterable[tuple[Rule, float, float]]:
        if self.threshold is None or step.hardware is None or not step.e2e:
            return
        if rank.is_reported(Rule.RATIO, is_breach=step.hardware / step.e2e > self.threshold):
            yield Rule.RATIO, step.hardware, step.e2e

    def _drop(self, rank: _Rank, step: Step) -> Iterable[tuple[Rule, float, float]]:
        seconds = step.e2e if step.seconds is None else step.seconds
        if self.drop is None or not seconds:
            return
        rank.seconds.append(seconds)
        if len(rank.seconds) < WINDOW:
            return
        now = median(rank.seconds)
        rank.best = min(rank.best, now)
        if rank.is_reported(Rule.DROP, is_breach=rank.best / now < 1 - self.drop):
            yield Rule.DROP, now, rank.best

    def _stragglers(self, rank: _Rank, step: Step) -> Iterable[Breach]:
        """Compare the ranks whenever one of them has enough times; a rank with less than half of them is left out."""
        if not step.hardware:
            return
        rank.hardware.append(step.hardware)
        if len(rank.hardware) < WINDOW:
            return
        medians = {
            number: median(one.hardware) for number, one in self._ranks.items() if len(one.hardware) >= WINDOW / 2
        }
        if len(medians) < FEWEST_RANKS:
            return
        reference = median(medians.values())
        for number, own in medians.items():
            self._ranks[number].hardware.clear()
            if self._ranks[number].is_reported(Rule.STRAGGLER, is_breach=reference / own < STRAGGLER):
                yield Breach(rule=Rule.STRAGGLER, rank_id=number, own=own, reference=reference, step=step.step)

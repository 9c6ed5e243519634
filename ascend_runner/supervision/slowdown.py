"""The event that a training has become slow, or is no longer slow, and its words. `performance` decides it."""

from __future__ import annotations

import enum
from typing import ClassVar

import attrs

from ascend_runner.errors import TIMED_OUT
from ascend_runner.text import rank_title


class Rule(enum.Enum):
    """A way in which a training is slow."""

    RATIO = "ratio"  # hardware / end-to-end time
    DROP = "drop"
    STRAGGLER = "straggler"

    @property
    def is_about_a_rank(self) -> bool:
        """Whether a rank breaks it by itself, and not the training."""
        return self is Rule.STRAGGLER


@attrs.frozen(kw_only=True)
class Slowdown:
    """The training has become slow by a rule of `supervision.performance`; with `is_over`, it is no longer slow by it.

    `name` is that of an auxiliary process. `own` and `reference` are the times in seconds that the rule compares: a
    hardware time and an end-to-end time, or a median and the best one, or the median of all ranks. `usual` are both
    times before a high ratio. With a `unit`, the inverse of a time is a throughput. `device` is the local index of a
    straggler's NPU, and `temperature` is in degrees Celsius; both are None if they are unknown.
    """

    exit_status: ClassVar[int] = TIMED_OUT
    rule: Rule
    rank_id: int
    own: float
    reference: float
    name: str = ""
    usual: tuple[float, float] | None = None
    unit: str = ""
    step: int | None = None
    device: int | None = None
    temperature: int | None = None
    is_over: bool = False

    def __str__(self) -> str:
        sentence = {Rule.RATIO: self._ratio, Rule.DROP: self._drop, Rule.STRAGGLER: self._straggler}[self.rule]()
        return sentence if self.step is None else f"{sentence}, at step {self.step}"

    def _ratio(self) -> str:
        before = f", before that {self.usual[0]:.3g} s of {self.usual[1]:.3g} s" if self.usual else ""
        share = f"{self.own / self.reference:.0%} of the end-to-end time"
        figures = f"({self.own:.3g} s of {self.reference:.3g} s{before}) in {rank_title(self.rank_id, self.name)}"
        if self.is_over:
            return f"the hardware time is down to {share} {figures}"
        return f"slow training (--perf-threshold): the hardware time is {share} {figures}"

    def _drop(self) -> str:
        now, best = f"{self.own:.3g} s per step", f"{self.reference:.3g} s"
        if self.unit:
            now, best = f"{1 / self.own:.3g} {self.unit}", f"{1 / self.reference:.3g}"
        figures = f"{now}, at best {best}, in {rank_title(self.rank_id, self.name)}"
        if self.is_over:
            return f"the training is no longer slow: {figures}"
        return f"slow training (--perf-drop): {1 - self.reference / self.own:.0%} below its best speed, {figures}"

    def _straggler(self) -> str:
        device = "" if self.device is None else f"device {self.device}"
        degrees = "" if self.temperature is None else f"{self.temperature} °C"
        place = ", ".join(filter(None, (device, degrees)))
        title = rank_title(self.rank_id, self.name)
        rank = f"{title} ({place})" if place else title
        change = "is no longer slower" if self.is_over else "is slower"
        return f"{rank} {change} than the other ranks: hardware time {self.own:.3g} s, median {self.reference:.3g} s"

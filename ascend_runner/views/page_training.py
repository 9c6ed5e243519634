"""The training on a page: loss and time per step over the steps, and the ranks compared. Pure.

Times are as the lines of the logs give them: a log has no clock. Of a picture, coordinates are in WIDTH and HEIGHT.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median, median_low
from typing import Final

import attrs

from ascend_runner.text import rank_list, without_empty
from ascend_runner.training.steps import NO_STEP, is_beside, parse

WIDTH: Final = 1000
HEIGHT: Final = 200
MOST_PLACES: Final = 40  # points of a line
MOST_LINES: Final = 8  # ranks with a line and a row each
SLOW: Final = 1.1  # times the median of all ranks
ENOUGH: Final = 3  # steps, and ranks to be compared
_LINE_END: Final = re.compile(rb"[\r\n]")


@attrs.frozen(kw_only=True)
class Point:
    """The figures at a step, None if unknown. `step` keeps counting when the steps of an epoch start from 0 again."""

    step: int
    loss: float | None
    seconds: float | None


@attrs.frozen(kw_only=True)
class Series:
    """The steps found in the log of a rank. It `is_sampled` if not all of the log was read, `is_unread` if nothing."""

    points: tuple[Point, ...] = ()
    is_sampled: bool = False
    is_unread: bool = False


def points_of(parts: Iterable[bytes]) -> tuple[Point, ...]:
    """Return the points in some parts of a log, in their order."""
    found: dict[int, Point] = {}
    last, before = NO_STEP, 0  # the steps of the epochs before
    for line in (line for part in parts for line in _LINE_END.split(part)):
        step = parse(line)
        if step is None or is_beside(step, last):
            continue
        if last.is_other and step.step is not None and not step.is_other:
            found, last, before = {}, NO_STEP, 0  # the training begins
        if step.step is not None and last.step is not None and step.step < last.step:
            before += last.step
        last = step if step.step is not None else last._replace(loss=step.loss, seconds=step.seconds)
        if last.step is not None:
            place = before + last.step
            old = found.get(place, Point(step=place, loss=None, seconds=None))
            found[place] = Point(
                step=place,
                loss=_known(step.loss) if step.loss is not None else old.loss,
                seconds=_known(step.seconds) or old.seconds,
            )
    return tuple(found.values())


def _known(number: float | None) -> float | None:
    return number if number is not None and math.isfinite(number) else None


@attrs.frozen(kw_only=True)
class Line:
    """A line of a chart: the rank, the kind ("slow" or "rank"), and the path."""

    title: str
    kind: str
    path: str


@attrs.frozen(kw_only=True)
class Chart:
    """A chart over the steps; `words` say what it shows, `ticks` are the texts of the axes."""

    title: str
    words: str
    lines: tuple[Line, ...]
    low: str
    high: str
    first: str
    last: str


@attrs.frozen(kw_only=True)
class Training:
    """The charts, the ranks compared (rows of a kind and cells), the logs that were sampled, and missing ranks."""

    charts: tuple[Chart, ...]
    heads: tuple[str, ...]
    rows: tuple[tuple[str, tuple[str, ...]], ...]
    note: str
    rest: str

    @property
    def size(self) -> int:
        """Its approximate size in the page, in bytes."""
        lines = [line for chart in self.charts for line in chart.lines]
        return sum(len(line.path) + 60 for line in lines) + 160 * len(self.rows) + 1800


HEADS: Final = ("Rank", "Last step", "Last loss", "Time per step", "Slowest step")


def draw(found: Mapping[int, Series]) -> Training | None:
    """Return the training of the ranks with steps in their logs, or None without any."""
    series = {rank_id: one for rank_id, one in sorted(found.items()) if len(one.points) > 1}
    if not series:
        return None
    times = {rank_id: _times(one) for rank_id, one in series.items()}
    slow = _slow(times)
    order = sorted(series, key=lambda rank_id: (rank_id not in slow, rank_id))
    shown = order[:MOST_LINES]
    heads, *rows = without_empty(HEADS, [_cells(one, series[one], times[one], slow) for one in shown])
    charts = (_chart(figure, series, shown, slow) for figure in FIGURES)
    left = [*order[MOST_LINES:], *(rank_id for rank_id, one in found.items() if one.is_unread)]
    sampled = [rank_id for rank_id, one in series.items() if one.is_sampled]
    return Training(
        charts=tuple(chart for chart in charts if chart),
        heads=heads,
        rows=tuple(("slow" if one in slow else "", row) for one, row in zip(shown, rows)),
        note=f"Parts of long logs were read, spread from the first line to the last: {rank_list(sampled)}."
        if sampled
        else "",
        rest=f"Not drawn: {rank_list(left)}." if left else "",
    )


def _times(series: Series) -> list[float]:
    return [point.seconds for point in series.points if point.seconds]


def _slow(times: Mapping[int, Sequence[float]]) -> set[int]:
    """Return the ranks whose median time per step exceeds SLOW times the median of all ranks."""
    typical = {rank_id: median(found) for rank_id, found in times.items() if len(found) >= ENOUGH}
    if len(typical) < ENOUGH:
        return set()
    limit = SLOW * median(typical.values())
    return {rank_id for rank_id, seconds in typical.items() if seconds > limit}


def _cells(rank_id: int, series: Series, times: Sequence[float], slow: set[int]) -> tuple[str, ...]:
    losses = [point.loss for point in series.points if point.loss is not None]
    return (
        f"rank {rank_id}{', slow' if rank_id in slow else ''}",
        f"{series.points[-1].step:,}",
        f"{losses[-1]:.4g}" if losses else "",
        seconds(median(times)) if times else "",
        seconds(max(times)) if times else "",
    )


def seconds(number: float) -> str:
    """Return a time per step in words: "615 ms" or "1.75 s"."""
    return f"{number * 1000:.3g} ms" if number < 1 else f"{number:.4g} s"


@attrs.frozen(kw_only=True)
class Figure:
    """A figure that is plotted over the steps. `choose` picks one of several values if there are too many points."""

    title: str
    of: Callable[[Point], float | None]
    choose: Callable[[Iterable[float]], float]
    shape: Callable[[float], str]
    begins_at_zero: bool


FIGURES: Final = (
    Figure(title="Loss", of=lambda one: one.loss, choose=median_low, shape="{:.4g}".format, begins_at_zero=False),
    # `max`, so that no slow step is lost.
    Figure(title="Time per step", of=lambda one: one.seconds, choose=max, shape=seconds, begins_at_zero=True),
)


def _chart(figure: Figure, series: Mapping[int, Series], shown: Sequence[int], slow: set[int]) -> Chart | None:
    """Return a chart of one figure, or None if fewer than two points have it."""
    known = {one: [(point.step, figure.of(point)) for point in series[one].points] for one in shown}
    numbered = {one: [(step, value) for step, value in found if value is not None] for one, found in known.items()}
    values = {one: _thinned(found, figure.choose) for one, found in numbered.items() if len(found) > 1}
    if not values:
        return None
    steps = [step for found in values.values() for step, _value in found]
    numbers = [value for found in values.values() for _step, value in found]
    left, right, low, high = min(steps), max(steps), min(numbers), max(numbers)
    low = min(0.0, low) if figure.begins_at_zero else low
    title, shape = figure.title, figure.shape
    first = next(iter(values.values()))
    alike: dict[tuple[str, str], list[int]] = {}
    for one, points in values.items():
        kind = "slow" if one in slow else "rank"
        alike.setdefault((kind, _path(points, (left, right), (low, high))), []).append(one)
    return Chart(
        title=title,
        words=f"{title} from {shape(first[0][1])} at step {left:,} to {shape(first[-1][1])} at step {right:,}",
        # Slow ranks come last, on top of the others.
        lines=tuple(
            Line(title=rank_list(ranks), kind=kind, path=path) for (kind, path), ranks in reversed(alike.items())
        ),
        low=shape(low),
        high=shape(high),
        first=f"step {left:,}",
        last=f"step {right:,}",
    )


def _thinned(found: Sequence[tuple[int, float]], choose: Callable[[Iterable[float]], float]) -> list[tuple[int, float]]:
    """Return at most MOST_PLACES points: of each part the chosen figure, and its last step; the first stays."""
    width = math.ceil(len(found) / MOST_PLACES)
    parts = (found[first : first + width] for first in range(0, len(found), width))
    thin = [(part[-1][0], choose(value for _step, value in part)) for part in parts]
    return [(found[0][0], thin[0][1]), *thin[1:]]


def _path(found: Sequence[tuple[int, float]], steps: tuple[int, int], numbers: tuple[float, float]) -> str:
    across, up = max(1, steps[1] - steps[0]), (numbers[1] - numbers[0]) or 1.0
    places = (
        f"{round(WIDTH * (step - steps[0]) / across)} {round(HEIGHT - HEIGHT * (value - numbers[0]) / up)}"
        for step, value in found
    )
    return f"M{'L'.join(places)}"

"""A training is slow by three rules, each of which reports the third breach in a row, and a recovery."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from random import Random

import pytest

from ascend_runner.supervision.causes import Rule, Slowdown
from ascend_runner.supervision.performance import IN_A_ROW, WARM_UP, WINDOW, Performance
from ascend_runner.training.steps import Step, parse

RANKS = 8
SLOW, OVER = False, True


def reports(performance: Performance, steps: Iterable[Step], every: float = 0.0) -> list[tuple[int, Rule, bool]]:
    """Let rank 0 make these steps; return the numbers of those that brought a report, with its rule."""
    return [
        (number, slow.rule, slow.is_over)
        for number, step in enumerate(steps)
        for slow in performance.note(0, step, number * every)
    ]


def test_third_breach_of_the_threshold_is_reported() -> None:
    """The guide's line to the letter, from the first step on; a single good step begins a new row."""
    line = parse(b"this iteration hardware time is 2201.521 and e2e time is 3317.794921875 ms.")
    assert line is not None
    good = Step(hardware=1.0, e2e=2.0)
    steps = [line, line, good, line, line, line, line, good, good, line, good, good, good, good]

    assert [(5, Rule.RATIO, SLOW), (12, Rule.RATIO, OVER)] == reports(Performance(threshold=0.66), steps)
    assert [] == reports(Performance(threshold=0.67), steps)
    assert [] == reports(Performance(), steps)


def test_report_has_both_times() -> None:
    """The ratio also rises when the host gets faster, so the times before it belong to the report."""
    performance = Performance(threshold=0.6)
    steps = [Step(hardware=3.0, e2e=6.0)] * 5 + [Step(step=7, hardware=3.0, e2e=4.0)] * IN_A_ROW
    found = [slow for step in steps for slow in performance.note(3, step)]

    assert [Slowdown(rule=Rule.RATIO, rank_id=3, own=3.0, reference=4.0, usual=(3.0, 6.0), step=7)] == found


def test_all_ranks_are_one_training() -> None:
    """Eight ranks that print the same are one report, and so are those that recover."""
    performance = Performance(threshold=0.5)
    found = [
        (slow.rank_id, slow.is_over)
        for step in [Step(hardware=3.0, e2e=4.0)] * 5 + [Step(hardware=1.0, e2e=4.0)] * 5
        for rank_id in range(RANKS)
        for slow in performance.note(rank_id, step)
    ]

    assert [(0, SLOW), (RANKS - 1, OVER)] == found


@pytest.mark.parametrize("figure", [0.0, -1.0, math.nan, math.inf, None])
def test_figures_that_are_no_times(figure: float | None) -> None:
    """They are passed over."""
    steps = [Step(hardware=1.0, e2e=figure), Step(hardware=figure, e2e=1.0), Step(seconds=figure)]

    assert [] == reports(Performance(threshold=0.5, drop=0.3), steps * 3 * (WARM_UP + WINDOW))


@pytest.mark.parametrize(("seconds", "is_slow"), [(1.4, False), (1.45, True)])
def test_drop_of_the_speed(seconds: float, *, is_slow: bool) -> None:
    """Three medians in a row of less than 70 % of the best speed; single long steps, as of a save, are none."""
    warm_up = [Step(seconds=0.1)] * WARM_UP
    steady = [Step(seconds=10.0 if number % 7 == 0 else 1.0) for number in range(5 * WINDOW)]
    slow = [Step(seconds=seconds)] * 2 * WINDOW
    found = reports(Performance(drop=0.3), [*warm_up, *steady, *slow, *steady, *slow])

    assert [(Rule.DROP, SLOW), (Rule.DROP, OVER), (Rule.DROP, SLOW)] * is_slow == [report[1:] for report in found]
    assert all(len(steady) < number < WARM_UP + len(steady) + WINDOW for number, _rule, _is_over in found[:1])


@pytest.mark.parametrize(
    ("good", "bad", "every"),
    [
        (Step(e2e=1.0), Step(e2e=2.0), 0.0),
        (Step(throughput=60.0, unit="samples/s"), Step(throughput=30.0, unit="samples/s"), 0.0),
    ],
)
def test_other_figures_that_tell_the_speed(good: Step, bad: Step, every: float) -> None:
    """An end-to-end time is that of the step, and a throughput gives the speed as well."""
    steps = [good] * (WARM_UP + WINDOW) + [bad] * WINDOW

    assert [(Rule.DROP, SLOW)] == [report[1:] for report in reports(Performance(drop=0.3), steps, every)]


def test_speed_between_lines() -> None:
    """Of lines that have only the number of a step, the time between them gives the speed."""
    performance = Performance(drop=0.3)
    at = 0.0
    found: list[Slowdown] = []
    for number in range(3 * (WARM_UP + WINDOW)):
        at += 10.0 if number < 2 * (WARM_UP + WINDOW) else 20.0
        found += performance.note(0, Step(step=10 * number), at)

    assert [(1.0, 2.0)] == [(slow.reference, slow.own) for slow in found]


def test_lines_that_come_in_bursts() -> None:
    """The speed between lines is not that of a burst, and lines that repeat a step or start over give none."""
    performance = Performance(drop=0.3)
    lines = [(5 * burst + line, 5.0 * burst + 1e-4 * line) for burst in range(100) for line in range(5)]
    found = [slow for step, at in lines for slow in performance.note(0, Step(step=step), at)]
    found += [slow for step, at in lines for slow in performance.note(1, Step(step=step // 10), 3 * at)]
    found += [slow for step, at in lines for slow in performance.note(2, Step(step=step % 50), at)]

    assert [] == found


def test_bars_of_an_evaluation_are_not_those_of_the_training() -> None:
    """They are distinguished by the number of steps: steps of an evaluation are faster."""
    training = [Step(step=number, steps=1000, seconds=2.0) for number in range(WARM_UP + WINDOW)]
    evaluation = [Step(step=number, steps=50, seconds=0.1) for number in range(WARM_UP + WINDOW)]

    assert [] == reports(Performance(drop=0.3), [*evaluation, *training, *evaluation, *training])


def windows(performance: Performance, count: int, slow: dict[int, float], seed: int) -> Iterator[tuple[Slowdown, ...]]:
    """Let the ranks make so many windows of steps with a noise of 5 %; give the reports of each."""
    dice = Random(seed)  # noqa: S311  not for cryptography
    noise = itertools.cycle([dice.gauss(1.0, 0.05) for _ in range(10_007)])
    factors = [slow.get(rank_id, 1.0) for rank_id in range(RANKS)]
    for _ in range(count):
        found: list[Slowdown] = []
        for _ in range(WINDOW):
            for rank_id, factor in enumerate(factors):
                found += performance.note(rank_id, Step(hardware=next(noise) * factor))
        yield tuple(found)


@pytest.mark.parametrize("seed", range(20))
def test_slow_rank_is_found_in_three_windows(seed: int) -> None:
    """One of eight that takes 1.6 times as long is found, and no other."""
    slow = seed % RANKS
    found = list(windows(Performance(), IN_A_ROW + 1, {slow: 1.6}, seed))

    assert [[], [], [slow], []] == [[one.rank_id for one in window] for window in found]


def test_slow_rank_that_recovers() -> None:
    """That is reported as well."""
    performance = Performance()
    list(windows(performance, IN_A_ROW, {3: 1.6}, seed=1))

    assert [(3, OVER)] == [(one.rank_id, one.is_over) for window in windows(performance, 5, {}, 2) for one in window]


def test_no_rank_among_equals_is_slow() -> None:
    """Noise alone is never reported, in 10,000 comparisons of a rank with the others."""
    assert not any(windows(Performance(), 10_000 // RANKS, {}, seed=1))


def test_two_ranks_are_too_few() -> None:
    """Of two that differ, either may be the slow one; a rank that prints no times is not compared."""
    performance = Performance()
    found = [
        performance.note(rank_id, Step(hardware=hardware))
        for _ in range(5 * WINDOW)
        for rank_id, hardware in ((0, 1.0), (1, 3.0), (2, None))
    ]

    assert not any(found)

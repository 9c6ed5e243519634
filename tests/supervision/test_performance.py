"""A training is slow by three rules, each of which reports the third breach in a row and then waits for a recovery."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from random import Random

import pytest

from ascend_runner.supervision.performance import IN_A_ROW, WARM_UP, WINDOW, Breach, Performance, Rule
from ascend_runner.training.steps import Step, parse

RANKS = 8


def reports(performance: Performance, steps: Iterable[Step]) -> list[tuple[int, Rule]]:
    """Let rank 0 make these steps after its warm-up; return the numbers of those that brought a report."""
    for _ in range(WARM_UP):
        assert () == performance.note(0, Step(seconds=1000.0, hardware=1000.0, e2e=1.0))
    return [(number, breach.rule) for number, step in enumerate(steps) for breach in performance.note(0, step)]


def test_third_breach_of_the_threshold_is_reported() -> None:
    """The guide's line to the letter; a step below the threshold begins a new row, and a long row is one report."""
    line = parse(b"this iteration hardware time is 2201.521 and e2e time is 3317.794921875 ms.")
    assert line is not None
    good = Step(hardware=1.0, e2e=2.0)
    steps = [line, line, good, line, line, line, line, line, line, good, line, line, line]

    assert [(5, Rule.RATIO), (12, Rule.RATIO)] == reports(Performance(threshold=0.66), steps)
    assert [] == reports(Performance(threshold=0.67), steps)
    assert [] == reports(Performance(), steps)


def test_report_has_both_times() -> None:
    """The ratio also rises when the host gets faster, so it alone says little."""
    performance = Performance(threshold=0.5)
    found = [performance.note(3, Step(step=number, hardware=3.0, e2e=4.0)) for number in range(WARM_UP + IN_A_ROW)]

    assert (Breach(rule=Rule.RATIO, rank_id=3, own=3.0, reference=4.0, step=WARM_UP + 2),) == found[-1]


@pytest.mark.parametrize(("seconds", "is_slow"), [(1.4, False), (1.45, True)])
def test_drop_of_the_speed(seconds: float, *, is_slow: bool) -> None:
    """Three medians in a row of less than 70 % of the best speed; single long steps, as of a save, are none."""
    steady = [Step(seconds=10.0 if number % 7 == 0 else 1.0) for number in range(5 * WINDOW)]
    slow = [Step(seconds=seconds)] * 2 * WINDOW
    found = reports(Performance(drop=0.3), [*steady, *slow, *steady, *slow])

    assert [Rule.DROP] * 2 * is_slow == [rule for _number, rule in found]
    assert all(number < len(steady) + WINDOW for number, _rule in found[:1])


def test_end_to_end_time_is_that_of_the_step() -> None:
    """A line that has no other time serves as well."""
    found = reports(Performance(drop=0.3), [*[Step(e2e=1.0)] * WINDOW, *[Step(e2e=2.0)] * WINDOW])

    assert [Rule.DROP] == [rule for _number, rule in found]


def windows(performance: Performance, count: int, slow: dict[int, float], seed: int) -> Iterator[tuple[Breach, ...]]:
    """Let the ranks make so many windows of steps, in any order, with a noise of 5 %; give the reports of each."""
    dice = Random(seed)  # noqa: S311  not for cryptography
    noise = itertools.cycle([dice.gauss(1.0, 0.05) for _ in range(10_007)])
    for rank_id in range(RANKS):
        for _ in range(WARM_UP):
            performance.note(rank_id, Step(hardware=1.0))
    factors = [slow.get(rank_id, 1.0) for rank_id in range(RANKS)]
    for _ in range(count):
        found: list[Breach] = []
        for _ in range(WINDOW):
            for rank_id, factor in enumerate(factors):
                found += performance.note(rank_id, Step(hardware=next(noise) * factor))
        yield tuple(found)


@pytest.mark.parametrize("seed", range(20))
def test_slow_rank_is_found_in_three_windows(seed: int) -> None:
    """One of eight that takes 1.6 times as long is found, and no other."""
    slow = seed % RANKS
    found = list(windows(Performance(), IN_A_ROW + 1, {slow: 1.6}, seed))

    assert [[], [], [slow], []] == [[breach.rank_id for breach in one] for one in found]


def test_no_rank_among_equals_is_slow() -> None:
    """Noise alone is never reported."""
    assert not any(windows(Performance(), 1000, {}, seed=1))


def test_two_ranks_are_too_few() -> None:
    """Of two that differ, either may be the slow one; a rank that prints no times is not compared."""
    performance = Performance()
    found = [
        performance.note(rank_id, Step(hardware=hardware))
        for _ in range(WARM_UP + 5 * WINDOW)
        for rank_id, hardware in ((0, 1.0), (1, 3.0), (2, None))
    ]

    assert not any(found)

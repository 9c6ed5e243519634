"""Which ranks count as unusually quiet, or as behind the others."""

from __future__ import annotations

import pytest

from ascend_runner.supervision import odd_ranks


@pytest.mark.parametrize(
    ("seconds", "unusual"),
    [
        ({}, ()),
        ({0: 5000.0}, ()),
        ({0: 0.0, 1: 0.0, 2: 10.0}, ()),
        ({0: 0.0, 1: 0.0, 2: 10.1}, (2,)),
        ({0: 30.0, 1: 30.0, 2: 95.0}, ()),
        ({0: 1.0, 1: 5000.0, 2: 5000.0, 3: 5000.0}, ()),
    ],
)
def test_quiet_ranks(seconds: dict[int, float], unusual: tuple[int, ...]) -> None:
    """A rank is unusual if it is quiet for much longer than most; where only one rank writes, no other one is."""
    assert frozenset(unusual) == odd_ranks.quiet(seconds)


@pytest.mark.parametrize(
    ("steps", "unusual"),
    [
        ({}, ()),
        ({0: 7}, ()),
        ({0: 40, 1: 40, 2: 38}, ()),
        ({0: 40, 1: 40, 2: 37}, (2,)),
        ({0: 1000, 1: 1000, 2: 990}, ()),
        ({0: 1000, 1: 1000, 2: 989}, (2,)),
        ({0: 5000, 1: 7, 2: 7}, ()),
    ],
)
def test_ranks_that_are_behind(steps: dict[int, int], unusual: tuple[int, ...]) -> None:
    """A rank is behind if most are ahead by more steps than ranks that print at different moments are apart."""
    assert frozenset(unusual) == odd_ranks.behind(steps)


@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        ((), ""),
        ((2,), "rank 2 is 8 steps behind the others"),
        ((1, 2), "ranks 1, 2 are 18 steps behind the others"),
        ((0, 1, 2), ""),
    ],
)
def test_sentence(ranks: tuple[int, ...], words: str) -> None:
    """It has the distance of the last rank from the median of the others."""
    assert words == odd_ranks.behind_sentence(ranks, {0: 40, 1: 30, 2: 22})


@pytest.mark.parametrize(
    ("ranks", "words"),
    [((2,), "rank 2 was 8 steps behind the others"), ((1, 2), "ranks 1, 2 were 18 steps behind the others")],
)
def test_sentence_about_a_job_that_is_over(ranks: tuple[int, ...], words: str) -> None:
    """It is in the past tense."""
    assert words == odd_ranks.behind_sentence(ranks, {0: 40, 1: 30, 2: 22}, is_over=True)

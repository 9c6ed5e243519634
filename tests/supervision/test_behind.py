"""Which ranks count as behind the others."""

from __future__ import annotations

import pytest

from ascend_runner.supervision import behind


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
def test_ranks_are_compared_with_the_median(steps: dict[int, int], unusual: tuple[int, ...]) -> None:
    """A rank is behind if most are ahead by more steps than ranks that print at different moments are apart."""
    assert frozenset(unusual) == behind.unusual(steps)


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
    assert words == behind.sentence(ranks, {0: 40, 1: 30, 2: 22})


@pytest.mark.parametrize(
    ("ranks", "words"),
    [((2,), "rank 2 was 8 steps behind the others"), ((1, 2), "ranks 1, 2 were 18 steps behind the others")],
)
def test_sentence_about_a_job_that_is_over(ranks: tuple[int, ...], words: str) -> None:
    """It is in the past tense."""
    assert words == behind.sentence(ranks, {0: 40, 1: 30, 2: 22}, is_over=True)

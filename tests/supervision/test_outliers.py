"""Which ranks count as unusually quiet, or as behind the others."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, strategies

from ascend_runner.supervision import outliers


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
    assert frozenset(unusual) == outliers.quiet(seconds)


@pytest.mark.parametrize(
    ("seconds", "succeeded", "unusual"),
    [
        ({0: 61.0}, [61.0] * 7, (0,)),
        ({0: 61.0}, [60.0] * 7, ()),
        ({0: 60.0}, [5000.0] * 7, ()),
        ({0: 780.0}, [1.0] * 7, (0,)),
        ({0: 61.0}, [61.0], (0,)),
        ({0: 61.0, 1: 1.0, 2: 62.0}, [61.0] * 3, (0, 2)),
        ({0: 5000.0, 1: 5000.0}, [5000.0], ()),
    ],
)
def test_ranks_that_are_left_alone(
    seconds: dict[int, float], succeeded: Sequence[float], unusual: tuple[int, ...]
) -> None:
    """Ranks are unusual that have written nothing for a while since most have succeeded, or for much longer."""
    assert frozenset(unusual) == outliers.quiet(seconds, succeeded)


@pytest.mark.parametrize(
    ("seconds", "succeeded", "words"),
    [
        ({}, [], ""),
        ({0: 0.0, 1: 2.2, 2: 252.0}, [], "rank 2 has been quiet for 4 min 12 s, the others for at most 2 s"),
        ({0: 1.0, 1: 1.0, 2: 1.0, 3: 99.0, 4: 70.0}, [], "ranks 3, 4 have been quiet for at least 1 min 10 s, the "),
        (
            {5: 252.0},
            [300.0, 250.4],
            "rank 5 has been quiet for 4 min 12 s; the other 2 ranks succeeded 4 min 10 s ago",
        ),
        ({5: 252.0}, [250.0], "rank 5 has been quiet for 4 min 12 s; the other rank succeeded 4 min 10 s ago"),
        ({0: 301.0, 1: 360.0}, [], "no rank has written anything for 5 min 1 s"),
        ({3: 360.0}, [], "rank 3 has written nothing for 6 min 0 s"),
        ({0: 300.0, 1: 360.0}, [], ""),
    ],
)
def test_sentence_about_quiet_ranks(seconds: dict[int, float], succeeded: Sequence[float], words: str) -> None:
    """It compares them with the others, or says that all are quiet."""
    found = outliers.quiet_sentence(seconds, succeeded)

    assert found.startswith(words) if words else found == ""


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
    assert frozenset(unusual) == outliers.behind(steps)


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
    assert words == outliers.behind_sentence(ranks, {0: 40, 1: 30, 2: 22})


@pytest.mark.parametrize(
    ("ranks", "words"),
    [((2,), "rank 2 was 8 steps behind the others"), ((1, 2), "ranks 1, 2 were 18 steps behind the others")],
)
def test_sentence_about_a_job_that_is_over(ranks: tuple[int, ...], words: str) -> None:
    """It is in the past tense."""
    assert words == outliers.behind_sentence(ranks, {0: 40, 1: 30, 2: 22}, is_over=True)


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({0: 3.0, 1: 2.0, 5: 68.0}, "rank 5 used 68% CPU in the last minute, the others at most 3%"),
        ({0: 101.0, 1: 99.0, 5: 12.0}, "rank 5 used 12% CPU in the last minute, the others at least 99%"),
        ({0: 300.0, 1: 101.0, 5: 99.0}, ""),
        ({0: 31.0, 1: 2.0, 5: 1.0}, ""),
        ({0: 98.0, 1: 97.0, 4: 3.0, 5: 2.0}, ""),
        ({0: 98.0, 1: 2.0}, ""),
        ({}, ""),
    ],
)
def test_busy_rank(usage: dict[int, float], expected: str) -> None:
    """A rank is named if its CPU usage is far above, or far below, that of each other rank."""
    assert expected == outliers.busy_sentence(usage)


@given(strategies.dictionaries(strategies.integers(0, 9), strategies.floats(90, 110)))
def test_ranks_that_are_equally_busy(usage: dict[int, float]) -> None:
    """No rank is named if all use about the same."""
    assert "" == outliers.busy_sentence(usage)

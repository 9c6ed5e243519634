"""Which ranks count as unusually quiet."""

from __future__ import annotations

import pytest

from ascend_runner.supervision import quiet


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
def test_ranks_are_compared_with_the_median(seconds: dict[int, float], unusual: tuple[int, ...]) -> None:
    """A rank is unusual if it is quiet for much longer than most; where only one rank writes, no other one is."""
    assert frozenset(unusual) == quiet.unusual(seconds)

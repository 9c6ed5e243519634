"""Which ranks of a running job have written nothing for unusually long. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

LONG: Final = 10.0  # seconds without output, and
FACTOR: Final = 3  # times those of the median rank, beyond which a rank is unusual


def unusual(seconds: Mapping[int, float]) -> frozenset[int]:
    """Return the ranks that have been quiet for much longer than the median; `seconds` are those without output."""
    if not seconds:
        return frozenset()
    usual = sorted(seconds.values())[len(seconds) // 2]
    return frozenset(rank_id for rank_id, quiet in seconds.items() if quiet > LONG + FACTOR * usual)

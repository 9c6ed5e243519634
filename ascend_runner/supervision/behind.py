"""Which ranks of a running job are some steps behind the others. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from ascend_runner.text import rank_list

STEPS: Final = 2  # of the median rank, and
PART: Final = 0.01  # of its steps, beyond which a rank is behind: ranks do not print at the same moment
FEWEST: Final = 2  # ranks whose steps are known: Megatron prints those of one rank only


def unusual(steps: Mapping[int, int]) -> frozenset[int]:
    """Return the ranks that the median rank has been ahead of for some time; `steps` are their last ones."""
    if len(steps) < FEWEST:
        return frozenset()
    median = _median(steps.values())
    return frozenset(rank_id for rank_id, step in steps.items() if median - step > max(STEPS, PART * median))


def sentence(behind: Collection[int], steps: Mapping[int, int], *, is_over: bool = False) -> str:
    """Compare ranks with the others: "rank 5 is 18 steps behind the others" ("was" if it `is_over`); "" without any."""
    others = [step for rank_id, step in steps.items() if rank_id not in behind]
    if not behind or not others:
        return ""
    count = _median(others) - min(steps[rank_id] for rank_id in behind)
    singular, plural = ("was", "were") if is_over else ("is", "are")
    return f"{rank_list(behind)} {singular if len(behind) == 1 else plural} {count} steps behind the others"


def _median(steps: Iterable[int]) -> int:
    ordered = sorted(steps)
    return ordered[(len(ordered) - 1) // 2]

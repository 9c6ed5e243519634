"""Which ranks of a running job are odd: quiet for unusually long, or some steps behind the others. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from ascend_runner.text import rank_list

LONG: Final = 10.0  # seconds without output, and
FACTOR: Final = 3  # times those of the median rank, beyond which a rank is quiet
STEPS: Final = 2  # of the median rank, and
PART: Final = 0.01  # of its steps, beyond which a rank is behind: ranks do not print at the same moment
FEWEST: Final = 2  # ranks whose steps are known: Megatron prints those of one rank only


def quiet(seconds: Mapping[int, float]) -> frozenset[int]:
    """Return the ranks that have been quiet for much longer than the median; `seconds` are those without output."""
    if not seconds:
        return frozenset()
    usual = sorted(seconds.values())[len(seconds) // 2]
    return frozenset(rank_id for rank_id, silence in seconds.items() if silence > LONG + FACTOR * usual)


def behind(steps: Mapping[int, int]) -> frozenset[int]:
    """Return the ranks that the median rank has been ahead of for some time; `steps` are their last ones."""
    if len(steps) < FEWEST:
        return frozenset()
    median = _median(steps.values())
    return frozenset(rank_id for rank_id, step in steps.items() if median - step > max(STEPS, PART * median))


def behind_sentence(ranks: Collection[int], steps: Mapping[int, int], *, is_over: bool = False) -> str:
    """Compare ranks with the others: "rank 5 is 18 steps behind the others" ("was" if it `is_over`); "" without any."""
    others = [step for rank_id, step in steps.items() if rank_id not in ranks]
    if not ranks or not others:
        return ""
    count = _median(others) - min(steps[rank_id] for rank_id in ranks)
    singular, plural = ("was", "were") if is_over else ("is", "are")
    return f"{rank_list(ranks)} {singular if len(ranks) == 1 else plural} {count} steps behind the others"


def _median(steps: Iterable[int]) -> int:
    ordered = sorted(steps)
    return ordered[(len(ordered) - 1) // 2]

"""Which ranks of a running job are outliers: quiet for long, some steps behind the others, or busier. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from ascend_runner.text import duration, rank_list

# A rank is quiet if it has written nothing for LONG seconds plus FACTOR times the silence of the median rank. Once most
# ranks have succeeded, it is quiet in any case after ALONE seconds.
LONG: Final = 10.0
FACTOR: Final = 3
ALONE: Final = 60.0
SILENT: Final = 300.0  # seconds without output of any rank that are worth a sentence

# A rank is behind if the median rank is ahead by more than STEPS steps and more than this part of its steps: ranks do
# not print at the same moment.
STEPS: Final = 2
PART: Final = 0.01
FEWEST: Final = 2  # ranks with known steps: Megatron prints the steps of one rank only

# The CPU usage of a rank is an outlier if it differs from each other rank's by BUSY percent of a core and by the
# factor TIMES.
BUSY: Final = 30.0
TIMES: Final = 3
FEWEST_BUSY: Final = 3  # ranks; of two, neither is the outlier


def quiet(seconds: Mapping[int, float], succeeded: Collection[float] = ()) -> frozenset[int]:
    """Return the ranks that have been quiet for much longer than the median; `seconds` are those without output.

    `succeeded` are the seconds since each rank that has succeeded did so. If these are at least half of the ranks, the
    others are compared with them, too, and are quiet in any case if they have written nothing for some time after that.
    """
    if not seconds:
        return frozenset()
    usual = sorted(seconds.values())[len(seconds) // 2]
    is_left = len(succeeded) >= len(seconds)
    longest = LONG + FACTOR * (min(usual, sorted(succeeded)[(len(succeeded) - 1) // 2]) if is_left else usual)
    if is_left and min(succeeded) > ALONE:
        longest = min(longest, ALONE)
    return frozenset(rank_id for rank_id, silence in seconds.items() if silence > longest)


def quiet_sentence(seconds: Mapping[int, float], succeeded: Collection[float] = (), silent: float = SILENT) -> str:
    """Describe quiet ranks: "rank 5 has been quiet for 4 min 12 s, the others for at most 2 s"; "" without any.

    See `quiet` for the arguments. If no rank differs from the others, it has a sentence after `silent` seconds without
    any output.
    """
    ranks = quiet(seconds, succeeded)
    if not ranks:
        least = min(seconds.values(), default=0.0)
        if least <= silent:
            return ""
        some = "no rank has written anything" if len(seconds) > 1 else f"{rank_list(seconds)} has written nothing"
        return f"{some} for {_whole(least)}"
    verb, at_least = ("has", "") if len(ranks) == 1 else ("have", "at least ")
    words = f"{rank_list(ranks)} {verb} been quiet for {at_least}{_whole(min(seconds[one] for one in ranks))}"
    others = [silence for rank_id, silence in seconds.items() if rank_id not in ranks]
    if others:
        most = max(others)
        return f"{words}, the others for {f'at most {_whole(most)}' if most >= 1 else 'less than 1 s'}"
    rest = "the other rank" if len(succeeded) == 1 else f"the other {len(succeeded)} ranks"
    return f"{words}; {rest} succeeded {_whole(min(succeeded))} ago"


def _whole(seconds: float) -> str:
    return duration(int(seconds))


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


def busy_sentence(usage: Mapping[int, float]) -> str:
    """Compare CPU usage: "rank 5 used 98% CPU in the last minute, the others at most 3%"; "" without an outlier.

    `usage` is in percent of a core. That of a slow rank may be higher or lower: while they wait for other ranks, some
    libraries sleep, and some poll.
    """
    ranks = sorted(usage, key=lambda rank_id: usage[rank_id])
    if len(ranks) < FEWEST_BUSY:
        return ""
    for rank_id, nearest, bound in ((ranks[-1], ranks[-2], "most"), (ranks[0], ranks[1], "least")):
        low, high = sorted((usage[rank_id], usage[nearest]))
        if high - low > BUSY and high > TIMES * low:
            others = f"the others at {bound} {usage[nearest]:.0f}%"
            return f"rank {rank_id} used {usage[rank_id]:.0f}% CPU in the last minute, {others}"
    return ""


def _median(steps: Iterable[int]) -> int:
    ordered = sorted(steps)
    return ordered[(len(ordered) - 1) // 2]

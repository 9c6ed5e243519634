"""Reads the stacks of the ranks of a running job, without pausing them, and finds the rank that the others wait for.

In a job that makes progress, a single look shows little: for most of a step all ranks compute, and whichever reaches a
collective first looks like an outlier. So the stacks are read repeatedly, until a rank has stood out often enough.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from ascend_runner.diagnosis import stack_groups
from ascend_runner.diagnosis.finding import StackGroup
from ascend_runner.evidence.stacks import StackCollector
from ascend_runner.guardian import process_tree
from ascend_runner.host import executables
from ascend_runner.job_tool.job.snapshot import Snapshot
from ascend_runner.observations.facts import HangSeen
from ascend_runner.report import stacks
from ascend_runner.text import duration, rank_list

LIMIT: Final = 60.0  # seconds for one look at all ranks; only the user waits for them
COMPARED: Final = 10.0  # seconds for which the ranks are compared unless the user says otherwise
PAUSE: Final = 0.1  # seconds between two looks, at least; as long as a look took, to leave the ranks their cores
ENOUGH: Final = 6  # looks at which a rank has stood out
FEWEST: Final = 3  # likewise, before it is named; fewer are chance


def leaders(seen: Snapshot) -> dict[int, int]:
    """Return the pids of the running ranks by their numbers.

    They come from a report that anybody may have written, so only descendants of the job's first process count.
    """
    below = {found.pid for found in process_tree.descendants(seen.job.pid) if not found.is_zombie}
    return {rank_id: pid for rank_id, pid in seen.running_pids.items() if pid in below}


def text(pids: Mapping[int, int], search_path: str, seconds: float) -> str:
    """Show the stacks of these ranks at one of the looks within so many seconds, and which ranks stood out.

    Their processes are not paused, so the stacks of those that run may be inexact.
    """
    collector = StackCollector(executables.find_py_spy(search_path), may_pause=False)
    begin = time.monotonic()
    looks = [_look(collector, pids)]
    pause = max(PAUSE, time.monotonic() - begin)
    while not (collector.refusal or max(_times(looks).values(), default=0) >= ENOUGH):
        if time.monotonic() + 2 * pause > begin + seconds:
            break
        time.sleep(pause)
        look = _look(collector, pids)
        if any(not group.frames for group in look):  # a rank has ended
            break
        looks.append(look)
    verdict, groups = compared(looks)
    title = f"stacks of {rank_list(pids)}, outliers first:"
    if verdict:
        title = f"{verdict} ({duration(time.monotonic() - begin)})\n{title}"
    return stacks.text(HangSeen(groups, collector.refusal), title)


def _look(collector: StackCollector, pids: Mapping[int, int]) -> tuple[StackGroup, ...]:
    return stack_groups.group(collector.collect(pids, LIMIT))


def compared(looks: Sequence[tuple[StackGroup, ...]]) -> tuple[str, tuple[StackGroup, ...]]:
    """Say which ranks stood out at these looks, and return the stacks at the one that shows it best.

    Of a few looks, nothing is said, and the last one is returned.
    """
    if len(looks) < FEWEST:
        return "", looks[-1]
    times = _times(looks)
    most = max(times.values(), default=0)
    named = sorted(rank_id for rank_id, count in times.items() if 3 * count > 2 * most)
    if most < FEWEST or len(named) > stacks.MOST_SUSPECTS:
        return f"no rank stood out at {len(looks)} looks", looks[-1]
    shown = min(looks, key=lambda look: len(_standing_out(look).symmetric_difference(named)))
    are_waiting = all(stacks.is_in_collective(group) for group in shown if not set(named).issuperset(group.rank_ids))
    others = ", and the others were waiting" if are_waiting else ""
    return f"{rank_list(named)} stood out at {most} of {len(looks)} looks{others}", shown


def _times(looks: Sequence[tuple[StackGroup, ...]]) -> Counter[int]:
    """Count for each rank at how many looks it stood out."""
    return Counter(rank_id for look in looks for rank_id in _standing_out(look))


def _standing_out(look: Sequence[StackGroup]) -> frozenset[int]:
    """Return the few ranks that are elsewhere than all others and do not wait for them."""
    return frozenset(
        rank_id for group in stacks.suspects(look) if not stacks.is_in_collective(group) for rank_id in group.rank_ids
    )

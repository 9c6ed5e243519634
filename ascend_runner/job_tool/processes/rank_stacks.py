"""Reads the stacks of the ranks of a running job, without pausing them, and finds the rank that the others wait for.

In a job that makes progress, a single sample shows little: for most of a step all ranks compute, and whichever reaches
a collective first looks like an outlier. So the stacks are sampled until a rank has stood out often enough.
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
from ascend_runner.job_tool.job.snapshot import Snapshot
from ascend_runner.observations.facts import HangSeen
from ascend_runner.report import stacks
from ascend_runner.text import duration, rank_list

LIMIT: Final = 60.0  # seconds for one sample of all ranks; only the user waits for them
COMPARED: Final = 10.0  # seconds for which the ranks are compared unless the user says otherwise
PAUSE: Final = 0.1  # seconds between two samples, at least; as long as a sample took, to leave the ranks their cores
ENOUGH: Final = 6  # samples in which a rank has stood out
FEWEST: Final = 3  # likewise, before it is named; fewer may be coincidence
NOT_COMPARED: Final = "without Python stacks, it is unknown which rank the others wait for"


def leaders(seen: Snapshot) -> dict[int, int]:
    """Return the pids of the running ranks by their numbers.

    They come from a report that anybody may have written, so only descendants of the job's first process count.
    """
    below = {found.pid for found in process_tree.descendants(seen.job.pid) if not found.is_zombie}
    return {rank_id: pid for rank_id, pid in seen.running_pids.items() if pid in below}


def text(pids: Mapping[int, int], py_spy: str, seconds: float) -> str:
    """Show the stacks of these ranks in one of the samples taken within `seconds`, and which ranks stood out.

    Their processes are not paused, so the stacks of those that run may be inexact. `py_spy` is the path of the program,
    or "" for kernel stacks, which are not compared.
    """
    collector = StackCollector(py_spy, may_pause=False)
    begin = time.monotonic()
    samples = [_sample(collector, pids)]
    pause = max(PAUSE, time.monotonic() - begin)
    while not (collector.refusal or max(_times(samples).values(), default=0) >= ENOUGH):
        if time.monotonic() + 2 * pause > begin + seconds:
            break
        time.sleep(pause)
        sample = _sample(collector, pids)
        if any(not group.frames for group in sample):  # a rank has ended
            break
        samples.append(sample)
    verdict, groups = compared(samples)
    title = f"stacks of {rank_list(pids)}, outliers first:"
    if verdict:
        title = f"{verdict} ({duration(time.monotonic() - begin)})\n{title}"
    elif collector.refusal and seconds and len(pids) > 1:
        title = f"{NOT_COMPARED}\n{title}"
    return stacks.text(HangSeen(groups, collector.refusal), title)


def _sample(collector: StackCollector, pids: Mapping[int, int]) -> tuple[StackGroup, ...]:
    return stack_groups.group(collector.collect(pids, LIMIT))


def compared(samples: Sequence[tuple[StackGroup, ...]]) -> tuple[str, tuple[StackGroup, ...]]:
    """Return a sentence on the ranks that stood out in these samples, and the sample that shows it best.

    With only a few samples, the sentence is "" and the last sample is returned.
    """
    if len(samples) < FEWEST:
        return "", samples[-1]
    times = _times(samples)
    most = max(times.values(), default=0)
    named = sorted(rank_id for rank_id, count in times.items() if 3 * count > 2 * most)
    if most < FEWEST or len(named) > stacks.MOST_SUSPECTS:
        return f"no rank stood out in {len(samples)} samples", samples[-1]
    shown = min(samples, key=lambda sample: len(_standing_out(sample).symmetric_difference(named)))
    shown = tuple(sorted(shown, key=lambda group: not set(named).issuperset(group.rank_ids)))  # these ranks first
    are_waiting = all(stacks.is_in_collective(group) for group in shown if not set(named).issuperset(group.rank_ids))
    others = ", and the others were waiting" if are_waiting else ""
    return f"{rank_list(named)} stood out in {most} of {len(samples)} samples{others}", shown


def _times(samples: Sequence[tuple[StackGroup, ...]]) -> Counter[int]:
    """Count for each rank in how many samples it stood out."""
    return Counter(rank_id for sample in samples for rank_id in _standing_out(sample))


def _standing_out(sample: Sequence[StackGroup]) -> frozenset[int]:
    """Return the few ranks that are elsewhere than all others and do not wait for them."""
    return frozenset(
        rank_id for group in stacks.suspects(sample) if not stacks.is_in_collective(group) for rank_id in group.rank_ids
    )

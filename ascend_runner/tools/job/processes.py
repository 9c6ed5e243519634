"""The processes of running ranks: what they use, and their stacks, which name the rank that the others wait for.

In a job that makes progress, a single sample shows little: for most of a step all ranks compute, and whichever reaches
a collective first looks like an outlier. So the stacks are sampled until a rank has stood out often enough.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Final

import attrs
import psutil

from ascend_runner.diagnosis import stacks as stack_groups
from ascend_runner.diagnosis.finding import StackGroup
from ascend_runner.diagnosis.stacks import StackCollector
from ascend_runner.guardian import process_tree
from ascend_runner.guardian.process_tree import Descendant
from ascend_runner.record.facts import HangSeen
from ascend_runner.text import duration, rank_list
from ascend_runner.tools.job.jobs import Snapshot
from ascend_runner.views import wording

WALK_INTERVAL: Final = 10.0  # seconds between two walks through the tree, whose cost grows with the threads
UNINTERRUPTIBLE: Final = "D"  # the state of a process that waits for a disk or a driver (proc(5))


@attrs.frozen(kw_only=True)
class Usage:
    """The resource usage of the processes of a rank.

    `cpu` is in percent of a core since the last measurement, None in the first one. `cpu_seconds` include the
    processes that they have waited for, `resident` is in bytes. `uninterruptible` is from the last walk.
    """

    cpu: float | None = None
    cpu_seconds: float = 0.0
    resident: int = 0
    processes: int = 0
    uninterruptible: int = 0


class ProcessMeter:
    """Measures the ranks below the first process of a job. Processes that are not below it are never measured."""

    def __init__(self, first_pid: int) -> None:
        self._first_pid = first_pid
        self._walked_at: float | None = None
        self._found: dict[int, Descendant] = {}
        self._processes: dict[int, psutil.Process] = {}
        self._times: dict[int, tuple[float, float]] = {}  # time of the last measurement, and the CPU seconds until then

    def look(self, leaders: Mapping[int, int], now: float) -> dict[int, Usage]:
        """Return the usage of each rank that runs; `leaders` are the pids of their first processes."""
        self._walk(leaders.values(), now)
        ranks = {pid: rank_id for rank_id, pid in leaders.items()}
        usages: dict[int, Usage] = {}
        for found in self._found.values():
            rank_id = self._rank_of(found.pid, ranks)
            usage = None if rank_id is None else self._measure(found, now)
            if rank_id is not None and usage is not None:
                usages[rank_id] = _sum(usages.get(rank_id, Usage()), usage)
        return usages

    def _walk(self, leaders: Collection[int], now: float) -> None:
        is_known = all(pid in self._found for pid in leaders)
        age = WALK_INTERVAL if self._walked_at is None else now - self._walked_at
        if age < WALK_INTERVAL and (is_known or age < 1.0):
            return
        self._walked_at = now
        self._found = {one.pid: one for one in process_tree.descendants(self._first_pid) if not one.is_zombie}
        self._processes = {pid: process for pid, process in self._processes.items() if pid in self._found}
        self._times = {pid: times for pid, times in self._times.items() if pid in self._found}

    def _rank_of(self, pid: int, ranks: Mapping[int, int]) -> int | None:
        while pid in self._found:
            if pid in ranks:
                return ranks[pid]
            pid = self._found[pid].parent
        return None

    def _measure(self, found: Descendant, now: float) -> Usage | None:
        uninterruptible = int(found.state == UNINTERRUPTIBLE)
        if process_tree.is_in_exec(found.pid):  # reading its figures would block as well
            return Usage(processes=1, uninterruptible=uninterruptible)
        try:
            process = self._processes.get(found.pid)
            if process is None:
                process = self._processes[found.pid] = psutil.Process(found.pid)
            times = process.cpu_times()
            resident = int(process.memory_info().rss)
        except psutil.Error:  # it has just ended, or is hidden
            return None
        seconds = times.user + times.system
        return Usage(
            cpu=self._percent(found.pid, seconds, now),
            cpu_seconds=seconds + times.children_user + times.children_system,
            resident=resident,
            processes=1,
            uninterruptible=uninterruptible,
        )

    def _percent(self, pid: int, seconds: float, now: float) -> float | None:
        before, self._times[pid] = self._times.get(pid), (now, seconds)
        if before is None or now <= before[0]:
            return None
        return max(0.0, 100 * (seconds - before[1]) / (now - before[0]))


def _sum(one: Usage, other: Usage) -> Usage:
    known = [usage.cpu for usage in (one, other) if usage.cpu is not None]
    return Usage(
        cpu=sum(known) if known else None,
        cpu_seconds=one.cpu_seconds + other.cpu_seconds,
        resident=one.resident + other.resident,
        processes=one.processes + other.processes,
        uninterruptible=one.uninterruptible + other.uninterruptible,
    )


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

    Their processes are not paused, so the stacks of running ones may be inexact. `py_spy` is the path of the program,
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
    return wording.text(HangSeen(groups, collector.refusal), title)


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
    if most < FEWEST or len(named) > wording.MOST_SUSPECTS:
        return f"no rank stood out in {len(samples)} samples", samples[-1]
    shown = min(samples, key=lambda sample: len(_standing_out(sample).symmetric_difference(named)))
    shown = tuple(sorted(shown, key=lambda group: not set(named).issuperset(group.rank_ids)))  # these ranks first
    are_waiting = all(wording.is_in_collective(group) for group in shown if not set(named).issuperset(group.rank_ids))
    others = ", and the others were waiting" if are_waiting else ""
    return f"{rank_list(named)} stood out in {most} of {len(samples)} samples{others}", shown


def _times(samples: Sequence[tuple[StackGroup, ...]]) -> Counter[int]:
    """Count for each rank in how many samples it stood out."""
    return Counter(rank_id for sample in samples for rank_id in _standing_out(sample))


def _standing_out(sample: Sequence[StackGroup]) -> frozenset[int]:
    """Return the few ranks that are elsewhere than all others and do not wait for them."""
    return frozenset(
        rank_id
        for group in wording.suspects(sample)
        if not wording.is_in_collective(group)
        for rank_id in group.rank_ids
    )

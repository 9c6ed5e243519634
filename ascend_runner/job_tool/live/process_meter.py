"""The CPU time and the memory of the processes of each rank."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, Optional

import attrs
import psutil

from ascend_runner.guardian import process_tree

WALK_INTERVAL: Final = 10.0  # seconds between two walks through the tree, whose cost grows with the threads


@attrs.frozen
class Usage:
    """What the processes of a rank use: percent of a core (None at the first look), and resident bytes."""

    cpu: Optional[float]
    memory: int


class ProcessMeter:
    """Measures the ranks below the first process of a job. Processes that are not below it are never measured."""

    def __init__(self, first_pid: int) -> None:
        self._first_pid = first_pid
        self._walked_at: Optional[float] = None
        self._parents: dict[int, int] = {}
        self._processes: dict[int, psutil.Process] = {}
        self._times: dict[int, tuple[float, float]] = {}  # when, and the CPU seconds until then

    def look(self, leaders: Mapping[int, int], now: float) -> dict[int, Usage]:
        """Return the usage of each rank that runs; `leaders` are the pids of their first processes."""
        self._walk(leaders.values(), now)
        ranks = {pid: rank_id for rank_id, pid in leaders.items()}
        usages: dict[int, Usage] = {}
        for pid in self._parents:
            rank_id = self._rank_of(pid, ranks)
            found = None if rank_id is None else self._measure(pid, now)
            if rank_id is not None and found is not None:
                usages[rank_id] = _sum(usages.get(rank_id), found)
        return usages

    def _walk(self, leaders: Collection[int], now: float) -> None:
        is_known = all(pid in self._parents for pid in leaders)
        age = WALK_INTERVAL if self._walked_at is None else now - self._walked_at
        if age < WALK_INTERVAL and (is_known or age < 1.0):
            return
        self._walked_at = now
        found = process_tree.descendants(self._first_pid)
        self._parents = {one.pid: one.parent for one in found if not one.is_zombie}
        self._processes = {pid: process for pid, process in self._processes.items() if pid in self._parents}
        self._times = {pid: times for pid, times in self._times.items() if pid in self._parents}

    def _rank_of(self, pid: int, ranks: Mapping[int, int]) -> Optional[int]:
        while pid in self._parents:
            if pid in ranks:
                return ranks[pid]
            pid = self._parents[pid]
        return None

    def _measure(self, pid: int, now: float) -> Optional[Usage]:
        try:
            process = self._processes.get(pid)
            if process is None:
                process = self._processes[pid] = psutil.Process(pid)
            times = process.cpu_times()
            memory = int(process.memory_info().rss)
        except psutil.Error:  # it has just ended, or is hidden
            return None
        seconds = times.user + times.system
        before = self._times.get(pid)
        self._times[pid] = now, seconds
        if before is None or now <= before[0]:
            return Usage(None, memory)
        return Usage(max(0.0, 100 * (seconds - before[1]) / (now - before[0])), memory)


def _sum(one: Optional[Usage], other: Usage) -> Usage:
    if one is None:
        return other
    known = [usage.cpu for usage in (one, other) if usage.cpu is not None]
    return Usage(sum(known) if known else None, one.memory + other.memory)

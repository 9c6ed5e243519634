"""Measures the processes of each rank: their number, CPU time and memory."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

import attrs
import psutil

from ascend_runner.guardian import process_tree
from ascend_runner.guardian.process_tree import Descendant

WALK_INTERVAL: Final = 10.0  # seconds between two walks through the tree, whose cost grows with the threads
UNINTERRUPTIBLE: Final = "D"  # the state of a process that waits for a disk or a driver (proc(5))


@attrs.frozen(kw_only=True)
class Usage:
    """The resource usage of the processes of a rank.

    `cpu` is in percent of a core since the last measurement, None in the first one. `cpu_seconds` include those of the
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
            uninterruptible=int(found.state == UNINTERRUPTIBLE),
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

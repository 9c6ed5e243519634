"""Reads what the processes of each rank use of this machine now."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import attrs
import psutil

from ascend_runner.guardian import process_tree
from ascend_runner.job_tool import rank_stacks
from ascend_runner.job_tool.snapshot import Snapshot

UNINTERRUPTIBLE: Final = "D"  # the state of a process that waits for a disk or a driver (proc(5))


@attrs.define(kw_only=True)
class Usage:
    """The usage of a rank's first process and of all processes below it.

    `cpu_seconds` include those of the processes that they have waited for, `resident` is in bytes.
    """

    cpu_seconds: float = 0.0
    resident: int = 0
    processes: int = 0
    uninterruptible: int = 0


def of_ranks(seen: Snapshot) -> dict[int, Usage]:
    """Return the usage of each running rank, as far as its processes can be seen from here."""
    if not (seen.is_alive and seen.job.is_of_this_machine and seen.job.has_guardian()):
        return {}
    ranks = {pid: rank_id for rank_id, pid in rank_stacks.leaders(seen).items()}
    found = {rank_id: Usage() for rank_id in ranks.values()}
    for process in process_tree.descendants(seen.job.pid):
        rank_id = ranks.get(process.pid, ranks.get(process.parent))
        if rank_id is None or process.is_zombie:
            continue
        ranks[process.pid] = rank_id
        usage = found[rank_id]
        usage.processes += 1
        usage.uninterruptible += process.state == UNINTERRUPTIBLE
        with suppress(psutil.Error):  # it has ended, or is hidden
            _add(usage, psutil.Process(process.pid))
    return found


def _add(usage: Usage, process: psutil.Process) -> None:
    with process.oneshot():
        times, memory = process.cpu_times(), process.memory_info()
    usage.cpu_seconds += times.user + times.system + times.children_user + times.children_system
    usage.resident += memory.rss

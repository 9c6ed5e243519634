"""What the kernel counts of memory: processes ended for lack of it, limit and peak of the own cgroup, /dev/shm.

Read once at the start and once at a failure; the difference tells whether a SIGKILL was the OOM killer's. Nothing here
needs a privilege, and nothing has to be there: what cannot be read is None. Loaded before a rank runs, so it imports
nothing that is not there already.

Sources: cgroups v2 (kernel's cgroup-v2.rst: memory.events, memory.max, memory.peak since 5.19), v1 (memory.rst:
memory.oom_control with oom_kill since 4.13, memory.limit_in_bytes, memory.max_usage_in_bytes), /proc/vmstat oom_kill
(4.13).
"""

from __future__ import annotations

import os

from ascend_runner.annotations import TYPE_CHECKING, Final, NamedTuple, Optional

from . import cgroup

if TYPE_CHECKING:
    from ascend_runner.diagnosis.endings import Circumstances

UNLIMITED: Final = 1 << 60  # bytes; v1 says "no limit" with a number near 2**63


class MemorySample(NamedTuple):
    """What the counters said at one moment; sizes in bytes, None: not known.

    `own_oom_kills` counts victims in the own memory cgroup, `machine_oom_kills` those of the whole machine. The limit
    is the lowest of the cgroup and those above it that can be seen, the peak is that of the cgroup with this limit.
    """

    own_oom_kills: Optional[int] = None
    machine_oom_kills: Optional[int] = None
    limit: Optional[int] = None
    peak: Optional[int] = None


# Where a memory cgroup counts its victims, holds its limit, and its peak.
_V1: Final = ("memory.oom_control", "memory.limit_in_bytes", "memory.max_usage_in_bytes")
_V2: Final = ("memory.events", "memory.max", "memory.peak")


def sample(root: str = "") -> MemorySample:
    """Read the counters; `root` is put before every path, for tests."""
    machine_oom_kills = _counter(cgroup.read(f"{root}/proc/vmstat"), b"oom_kill")
    found = cgroup.find("memory", _V1[0], _V2[0], root)
    if found is None:
        return MemorySample(machine_oom_kills=machine_oom_kills)

    events_file, limit_file, peak_file = _V1 if found.is_v1 else _V2
    folders = found.folders
    limits = [(_number(f"{folder}/{limit_file}"), folder) for folder in folders]
    known = [(limit, folder) for limit, folder in limits if limit is not None]
    limit, limited_by = min(known) if known else (None, folders[0])

    return MemorySample(
        own_oom_kills=_counter(cgroup.read(f"{folders[0]}/{events_file}"), b"oom_kill"),
        machine_oom_kills=machine_oom_kills,
        limit=limit,
        peak=_number(f"{limited_by}/{peak_file}"),
    )


def since(before: MemorySample, root: str = "") -> Circumstances:
    """Say what has happened since `before`, and how full /dev/shm is now. For a failure: it loads the diagnosis."""
    from ascend_runner.diagnosis.endings import Circumstances

    now = sample(root)
    shm_size, shm_used = _room(f"{root}/dev/shm")  # noqa: S108  asked how full it is, not used

    return Circumstances(
        own_oom_kills=_difference(before.own_oom_kills, now.own_oom_kills),
        machine_oom_kills=_difference(before.machine_oom_kills, now.machine_oom_kills),
        memory_limit=now.limit,
        memory_peak=now.peak,
        shm_size=shm_size,
        shm_used=shm_used,
    )


def _difference(before: int | None, now: int | None) -> int | None:
    return None if before is None or now is None else max(0, now - before)


def _room(path: str) -> tuple[int | None, int | None]:
    try:
        found = os.statvfs(path)
    except OSError:
        return None, None
    if not found.f_blocks:  # a tmpfs without a limit
        return None, None

    return found.f_blocks * found.f_frsize, (found.f_blocks - found.f_bfree) * found.f_frsize


def _counter(text: bytes, name: bytes) -> int | None:
    for line in text.splitlines():
        found, _, value = line.partition(b" ")
        if found == name and value.strip().isdigit():
            return int(value)
    return None


def _number(path: str) -> int | None:
    text = cgroup.read(path).strip()
    return int(text) if text.isdigit() and int(text) < UNLIMITED else None  # v2 says "max"

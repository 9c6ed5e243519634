"""The kernel's memory counters: processes killed by the OOM killer, limit and peak of this cgroup, /dev/shm.

Sampled at the start of a job and at a failure: the difference shows whether a SIGKILL came from the OOM killer. Needs
no privileges, and tolerates missing files: a counter that cannot be read is None.

Sources: cgroups v2 (kernel's cgroup-v2.rst: memory.events, memory.max, memory.peak since 5.19), v1 (memory.rst:
memory.oom_control with oom_kill since 4.13, memory.limit_in_bytes, memory.max_usage_in_bytes), /proc/vmstat oom_kill
(4.13).
"""

from __future__ import annotations

from typing import Final

import attrs

from ascend_runner.node import cores, disks
from ascend_runner.node.host import Host

UNLIMITED: Final = 1 << 60  # bytes; without a limit v1 reports a number near 2**63

# The files in which a memory cgroup counts its OOM kills, holds its limit, and its peak.
_V1: Final = ("memory.oom_control", "memory.limit_in_bytes", "memory.max_usage_in_bytes")
_V2: Final = ("memory.events", "memory.max", "memory.peak")


@attrs.frozen(kw_only=True)
class MemorySample:
    """The counters at one moment; sizes in bytes, None: not known.

    `own_oom_kills` counts victims in this memory cgroup, `machine_oom_kills` on the whole machine. The limit
    is the lowest of the cgroup and its visible parents, the peak is from the cgroup with this limit. The sizes of
    /dev/shm are None if it has no limit.
    """

    own_oom_kills: int | None = None
    machine_oom_kills: int | None = None
    limit: int | None = None
    peak: int | None = None
    shm_size: int | None = None
    shm_used: int | None = None


def group(host: Host) -> cores.Cgroup | None:
    """Return the control group that counts the memory of this process, or None if it cannot be found."""
    return cores.find_cgroup(host, "memory", _V1[0], _V2[0])


def working_set(host: Host) -> tuple[int | None, int | None]:
    """Return the memory in use in this cgroup, without file pages that can be dropped, and its limit; in bytes."""
    found = group(host)
    if found is None:
        return None, None
    limit, limited_by = _lowest_limit(host, found)
    used = _number(host, f"{limited_by}/{'memory.usage_in_bytes' if found.is_v1 else 'memory.current'}")
    lines = (line.split() for line in host.read_lines(f"{limited_by}/memory.stat"))
    name = "total_inactive_file" if found.is_v1 else "inactive_file"
    droppable = next((int(words[1]) for words in lines if words[:1] == [name]), 0)
    return (None if used is None else max(0, used - droppable)), limit


def _lowest_limit(host: Host, found: cores.Cgroup) -> tuple[int | None, str]:
    """Return the lowest limit of a cgroup and its parents, and the directory that has it; else the cgroup's own."""
    file = (_V1 if found.is_v1 else _V2)[1]
    limits = [(_number(host, f"{folder}/{file}"), folder) for folder in found.folders]
    known = [(limit, folder) for limit, folder in limits if limit is not None]
    return min(known) if known else (None, found.folders[0])


def sample(host: Host) -> MemorySample:
    """Read the counters."""
    shm_size, shm_used = _usage(host.path("/dev/shm"))  # noqa: S108  only its size is read
    machine = MemorySample(
        machine_oom_kills=_oom_kills(host.read_bytes("/proc/vmstat")), shm_size=shm_size, shm_used=shm_used
    )
    found = group(host)
    if found is None:
        return machine

    events_file, _limit_file, peak_file = _V1 if found.is_v1 else _V2
    limit, limited_by = _lowest_limit(host, found)
    return attrs.evolve(
        machine,
        own_oom_kills=_oom_kills(host.read_bytes(f"{found.folders[0]}/{events_file}")),
        limit=limit,
        peak=_number(host, f"{limited_by}/{peak_file}"),
    )


def _usage(path: str) -> tuple[int | None, int | None]:
    """Return size and use of a file system, or None for a tmpfs without a limit."""
    try:
        found = disks.measure(path)
    except OSError:
        return None, None
    return (found.size, found.size - found.free) if found.size else (None, None)


def _oom_kills(text: bytes) -> int | None:
    for line in text.splitlines():
        name, _, value = line.partition(b" ")
        if name == b"oom_kill" and value.strip().isdigit():
            return int(value)
    return None


def _number(host: Host, path: str) -> int | None:
    text = host.read_bytes(path).strip()
    return int(text) if text.isdigit() and int(text) < UNLIMITED else None  # v2 says "max"


def is_tmpfs(folder: str) -> bool:
    """Whether a directory is in memory, and not on a disk."""
    return disks.type_of(folder) == disks.TMPFS

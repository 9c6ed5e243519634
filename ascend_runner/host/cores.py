"""The cores of this node: how many the job may use, and which of them each rank gets.

The number is the lower of the affinity mask (sched_getaffinity(2), which includes a cpuset) and of the CPU quota of the
job's cgroup and its parents (the kernel's sched-bwc.rst and cgroup-v2.rst). A rank gets cores next to its NPU.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from typing import Final

import attrs

from ascend_runner.host import cgroup, npu
from ascend_runner.host.host import Host
from ascend_runner.text import parse_numbers

CORES: Final = "cores"  # each rank has cores of its own
NUMA: Final = "numa"  # each rank has all cores of its NUMA node
BINDINGS: Final = (CORES, NUMA)

NODES: Final = "/sys/devices/system/node"
CPUS: Final = "/sys/devices/system/cpu"


@attrs.frozen
class Placement:
    """The cores of each rank, in local order. `is_near`: all are next to their NPUs, not only spread evenly."""

    cores: tuple[frozenset[int], ...]
    is_near: bool


def available(host: Host, allowed: Collection[int] | None = None) -> int:
    """Count the cores that may be used at once, at least 1. A quota of 7.5 cores is 7, because 8 would be throttled.

    `allowed` are the cores of the affinity mask; None: that of the calling thread.
    """
    count = len(_allowed(host) if allowed is None else allowed)
    found = cgroup.find(host, "cpu", "cpu.cfs_quota_us", "cpu.max")
    quotas = [_quota(host, folder, is_v1=found.is_v1) for folder in found.folders] if found else []

    return max(1, min([count, *(quota for quota in quotas if quota is not None)]))


def place(host: Host, mode: str, nproc: int, devices: Sequence[int]) -> Placement:
    """Choose the cores of `nproc` ranks. `devices` are the ids of their NPUs in local order; empty: there are none.

    The cores next to an NPU are those of the `numa_node` of its PCI device. If that is unknown for one of the NPUs, or
    the affinity mask has none of these cores, all ranks are spread evenly over the NUMA nodes (NUMA) or the cores
    (CORES).
    """
    allowed = _allowed(host)
    nodes = _nodes(host, allowed)
    near = [npu.numa_node(host, device) for device in devices[:nproc]]
    is_near = len(near) == nproc and all(node in nodes for node in near)
    evenly = [sorted(nodes)[len(nodes) * rank // nproc] for rank in range(nproc)]
    homes = [node for node in near if node is not None] if is_near else evenly
    if mode == NUMA:
        return Placement(tuple(nodes[home] for home in homes), is_near)

    if not is_near:
        return Placement(tuple(_shares(host, allowed, nproc)), is_near=False)
    shares = {home: iter(_shares(host, nodes[home], homes.count(home))) for home in {*homes}}
    return Placement(tuple(next(shares[home]) for home in homes), is_near=True)


def numbers(text: str) -> frozenset[int]:
    """Read a list as the kernel writes it, "0-3,8" (cpuset(7), List format), or nothing if it is malformed."""
    try:
        return frozenset(parse_numbers(text))
    except ValueError:
        return frozenset()


def _allowed(host: Host) -> frozenset[int]:
    """Return the cores of the affinity mask; of another machine, those that are online."""
    return frozenset(os.sched_getaffinity(0)) if host.is_this_machine else numbers(host.read_text(f"{CPUS}/online"))


def _quota(host: Host, folder: str, *, is_v1: bool) -> int | None:
    """Return the quota of a cgroup in cores, or None if it has none."""
    if is_v1:
        words = [host.read_text(f"{folder}/{file}") for file in ("cpu.cfs_quota_us", "cpu.cfs_period_us")]
    else:
        words = host.read_text(f"{folder}/cpu.max").split()
    quota, period = [word.strip() for word in (*words, "", "")][:2]

    # No quota is -1 in v1 and "max" in v2.
    return int(quota) // int(period) if quota.isdigit() and period.isdigit() and int(period) else None


def _nodes(host: Host, allowed: frozenset[int]) -> dict[int, frozenset[int]]:
    """Return the allowed cores of each NUMA node that has some; without NUMA nodes all cores are one node."""
    found = {
        int(name[4:]): numbers(host.read_text(f"{NODES}/{name}/cpulist")) & allowed
        for name in host.listdir(NODES)
        if name.startswith("node") and name[4:].isdigit()
    }
    nodes = {node: cores for node, cores in found.items() if cores}
    return nodes or {0: allowed}


def _shares(host: Host, threads: frozenset[int], parts: int) -> list[frozenset[int]]:
    """Split into parts of nearly equal size; with more parts than cores, several parts get the same core.

    The threads of a core stay together if there is a core for each part.
    """
    cores: dict[int, list[int]] = {}
    for thread in sorted(threads):
        siblings = numbers(host.read_text(f"{CPUS}/cpu{thread}/topology/thread_siblings_list"))
        cores.setdefault(min(siblings, default=thread), []).append(thread)
    by_core = [cores[first] for first in sorted(cores)]
    pieces = by_core if len(cores) >= parts else [[thread] for thread in sorted(threads)]

    bounds = [len(pieces) * part // parts for part in range(parts + 1)]
    slices = (pieces[low : max(high, low + 1)] for low, high in zip(bounds, bounds[1:]))
    return [frozenset(thread for piece in own for thread in piece) for own in slices]

"""The cores of this node: how many the job may use, and which of them each rank is to have.

How many is the lower of the affinity mask (sched_getaffinity(2), a cpuset's included) and of the CPU quota of the own
cgroup and all above it (the kernel's sched-bwc.rst and cgroup-v2.rst). Which of them: those next to a rank's NPU.
`root` is put before every path, for tests.
"""

from __future__ import annotations

import os

from ascend_runner.annotations import TYPE_CHECKING, Final, NamedTuple

from . import cgroup

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

CORES: Final = "cores"  # each rank has cores of its own
NUMA: Final = "numa"  # each rank has all cores of its NUMA node

NODES: Final = "/sys/devices/system/node"
CPUS: Final = "/sys/devices/system/cpu"


class Placement(NamedTuple):
    """The cores of each rank, in local order; whether all are next to their NPUs, or only split evenly."""

    cores: tuple[frozenset[int], ...]
    is_near: bool


def available(root: str = "", allowed: Collection[int] | None = None) -> int:
    """Count the cores that may be used at once, at least 1; a quota of 7.5 cores is 7, for 8 would be throttled.

    `allowed` are the affinity mask's, those of the calling thread where not given.
    """
    count = len(_allowed() if allowed is None else allowed)
    found = cgroup.find("cpu", "cpu.cfs_quota_us", "cpu.max", root)
    quotas = [_quota(folder, is_v1=found.is_v1) for folder in found.folders] if found else []

    return max(1, min([count, *(quota for quota in quotas if quota is not None)]))


def place(mode: str, nproc: int, devices: Sequence[int], root: str = "") -> Placement:
    """Give each of `nproc` ranks its cores. `devices` are the ids of their NPUs, in local order; empty: none are there.

    Next to the NPU by the `numa_node` of its PCI device. Where that is not known for one of them, or the affinity mask
    leaves none of the cores there, all ranks are split evenly over the NUMA nodes (NUMA) or the cores (CORES).
    """
    from . import npu  # only with --bind, while all jobs count the cores

    allowed = _allowed(root)
    nodes = _nodes(allowed, root)
    near = [npu.numa_node(device, root) for device in devices[:nproc]]
    is_near = len(near) == nproc and all(node in nodes for node in near)
    homes = [node for node in near if node is not None] if is_near else _evenly(sorted(nodes), nproc)
    if mode == NUMA:
        return Placement(tuple(nodes[home] for home in homes), is_near)

    if not is_near:
        return Placement(tuple(_shares(allowed, nproc, root)), is_near=False)
    shares = {home: iter(_shares(nodes[home], homes.count(home), root)) for home in {*homes}}
    return Placement(tuple(next(shares[home]) for home in homes), is_near=True)


def numbers(text: str) -> frozenset[int]:
    """Read a list of the kernel's: "0-3,8" (cpuset(7), List format). What is malformed is left out."""
    found: set[int] = set()
    for part in text.strip().split(","):
        first, dash, last = part.partition("-")
        if first.isdigit() and (last.isdigit() or not dash):
            found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


def _allowed(root: str = "") -> frozenset[int]:
    """Give the cores of the affinity mask; below another root, those that are online there."""
    return numbers(cgroup.read(f"{root}{CPUS}/online").decode()) if root else frozenset(os.sched_getaffinity(0))


def _quota(folder: str, *, is_v1: bool) -> int | None:
    """Give the cores that a cgroup's quota is worth; None: it has none."""
    if is_v1:
        words = [cgroup.read(f"{folder}/{file}") for file in ("cpu.cfs_quota_us", "cpu.cfs_period_us")]
    else:
        words = cgroup.read(f"{folder}/cpu.max").split()
    quota, period = [word.strip() for word in (*words, b"", b"")][:2]

    # No quota is -1 in v1 and "max" in v2.
    return int(quota) // int(period) if quota.isdigit() and period.isdigit() and int(period) else None


def _nodes(allowed: frozenset[int], root: str) -> dict[int, frozenset[int]]:
    """Give the allowed cores of each NUMA node that has some; all are one node where the kernel tells of none."""
    try:
        names = os.listdir(root + NODES)
    except OSError:
        names = []
    found = {
        int(name[4:]): numbers(cgroup.read(f"{root}{NODES}/{name}/cpulist").decode()) & allowed
        for name in names
        if name.startswith("node") and name[4:].isdigit()
    }
    nodes = {node: cores for node, cores in found.items() if cores}

    return nodes or {0: allowed}


def _shares(threads: frozenset[int], parts: int, root: str) -> list[frozenset[int]]:
    """Split into parts of nearly equal size; with more parts than cores, several get the same one.

    The threads of one core stay together, as long as there is a core for each part.
    """
    cores: dict[int, list[int]] = {}
    for thread in sorted(threads):
        siblings = numbers(cgroup.read(f"{root}{CPUS}/cpu{thread}/topology/thread_siblings_list").decode())
        cores.setdefault(min(siblings, default=thread), []).append(thread)
    by_core = [cores[first] for first in sorted(cores)]
    pieces = by_core if len(cores) >= parts else [[thread] for thread in sorted(threads)]

    bounds = [len(pieces) * part // parts for part in range(parts + 1)]
    slices = (pieces[low : max(high, low + 1)] for low, high in zip(bounds, bounds[1:]))
    return [frozenset(thread for piece in own for thread in piece) for own in slices]


def _evenly(nodes: Sequence[int], nproc: int) -> list[int]:
    return [nodes[len(nodes) * rank // nproc] for rank in range(nproc)]

"""The cores of this node: how many the job may use, and which of them each rank gets; and the control groups.

The number is the lower of the affinity mask (sched_getaffinity(2), which includes a cpuset) and of the CPU quota of the
job's cgroup and its parents (the kernel's sched-bwc.rst and cgroup-v2.rst). A rank gets cores next to its NPU.

Control groups of a process are found where they are mounted: v1, v2, or both side by side. That needs no privileges,
and tolerates missing files. Sources: cgroups(7), proc(5) for mountinfo, the kernel's cgroup-v1 and cgroup-v2.rst.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

import attrs

from ascend_runner.node import npus
from ascend_runner.node.host import Host
from ascend_runner.text import parse_numbers


@attrs.frozen
class Cgroup:
    """The directories in which one controller has its files: its own cgroup first, then the parents."""

    is_v1: bool
    folders: tuple[str, ...]


def is_any_frozen(host: Host, pids: Iterable[int]) -> bool:
    """Whether the control group of any process is frozen, so that it cannot run, by `docker pause` for instance."""
    # Nearly all processes of a job are in the same group, which is checked once.
    return any(_is_frozen(host, membership) for membership in {host.read_bytes(f"/proc/{pid}/cgroup") for pid in pids})


def _is_frozen(host: Host, membership: bytes) -> bool:
    for found in _find_both(host, "freezer", ("freezer.state", "cgroup.events"), membership):
        if found.is_v1 and host.read_text(f"{found.folders[0]}/freezer.state").startswith(("FROZEN", "FREEZING")):
            return True
        if not found.is_v1 and "frozen 1" in host.read_lines(f"{found.folders[0]}/cgroup.events"):
            return True
    return False


def find_cgroup(host: Host, controller: str, v1_file: str, v2_file: str) -> Cgroup | None:
    """Return the directories that hold a controller's file, or None if there is none.

    With v1 and v2 side by side, the controller belongs to v1 if a v1 hierarchy has it.
    """
    return next(_find_both(host, controller, (v1_file, v2_file), host.read_bytes("/proc/self/cgroup")), None)


def path_of_memory(host: Host) -> str:
    """Return the path of this process's control group for memory, as it sees it, or "" if it is unknown."""
    paths = _paths(host.read_bytes("/proc/self/cgroup"), b"memory")
    return paths.get(True) or paths.get(False, "")


def _find_both(host: Host, controller: str, files: tuple[str, str], membership: bytes) -> Iterator[Cgroup]:
    """Find the directories in v1, then those in v2: a process may be frozen in one of them and thawed in the other.

    `membership` is the content of the /proc/PID/cgroup of the process.
    """
    paths = _paths(membership, controller.encode())
    mounts = _mounts(host.read_bytes("/proc/self/mountinfo"), controller.encode())
    for is_v1, file in zip((True, False), files):
        if is_v1 not in paths or is_v1 not in mounts:
            continue
        mount_root, mount_point = mounts[is_v1]
        candidates = _folders(mount_point, mount_root, paths[is_v1])
        folders = tuple(folder for folder in candidates if host.exists(f"{folder}/{file}"))
        if folders:
            yield Cgroup(is_v1, folders)


def _paths(text: bytes, controller: bytes) -> dict[bool, str]:
    """Decode /proc/PID/cgroup: the path in the controller's hierarchy of v1 (True), and in v2 (False)."""
    paths: dict[bool, str] = {}
    for line in text.splitlines():
        number, _, rest = line.partition(b":")
        controllers, _, path = rest.partition(b":")
        if controller in controllers.split(b","):
            paths[True] = os.fsdecode(path)
        elif number == b"0" and not controllers:
            paths[False] = os.fsdecode(path)
    return paths


def _mounts(text: bytes, controller: bytes) -> dict[bool, tuple[str, str]]:
    """Decode /proc/self/mountinfo: root and mount point of the hierarchy of v1 (True), and of v2 (False)."""
    mounts: dict[bool, tuple[str, str]] = {}
    for line in text.splitlines():
        before, _, after = line.partition(b" - ")
        if not after.startswith(b"cgroup"):
            continue
        kind, _source, options = [*after.split(), b"", b""][:3]
        mount_root, mount_point = [*before.split(), b"", b"", b"", b"", b""][3:5]
        if kind == b"cgroup2" or controller in options.split(b","):
            mounts[kind != b"cgroup2"] = (_unescaped(mount_root), _unescaped(mount_point))
    return mounts


def _folders(mount_point: str, mount_root: str, path: str) -> list[str]:
    """Return the directory of the cgroup `path`, and its parents up to the mount point.

    In a container only its part of the hierarchy is mounted, while the path may be the host's or relative to a cgroup
    namespace. If the two do not match, the mount point is the container's own cgroup.
    """
    base = "" if mount_root == "/" else mount_root
    inside = path[len(base) :] if f"{path}/".startswith(f"{base}/") and "/.." not in path else ""
    parts = [part for part in inside.split("/") if part]

    return ["/".join([mount_point, *parts[:count]]) for count in range(len(parts), -1, -1)]


def _unescaped(field: bytes) -> str:
    r"""Undo mountinfo's escapes of blanks (proc(5)): "\040" is a space."""
    for code in (b"040", b"011", b"012", b"134"):
        field = field.replace(b"\\" + code, bytes([int(code, 8)]))
    return os.fsdecode(field)


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

    `allowed` are the cores of the affinity mask; None: the mask of the calling thread.
    """
    count = len(_allowed(host) if allowed is None else allowed)
    found = find_cgroup(host, "cpu", "cpu.cfs_quota_us", "cpu.max")
    quotas = [_quota(host, folder, is_v1=found.is_v1) for folder in found.folders] if found else []

    return max(1, min([count, *(quota for quota in quotas if quota is not None)]))


def place(host: Host, mode: str, nproc: int, devices: Sequence[int]) -> Placement:
    """Choose the cores of `nproc` ranks. `devices` are the ids of their NPUs in local order; empty: there are none.

    The cores next to an NPU belong to the `numa_node` of its PCI device. If that is unknown for one of the NPUs, or
    the affinity mask has none of these cores, all ranks are spread evenly over the NUMA nodes (NUMA) or the cores
    (CORES).
    """
    allowed = _allowed(host)
    nodes = _nodes(host, allowed)
    near = [npus.numa_node(host, device) for device in devices[:nproc]]
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
    """Return the cores of the affinity mask; of another machine, the cores that are online."""
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

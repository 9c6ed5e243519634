"""Finds the control groups of a process that are mounted here: v1, v2, or both side by side.

Needs no privileges, and tolerates missing files. Sources: cgroups(7), proc(5) for mountinfo, the kernel's
cgroup-v1 and cgroup-v2.rst.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

import attrs

from ascend_runner.host.host import Host


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


def find(host: Host, controller: str, v1_file: str, v2_file: str) -> Cgroup | None:
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

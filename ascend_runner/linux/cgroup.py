"""Where this process' control groups are, as far as they are mounted here: v1, v2, or both side by side.

Nothing here needs a privilege, and nothing has to be there. Loaded before a rank runs, so it imports nothing that is
not there already. Sources: cgroups(7), proc(5) for mountinfo, the kernel's cgroup-v1 and cgroup-v2.rst.
"""

from __future__ import annotations

import os

from ascend_runner.annotations import Final, NamedTuple

READ_LIMIT: Final = 1 << 20  # bytes; mountinfo of a node with many containers has some 100 KB


class Cgroup(NamedTuple):
    """The folders of the own cgroup, and of those above it, that one controller has its files in; the own one first."""

    is_v1: bool
    folders: tuple[str, ...]


def find(controller: str, v1_file: str, v2_file: str, root: str = "") -> Cgroup | None:
    """Find the folders that hold a controller's file; `root` is put before every path, for tests.

    With v1 and v2 side by side a controller is v1's, if a v1 hierarchy has it. None: its files are nowhere to be seen.
    """
    paths = _paths(read(f"{root}/proc/self/cgroup"), controller.encode())
    mounts = _mounts(read(f"{root}/proc/self/mountinfo"), controller.encode())
    for is_v1, file in ((True, v1_file), (False, v2_file)):
        if is_v1 not in paths or is_v1 not in mounts:
            continue
        mount_root, mount_point = mounts[is_v1]
        candidates = _folders(root + mount_point, mount_root, paths[is_v1])
        folders = tuple(folder for folder in candidates if os.path.exists(f"{folder}/{file}"))
        if folders:
            return Cgroup(is_v1, folders)
    return None


def read(path: str) -> bytes:
    """Read a file of the kernel's; empty where that cannot be."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        pieces = []
        left = READ_LIMIT
        while left > 0 and (piece := os.read(fd, min(left, 65536))):
            pieces.append(piece)
            left -= len(piece)
        return b"".join(pieces)
    except OSError:
        return b""
    finally:
        os.close(fd)


def _paths(text: bytes, controller: bytes) -> dict[bool, str]:
    """Read /proc/self/cgroup: the path in the controller's hierarchy of v1 (True), and in v2 (False)."""
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
    """Read /proc/self/mountinfo: which part of a hierarchy is mounted where. The controller's v1 (True), v2 (False)."""
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
    """Give the folder of the cgroup `path`, and those above it up to the mount point.

    In a container the hierarchy's own part is mounted, while the path may be the host's; or the path is relative to a
    cgroup namespace. Where the two do not fit, the mount point is the container's own cgroup.
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

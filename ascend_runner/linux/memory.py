"""What the kernel counts of memory: processes ended for lack of it, limit and peak of the own cgroup, /dev/shm.

Read once at the start and once at a failure; the difference tells whether a SIGKILL was the OOM killer's. Nothing here
needs a privilege, and nothing has to be there: what cannot be read is None. Loaded before a rank runs, so it imports
nothing that is not there already.

Sources: cgroups v2 (kernel's cgroup-v2.rst: memory.events, memory.max, memory.peak since 5.19), v1 (memory.rst:
memory.oom_control with oom_kill since 4.13, memory.limit_in_bytes, memory.max_usage_in_bytes), /proc/vmstat oom_kill
(4.13), proc(5) for mountinfo, cgroups(7).
"""

from __future__ import annotations

import os

from ascend_runner.annotations import TYPE_CHECKING, Final, NamedTuple, Optional

if TYPE_CHECKING:
    from ascend_runner.diagnosis.endings import Circumstances

UNLIMITED: Final = 1 << 60  # bytes; v1 says "no limit" with a number near 2**63
READ_LIMIT: Final = 1 << 20  # bytes; mountinfo of a node with many containers has some 100 KB


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
    machine_oom_kills = _counter(_read(f"{root}/proc/vmstat"), b"oom_kill")
    found = _own_cgroup(root)
    if found is None:
        return MemorySample(machine_oom_kills=machine_oom_kills)

    (events_file, limit_file, peak_file), folders = found
    limits = [(_number(f"{folder}/{limit_file}"), folder) for folder in folders]
    known = [(limit, folder) for limit, folder in limits if limit is not None]
    limit, limited_by = min(known) if known else (None, folders[0])

    return MemorySample(
        own_oom_kills=_counter(_read(f"{folders[0]}/{events_file}"), b"oom_kill"),
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


# --- Where the own cgroup is -----------------------------------------------------------------------------------------


def _own_cgroup(root: str) -> tuple[tuple[str, str, str], list[str]] | None:
    """Give the folders of the own memory cgroup and of those above it, as far as they are mounted here.

    With v1 and v2 side by side, memory is v1's, if a v1 hierarchy has it.
    """
    paths = _cgroup_paths(_read(f"{root}/proc/self/cgroup"))
    mounts = _cgroup_mounts(_read(f"{root}/proc/self/mountinfo"))
    for files, is_v1 in ((_V1, True), (_V2, False)):
        if is_v1 not in paths or is_v1 not in mounts:
            continue
        mount_root, mount_point = mounts[is_v1]
        folders = _folders(root + mount_point, mount_root, paths[is_v1])
        if os.path.exists(f"{folders[0]}/{files[0]}"):
            return files, folders
        if os.path.exists(f"{folders[-1]}/{files[0]}"):
            return files, folders[-1:]
    return None


def _cgroup_paths(text: bytes) -> dict[bool, str]:
    """Read /proc/self/cgroup: the path in v1's memory hierarchy (True), and in v2 (False)."""
    paths: dict[bool, str] = {}
    for line in text.splitlines():
        number, _, rest = line.partition(b":")
        controllers, _, path = rest.partition(b":")
        if b"memory" in controllers.split(b","):
            paths[True] = os.fsdecode(path)
        elif number == b"0" and not controllers:
            paths[False] = os.fsdecode(path)
    return paths


def _cgroup_mounts(text: bytes) -> dict[bool, tuple[str, str]]:
    """Read /proc/self/mountinfo: which part of the hierarchy is mounted where. v1's memory (True), and v2 (False)."""
    mounts: dict[bool, tuple[str, str]] = {}
    for line in text.splitlines():
        before, _, after = line.partition(b" - ")
        if not after.startswith(b"cgroup"):
            continue
        kind, _source, options = [*after.split(), b"", b""][:3]
        mount_root, mount_point = [*before.split(), b"", b"", b"", b"", b""][3:5]
        if kind == b"cgroup2" or b"memory" in options.split(b","):
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


def _counter(text: bytes, name: bytes) -> int | None:
    for line in text.splitlines():
        found, _, value = line.partition(b" ")
        if found == name and value.strip().isdigit():
            return int(value)
    return None


def _number(path: str) -> int | None:
    text = _read(path).strip()
    return int(text) if text.isdigit() and int(text) < UNLIMITED else None  # v2 says "max"


def _read(path: str) -> bytes:
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

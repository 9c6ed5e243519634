"""The limits of this node: free space on disks, resource limits, and the time that a job has to stop.

Sources: ModelArts' own check before training (memlock, /dev/shm), Kubernetes' and Slurm's default grace periods.
"""

from __future__ import annotations

import os
import resource
from typing import Final

import attrs

from ascend_runner.check.context import CheckContext, Findings
from ascend_runner.host import bounded
from ascend_runner.host.host import Host
from ascend_runner.platforms.detect import KUBERNETES
from ascend_runner.problems import Problem, error, warning
from ascend_runner.text import size

MIB: Final = 1 << 20  # bytes
ENOUGH: Final = 1024 * MIB  # what ModelArts requires of /dev/shm; a log directory with less is full within hours
NEARLY_FULL: Final = 16 * MIB
ENOUGH_FILES: Final = 10_000  # inodes; a job makes some per rank, a compile cache thousands

MORE_ROOM: Final = {
    "log directory": "free some space, or use another --log-dir",
    "working directory": "free some space, or use another --workdir",
    "shared memory": "increase it: mount an emptyDir with medium Memory at /dev/shm, or use docker --shm-size",
}

MEMLOCK: Final = 16_000 * 1024  # bytes; what ModelArts requires for memory that the network card reads itself
IPC_LOCK: Final = 14  # linux/capability.h
# ModelArts requires a million of each; most clusters allow less and train well. A rank with its workers uses hundreds.
OPEN_FILES: Final = 4096
PROCESSES: Final = 16_384

# The settings of workload managers for the time between SIGTERM and SIGKILL. Both are 30 seconds by default.
KILL_AFTER: Final = {"Kubernetes": "terminationGracePeriodSeconds", "Slurm": "KillWait"}
GRACE: Final = 30.0
LEEWAY: Final = 5.0  # seconds after the grace: SIGKILL, the sweep, the last lines of the logs


@attrs.frozen(kw_only=True)
class Limit:
    """A resource of getrlimit(2): how much is enough, in which unit it is shown, why it matters and how to raise it."""

    name: str
    number: int
    enough: int
    unit: int
    stake: str
    remedy: str


LIMITS: Final = (
    Limit(
        name="locked memory",
        number=resource.RLIMIT_MEMLOCK,
        enough=MEMLOCK,
        unit=1024,
        stake="RDMA and HCCL lock host memory",
        remedy="add the capability IPC_LOCK to the container, or use docker --ulimit memlock=-1",
    ),
    Limit(
        name="open files",
        number=resource.RLIMIT_NOFILE,
        enough=OPEN_FILES,
        unit=1,
        stake="data loaders open many files",
        remedy="use docker --ulimit nofile=1048576",
    ),
    Limit(
        name="processes",
        number=resource.RLIMIT_NPROC,
        enough=PROCESSES,
        unit=1,
        stake="every thread of this user counts",
        remedy="use docker --ulimit nproc=-1",
    ),
)


def room(context: CheckContext) -> Findings:
    """Report the free space where the job writes, and whether it has permission to write there."""
    plan = context.prepared.plan
    folders = {
        "log directory": context.prepared.context.log_dir,
        "working directory": plan.processes[0].cwd if plan else context.prepared.context.workdir("device0"),
        "shared memory": "/dev/shm",  # noqa: S108  only measured
    }
    answers = bounded.call_each(
        list(folders), lambda name: _measure(context.host.path(folders[name])), context.patience
    )
    fine: list[str] = []
    for name, path in folders.items():
        found = answers.get(name)
        problem = room_problem(name, path, found, context.patience)
        if problem:
            yield problem
        elif found:
            fine.append(f"{name} {path} {size(found.free)}" if found.size else f"{name} {path} unlimited")
    if fine:
        yield f"free: {', '.join(fine)}"


@attrs.frozen(kw_only=True)
class Room:
    """Free space of a directory, or of its nearest existing parent: bytes (`size` 0: no limit) and inodes."""

    path: str
    is_writable: bool
    free: int
    size: int
    files: int


def room_problem(name: str, path: str, found: Room | None, patience: float) -> Problem | None:
    """Return the problem of a directory, if any. `found` is None if the disk did not respond in time."""
    folder = f"{name} {path}"
    if found is None:
        return error(
            f"{folder}: no response within {patience:g} s",
            "use another directory, or repair its file system",
        )
    if not found.is_writable:
        return error(
            f"{folder}: user {os.geteuid()} has no permission to write to {found.path}",
            "use another directory, or change its permissions",
        )
    if found.size and found.free < ENOUGH:
        make = error if found.free < NEARLY_FULL else warning
        return make(f"{folder}: only {size(found.free)} of {size(found.size)} free", MORE_ROOM[name])
    if found.files < ENOUGH_FILES:
        return warning(f"{folder}: only {found.files} inodes free", MORE_ROOM[name])
    return None


def _measure(path: str) -> Room | None:
    """Return the free space of a directory, which may not exist yet, or None if it is not accessible."""
    while not os.path.isdir(path) and path != os.path.dirname(path):
        path = os.path.dirname(path)
    try:
        found = os.statvfs(path)
    except OSError:
        return None
    return Room(
        path=path,
        is_writable=os.access(path, os.W_OK | os.X_OK),
        free=found.f_bavail * found.f_frsize,
        size=found.f_blocks * found.f_frsize,
        files=found.f_favail if found.f_files else ENOUGH_FILES,  # some file systems do not count them
    )


def limits(context: CheckContext) -> Findings:
    """Compare this process's limits, which ranks inherit, with what training needs."""
    found = [finding_of_limit(limit, resource.getrlimit(limit.number)[0]) for limit in LIMITS]
    if _may_lock_memory(context.host):
        found[0] = "locked memory unlimited (CAP_IPC_LOCK)"
    yield from (finding for finding in found if isinstance(finding, Problem))
    fine = [finding for finding in found if isinstance(finding, str)]
    if fine:
        yield ", ".join(fine)


def _may_lock_memory(host: Host) -> bool:
    """Whether this process has CAP_IPC_LOCK, which lifts the limit of locked memory (capabilities(7))."""
    lines = host.read_lines("/proc/self/status")
    effective = next((line.split()[1] for line in lines if line.startswith("CapEff")), "0")
    return bool(int(effective, 16) >> IPC_LOCK & 1)


def finding_of_limit(limit: Limit, soft: int) -> str | Problem:
    """Compare the soft limit of one resource with the amount that suffices."""
    if soft == resource.RLIM_INFINITY:
        return f"{limit.name} unlimited"
    value = f"{soft // limit.unit}{' KiB' if limit.unit > 1 else ''}"
    if soft >= limit.enough:
        return f"{limit.name} {value}"
    return warning(f"{limit.name}: {value}, less than {limit.enough // limit.unit} ({limit.stake})", limit.remedy)


def grace(context: CheckContext) -> Findings:
    """Compare --grace with the time between the platform's SIGTERM and its SIGKILL."""
    seconds, node = context.settings.grace, context.prepared.node
    manager = (node.workload_manager if node else "") or ("Kubernetes" if context.environ.get(KUBERNETES) else "")
    if not manager:
        yield f"{seconds:g} s"
        return

    if seconds + LEEWAY > GRACE:
        yield warning(
            f"--grace is {seconds:g} s, but by default {manager} kills all processes after {GRACE:g} s",
            f"set {KILL_AFTER[manager]} to {seconds + LEEWAY:g} or more, or --grace to {GRACE - LEEWAY:g} or less",
        )
    else:
        yield f"{seconds:g} s, less than the {GRACE:g} s that {manager} allows by default"

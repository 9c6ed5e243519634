"""The machine around the job: ports, names of other nodes, room on disks, limits, the time to end.

Sources: ModelArts' own check before training (memlock, /dev/shm), HCCL's environment variable reference (its ports,
EI0019), proc(5) for /proc/net/tcp, Kubernetes' and Slurm's defaults for the time to end.
"""

from __future__ import annotations

import os
import resource

from ascend_runner.annotations import TYPE_CHECKING, Final, NamedTuple
from ascend_runner.job.plan import Surroundings, find_log_dir
from ascend_runner.linux import bounded
from ascend_runner.linux.cgroup import read
from ascend_runner.linux.open_files import name_of, open_files
from ascend_runner.platforms.variables import HCCL_BASE_PORT, HCCL_PORTS, is_whole_number

from .line import Line, error, ok, warning

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from .scene import Scene

LISTEN: Final = "0A"  # a socket's state in /proc/net/tcp
INODE: Final = 9  # its column there
HCCL: Final = "HCCL"
MOST_NAMED: Final = 8
MIB: Final = 1 << 20  # bytes
ENOUGH: Final = 1024 * MIB  # what ModelArts wants of /dev/shm; a log folder with less is full before the morning
NEXT_TO_NOTHING: Final = 16 * MIB
ENOUGH_FILES: Final = 10_000  # inodes; a job makes some per rank, a compile cache thousands

MORE_ROOM: Final = {
    "log folder": "clear it, or choose another by --log-dir",
    "work folder": "clear it, or choose another by --workdir",
    "shared memory": "give the container more: an emptyDir with medium Memory at /dev/shm, or docker --shm-size",
}

MEMLOCK: Final = 16_000 * 1024  # bytes; what ModelArts wants, for memory that the network card reads by itself
IPC_LOCK: Final = 14  # linux/capability.h
# ModelArts wants a million of each; most clusters give less and train well. A rank with its workers takes some hundred.
OPEN_FILES: Final = 4096
PROCESSES: Final = 16_384

POD_GRACE: Final = (
    30.0  # seconds; Kubernetes' terminationGracePeriodSeconds, and Slurm's KillWait, unless set otherwise
)
NO_PODS: Final = ("Open MPI", "Hydra (MPICH, Intel MPI)")  # platforms that are not Kubernetes' by themselves
LEEWAY: Final = 5.0  # seconds after the grace: SIGKILL, the sweep, the last lines of the logs


class Limit(NamedTuple):
    """A resource of getrlimit(2): how much is enough and in which unit it is said; why, and how to have more."""

    name: str
    number: int
    enough: int
    unit: int
    stake: str
    remedy: str


LIMITS: Final = (
    Limit(
        "locked memory",
        resource.RLIMIT_MEMLOCK,
        MEMLOCK,
        1024,
        "RDMA and HCCL lock host memory",
        "give the container the capability IPC_LOCK, or docker --ulimit memlock=-1",
    ),
    Limit(
        "open files", resource.RLIMIT_NOFILE, OPEN_FILES, 1, "data loaders open many", "docker --ulimit nofile=1048576"
    ),
    Limit(
        "processes", resource.RLIMIT_NPROC, PROCESSES, 1, "all threads of this user count", "docker --ulimit nproc=-1"
    ),
)


def ports(scene: Scene) -> Iterator[Line]:
    """Say who sits on the ports that the ranks will want: node 0's meeting point, and HCCL's own where NPUs meet."""
    node = scene.node
    wanted: dict[int, str] = {}
    if scene.npus and not scene.environ.get("HCCL_HOST_SOCKET_PORT_RANGE"):
        moved = scene.environ.get("HCCL_IF_BASE_PORT", "")
        base = int(moved) if is_whole_number(moved) else HCCL_BASE_PORT
        wanted.update(dict.fromkeys(range(base, base + HCCL_PORTS), HCCL))
    is_met_already = scene.job is not None and bool(scene.job.ranks) and scene.job.is_passed_through  # by its starter
    if node and node.node_rank == 0 and not is_met_already:
        wanted[node.master_port] = "MASTER_PORT"

    taken = {socket.port: socket for socket in _sockets(scene.root) if socket.port in wanted}
    pids = _pids({socket.inode for socket in taken.values()}, scene.root)
    for port, socket in sorted(taken.items()):
        holder = f"process {name_of(pids[socket.inode], scene.root)}" if socket.inode in pids else "a process"
        if socket.is_listening:
            yield error(
                f"port {port} ({wanted[port]}) is taken: {holder} listens there",
                "end it if it is an earlier job's; HCCL would say EI0019"
                if wanted[port] == HCCL
                else "end it if it is an earlier job's, or set another MASTER_PORT on all nodes",
            )
        else:
            yield warning(
                f"port {port} ({wanted[port]}) is taken by a connection of {holder}",
                "if it stays: sysctl net.ipv4.ip_local_reserved_ports keeps the kernel from giving such ports away",
            )
    if wanted and not taken:
        numbers = sorted(port for port, owner in wanted.items() if owner == HCCL)
        told = [f"{numbers[0]}-{numbers[-1]} (HCCL)"] if numbers else []
        told += [f"{port} (MASTER_PORT)" for port, owner in wanted.items() if owner != HCCL]
        yield ok(f"free: {', '.join(told)}")


class _Socket(NamedTuple):
    is_listening: bool
    port: int
    inode: str


def _sockets(root: str) -> list[_Socket]:
    """Read who has a local TCP port, those who listen last. Who only waits for the last packets (inode 0) has none."""
    rows = [line.split() for name in ("tcp", "tcp6") for line in _lines(f"{root}/proc/net/{name}")[1:]]
    return sorted(
        _Socket(row[3] == LISTEN, int(row[1].rpartition(":")[2], 16), row[INODE])
        for row in rows
        if len(row) > INODE and row[INODE] != "0"
    )


def _lines(path: str) -> list[str]:
    return read(path).decode(errors="replace").splitlines()


def _pids(inodes: set[str], root: str) -> dict[str, int]:
    targets = {f"socket:[{inode}]": inode for inode in inodes}
    if not targets:
        return {}
    return {targets[found.target]: found.pid for found in open_files(root) if found.target in targets}


def names(scene: Scene) -> Iterator[Line]:
    """Say whether the other nodes' names are known to the name server. Nothing where nobody names other nodes."""
    node = scene.node
    if node is None or node.nnodes == 1:
        return
    hosts = list(dict.fromkeys(filter(None, (node.master_addr, *node.hosts))))
    if hosts:
        yield from judge_names(hosts, bounded.ask_all(hosts, _resolves, scene.patience), scene.patience)


def judge_names(hosts: Sequence[str], answers: Mapping[str, bool], patience: float) -> Iterator[Line]:
    """Judge what a name server has said of hosts within `patience` seconds; who is missing has got no answer."""
    nodes = f"{len(hosts)} node{'s' if len(hosts) > 1 else ''}"
    unknown = [host for host in hosts if answers.get(host) is False]
    silent = [host for host in hosts if host not in answers]
    if unknown:
        yield error(
            f"{_some(unknown)} of {nodes} {'is' if len(unknown) == 1 else 'are'} not known by name",
            "their pods may not run yet, or the job has no headless service (Volcano: the svc plugin)",
        )
    if silent:
        yield error(
            f"no answer within {patience:g} s to where {_some(silent)} of {nodes} are",
            "look at the name servers in /etc/resolv.conf",
        )
    if not unknown and not silent:
        yield ok(f"{len(hosts)} known" if len(hosts) > 1 else f"{hosts[0]} is known")


def _resolves(host: str) -> bool:
    import socket  # 4 ms, only where there are other nodes

    try:
        return bool(socket.getaddrinfo(host, None))
    except (OSError, UnicodeError):  # the latter for a name with an empty or an overlong part
        return False


def _some(hosts: Sequence[str]) -> str:
    more = len(hosts) - MOST_NAMED
    return ", ".join(hosts[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def room(scene: Scene) -> Iterator[Line]:
    """Say how much room is left where the job writes, and whether it may write there at all."""
    job = scene.job or scene.trial
    surroundings = Surroundings(scene.environ, scene.cwd, "", os.path.isdir)
    folders = {
        "log folder": job.log_dir if job else find_log_dir(scene.settings, surroundings),
        "work folder": job.processes[0].cwd if job else scene.cwd,
        "shared memory": "/dev/shm",  # noqa: S108  asked how full it is, not used
    }
    answers = bounded.ask_all(list(folders), lambda what: _ask(scene.root + folders[what]), scene.patience)
    fine: list[str] = []
    for what, path in folders.items():
        found = answers.get(what)
        line = judge_room(what, path, found, scene.patience)
        if line:
            yield line
        elif found:
            fine.append(f"{what} {path} {_said(found.free)}" if found.size else f"{what} {path} without limit")
    if fine:
        yield ok(f"free: {', '.join(fine)}")


class Room(NamedTuple):
    """What is left in a folder, or in the nearest above it that is there: bytes (`size` 0: no limit) and inodes."""

    path: str
    is_writable: bool
    free: int
    size: int
    files: int


def judge_room(what: str, path: str, found: Room | None, patience: float) -> Line | None:
    """Judge one folder; None for the best that can be said. `found` is None where nobody answered in time."""
    said = f"{what} {path}"
    if found is None:
        return error(f"{said} gave no answer within {patience:g} s", "its file system hangs: choose another")
    if not found.is_writable:
        return error(f"{said}: user {os.geteuid()} must not write to {found.path}", "choose another, or have it opened")
    if found.size and found.free < ENOUGH:
        say = error if found.free < NEXT_TO_NOTHING else warning
        return say(f"{said} has {_said(found.free)} left of {_said(found.size)}", MORE_ROOM[what])
    if found.files < ENOUGH_FILES:
        return warning(f"{said} has room for {found.files} more files only (inodes)", MORE_ROOM[what])
    return None


def _ask(path: str) -> Room | None:
    """Look at a folder; None where it cannot be reached."""
    above = _existing(path)
    try:
        found = os.statvfs(above)
    except OSError:
        return None
    return Room(
        above,
        os.access(above, os.W_OK | os.X_OK),
        found.f_bavail * found.f_frsize,
        found.f_blocks * found.f_frsize,
        found.f_favail if found.f_files else ENOUGH_FILES,  # some file systems do not count them
    )


def _existing(path: str) -> str:
    """Give the folder itself, or the nearest above it that is there."""
    while not os.path.isdir(path) and path != os.path.dirname(path):
        path = os.path.dirname(path)
    return path


def limits(scene: Scene) -> Iterator[Line]:
    """Compare this process' limits, which ranks inherit, with what training takes."""
    lines = [judge_limit(limit, resource.getrlimit(limit.number)[0]) for limit in LIMITS]
    if _may_lock_memory(scene.root):
        lines[0] = ok("locked memory unlimited (CAP_IPC_LOCK)")
    yield from (line for line in lines if line.to_do)
    fine = [line.found for line in lines if not line.to_do]
    if fine:
        yield ok(", ".join(fine))


def _may_lock_memory(root: str) -> bool:
    """Whether this process has CAP_IPC_LOCK, for which the limit of locked memory does not count (capabilities(7))."""
    effective = next((line.split()[1] for line in _lines(f"{root}/proc/self/status") if line.startswith("CapEff")), "0")
    return bool(int(effective, 16) >> IPC_LOCK & 1)


def judge_limit(limit: Limit, soft: int) -> Line:
    """Judge the soft limit of one resource."""
    if soft == resource.RLIM_INFINITY:
        return ok(f"{limit.name} unlimited")
    said = f"{soft // limit.unit}{' KiB' if limit.unit > 1 else ''}"
    if soft >= limit.enough:
        return ok(f"{limit.name} {said}")
    return warning(
        f"{limit.name}: {said}, expected {limit.enough // limit.unit} or more ({limit.stake})",
        limit.remedy,
    )


def grace(scene: Scene) -> Iterator[Line]:
    """Compare --grace with the time that the platform leaves between its SIGTERM and its SIGKILL."""
    seconds = scene.settings.grace
    node = scene.node
    platform = node.platform if node and node.witness else ""
    if platform == "Slurm":
        knob, place = "KillWait", "Slurm"
    elif scene.environ.get("KUBERNETES_SERVICE_HOST") or (platform and platform not in NO_PODS):
        knob, place = "terminationGracePeriodSeconds", "Kubernetes"
    else:
        yield ok(f"{seconds:g} s")
        return

    if seconds + LEEWAY > POD_GRACE:
        yield warning(
            f"--grace is {seconds:g} s, and {place} kills all after {POD_GRACE:g} s, unless set otherwise",
            f"let {knob} be {seconds + LEEWAY:g} or more, or --grace {POD_GRACE - LEEWAY:g} or less",
        )
    else:
        yield ok(f"{seconds:g} s, less than the {POD_GRACE:g} s that {place} leaves by default")


def _said(size: int) -> str:
    return f"{size / (1 << 30):.1f} GiB" if size >= ENOUGH else f"{size // MIB} MiB"

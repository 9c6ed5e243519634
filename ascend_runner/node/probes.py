"""The probes of this node: `all_probes` lists them. Disks, memory, limits, ports and network are here.

Sources: ModelArts' own check before training (memlock, /dev/shm); HCCL's reference of environment variables (its ports,
EI0019); proc(5) for /proc/net/tcp; the kernel's Documentation/ABI/testing/sysfs-class-net and sysfs-class-infiniband,
and Documentation/accounting/psi.rst.
"""

from __future__ import annotations

import os
import re
import resource
import socket
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final

import attrs

from ascend_runner.errors import reason
from ascend_runner.node import bounded, disks, memory, network
from ascend_runner.node.findings import Defect, Findings, Node, Place, Probe, UnusableError
from ascend_runner.node.host import Host
from ascend_runner.node.network import PortUser
from ascend_runner.node.npu_probes import DeviceNodes, Links, NpuHealth, devices, leftovers, software
from ascend_runner.text import abbreviated, counted, size

HCCL: Final = "HCCL"  # the user of some ports
NETWORK: Final = "/sys/class/net"
INFINIBAND: Final = "/sys/class/infiniband"
PRESSURES: Final = ("memory", "io")  # full pressure on the CPU of a whole system is undefined
UNUSABLE_NODE: Final = "exclude this node from the job"
OTHER_DISK: Final = "use another directory, or repair its file system"


def all_probes(node: Node) -> tuple[Probe, ...]:
    """Return the probes of a node, in the order of `--check`: quick ones first."""
    return (
        Probe(source="/dev", look=partial(devices, node), subject="devices", is_steady=True),
        Probe(source="/proc", look=partial(leftovers, node), subject="leftovers"),
        Probe(source="/proc/net/tcp", look=partial(ports, node), subject="ports"),
        Probe(source="the driver and CANN", look=partial(software, node), subject="software", is_steady=True),
        Probe(source="npu-smi", look=NpuHealth(node).look, subject="health", remedy=UNUSABLE_NODE, is_watched=True),
        Probe(source="/dev", look=DeviceNodes(node).look, is_watched=True),
        Probe(source="hccn_tool", look=Links(node).look, subject="links", is_steady=True, is_watched=True),
        Probe(source=NETWORK, look=Network(node).look, is_watched=True),
        Probe(source=INFINIBAND, look=InfiniBand(node).look, is_watched=True),
        Probe(source="the name server", look=partial(names, node), subject="other nodes", is_steady=True),
        *(_of_place(node, place) for place in node.places),
        Probe(source="/proc and the control group", look=partial(used_memory, node), subject="memory", is_watched=True),
        Probe(source="getrlimit", look=partial(limits, node), subject="limits", is_steady=True),
    )


def _of_place(node: Node, place: Place) -> Probe:
    """Return the probe of one directory. Each has its own, since the disk of another may hang."""
    return Probe(
        source=f"{place.name} {place.path}",
        look=partial(space, node, place),
        subject="space",
        heading="free: ",
        remedy=OTHER_DISK,
        is_steady=True,
        is_watched=True,
    )


GIB: Final = 1 << 30
ENOUGH: Final = (GIB, 0.05)  # bytes, and part of a small file system; less room is a warning
NEARLY_NONE: Final = (GIB >> 6, 0.005)  # less than this is an error
ENOUGH_INODES: Final = (10_000, 0.05)  # likewise, in files; a compile cache makes thousands
NEARLY_NO_INODES: Final = (100, 0.005)


def space(node: Node, place: Place) -> Findings:
    """Report the free space of a directory that may not exist yet, and whether the job may write there."""
    title, folder = f"{place.name} {place.path}", disks.nearest_folder(node.host.path(place.path))
    try:
        found = disks.measure(folder)
    except OSError as error:
        raise UnusableError(f"{title}: {reason(error)}", is_error=True) from error
    if not node.is_running and not os.access(folder, os.W_OK | os.X_OK):
        yield Defect(
            f"{title}: user {os.geteuid()} has no permission to write to {folder}",
            "use another directory, or change its permissions",
            is_error=True,
        )
        return
    scarce = [
        *of_space(place, found.free, found.size, is_running=node.is_running),
        *of_inodes(place, found.free_inodes, found.inodes),
    ]
    yield from scarce
    if not scarce:
        yield f"{title} {size(found.free) if found.size else 'unlimited'}"


def of_space(place: Place, free: int, whole: int, *, is_running: bool) -> Iterator[Defect]:
    """Yield a defect if a file system is nearly full. Sizes are in bytes; `whole` is 0 if there is no limit.

    Before a start, one that is too small is a defect as well: ModelArts requires `ENOUGH` of /dev/shm, which has 64 MiB
    in a container by default, and a log directory with less is full within hours.
    """
    is_error = _is_scarce(free, whole, ENOUGH if is_running else (ENOUGH[0], 1.0), NEARLY_NONE)
    if is_error is not None:
        sentence = f"{place.name} {place.path}: only {size(free)} of {size(whole)} free"
        yield Defect(sentence, place.remedy, subject=f"room in {place.path}", is_error=is_error)


def of_inodes(place: Place, free: int, whole: int) -> Iterator[Defect]:
    """Yield a defect if a file system is nearly out of inodes; `whole` is 0 if there is no limit."""
    is_error = _is_scarce(free, whole, ENOUGH_INODES, NEARLY_NO_INODES)
    if is_error is not None:
        sentence = f"{place.name} {place.path}: only {free:,} of {whole:,} inodes free"
        yield Defect(sentence, place.remedy, subject=f"inodes in {place.path}", is_error=is_error)


def _is_scarce(free: int, whole: int, enough: tuple[int, float], nearly_none: tuple[int, float]) -> bool | None:
    """Return whether a resource is nearly used up, or None if enough is left or there is no limit."""
    if not whole or free >= min(enough[0], enough[1] * whole):
        return None
    return free < min(nearly_none[0], nearly_none[1] * whole)


FULL_MEMORY: Final = 0.95  # fraction of the control group's limit
STALLED: Final = 50.0  # per cent of the last minute in which nothing could run for lack of a resource

_PRESSURE: Final = re.compile(r"^full .*avg60=(?P<percent>[0-9.]+)", re.MULTILINE)


def used_memory(node: Node) -> Findings:
    """Report a control group that is nearly out of memory, and the pressure on memory and disks."""
    yield from of_memory(*memory.working_set(node.host))
    group = memory.group(node.host)
    own = group.folders[0] if group and not group.is_v1 else ""
    yield from of_pressure({name: _pressure(node.host, name, own) for name in PRESSURES})


def _pressure(host: Host, name: str, own: str) -> str:
    text = host.read_text(f"{own}/{name}.pressure") if own else ""
    return text or host.read_text(f"/proc/pressure/{name}")


def of_memory(used: int | None, limit: int | None) -> Iterator[Defect]:
    """Yield a defect if the control group is nearly out of memory.

    `used` is in bytes, without the page cache, or None if unknown. `limit` is in bytes, or None if there is none.
    """
    if used is not None and limit and used > FULL_MEMORY * limit:
        sentence = f"{size(used)} of the memory limit of {size(limit)} were in use"
        yield Defect(sentence, subject="memory")


def of_pressure(resources: Mapping[str, str]) -> Iterator[Defect]:
    """Yield a defect for each resource for which all processes waited, by pressure stall information."""
    for name, text in resources.items():
        found = _PRESSURE.search(text)
        if found and float(found["percent"]) > STALLED:
            share = f"{float(found['percent']):.0f} % of the last minute"
            sentence = f"all processes were stalled waiting for {name} for {share}"
            yield Defect(sentence, subject=f"{name} pressure")


IPC_LOCK: Final = 14  # linux/capability.h


@attrs.frozen
class Limit:
    """A resource of getrlimit(2)."""

    name: str
    number: int
    enough: int
    unit: int  # in which it is shown
    stake: str  # why it matters
    remedy: str


# ModelArts requires a million open files and processes; most clusters allow less and train well. A rank with its
# workers uses hundreds. Of locked memory, it requires what is given here.
LIMITS: Final = (
    Limit(
        "locked memory",
        resource.RLIMIT_MEMLOCK,
        16_000 * 1024,
        1024,
        "RDMA and HCCL lock host memory",
        "add the capability IPC_LOCK to the container, or use docker --ulimit memlock=-1",
    ),
    Limit(
        "open files",
        resource.RLIMIT_NOFILE,
        4096,
        1,
        "data loaders open many files",
        "use docker --ulimit nofile=1048576",
    ),
    Limit(
        "processes",
        resource.RLIMIT_NPROC,
        16_384,
        1,
        "every thread of this user counts",
        "use docker --ulimit nproc=-1",
    ),
)


def limits(node: Node) -> Findings:
    """Compare this process's limits, which ranks inherit, with what training needs."""
    first, *others = (of_limit(limit, resource.getrlimit(limit.number)[0]) for limit in LIMITS)
    yield "locked memory unlimited (CAP_IPC_LOCK)" if _may_lock_memory(node.host) else first
    yield from others


def _may_lock_memory(host: Host) -> bool:
    """Whether this process has CAP_IPC_LOCK, which lifts the limit of locked memory (capabilities(7))."""
    lines = host.read_lines("/proc/self/status")
    effective = next((line.split()[1] for line in lines if line.startswith("CapEff")), "0")
    return bool(int(effective, 16) >> IPC_LOCK & 1)


def of_limit(limit: Limit, soft: int) -> str | Defect:
    """Compare the soft limit of one resource with the amount that suffices."""
    if soft == resource.RLIM_INFINITY:
        return f"{limit.name} unlimited"
    value = f"{soft // limit.unit}{' KiB' if limit.unit > 1 else ''}"
    if soft >= limit.enough:
        return f"{limit.name} {value}"
    sentence = f"{limit.name}: {value}, less than {limit.enough // limit.unit} ({limit.stake})"
    return Defect(sentence, limit.remedy)


def ports(node: Node) -> Findings:
    """Report processes that use the ports that the ranks will need."""
    used = network.port_users(node.host, node.ports)
    for found in used:
        yield _of_port(found, node.ports[found.port])
    if node.ports and not used:
        numbers = sorted(port for port, owner in node.ports.items() if owner == HCCL)
        free = [f"{numbers[0]}-{numbers[-1]} (HCCL)"] if numbers else []
        free += [f"{port} ({owner})" for port, owner in node.ports.items() if owner != HCCL]
        yield f"free: {', '.join(free)}"


def _of_port(found: PortUser, user: str) -> Defect:
    if not found.is_listening:
        return Defect(
            f"port {found.port} ({user}) is in use by a connection of {found.process}",
            "if this persists, reserve the port with sysctl net.ipv4.ip_local_reserved_ports",
        )
    # A port of the user's is taken as it is: not every framework listens on it.
    other = "; HCCL would report EI0019" if user == HCCL else f", or use another {user} on all nodes"
    return Defect(
        f"port {found.port} ({user}) is in use: {found.process} listens on it",
        f"kill it if it belongs to an earlier job{other}",
        is_error=user == HCCL,
    )


def names(node: Node) -> Findings:
    """Report whether the names of the other nodes can be resolved; nothing if no other node is named."""
    if node.peers:
        answers = bounded.call_each(node.peers, _is_resolvable, node.seconds)
        yield from of_names(node.peers, answers, node.seconds)


def of_names(hosts: Sequence[str], answers: Mapping[str, bool], seconds: float) -> Findings:
    """Report on the answers of a name server; hosts that are missing were not answered within `seconds`."""
    nodes = counted(len(hosts), "node")
    unknown = [host for host in hosts if answers.get(host) is False]
    silent = [host for host in hosts if host not in answers]
    if unknown:
        yield Defect(
            f"cannot resolve {len(unknown)} of {nodes}: {abbreviated(unknown)}",
            "make sure that their pods are running and that the job has a headless service (Volcano: the svc plugin)",
            is_error=True,
        )
    if silent:
        yield Defect(
            f"the name server did not respond within {seconds:g} s for {len(silent)} of {nodes}: {abbreviated(silent)}",
            "check the name servers in /etc/resolv.conf",
            is_error=True,
        )
    if not unknown and not silent:
        yield f"{counted(len(hosts), 'name')} resolved"


def _is_resolvable(host: str) -> bool:
    try:
        return bool(socket.getaddrinfo(host, None))
    except (OSError, UnicodeError):  # UnicodeError: a name with an empty or overlong part
        return False


@attrs.define
class Network:
    """The network interfaces of this machine that were up at the first look."""

    node: Node
    _before: dict[str, bool] | None = attrs.field(init=False, default=None)

    def look(self) -> Findings:
        """Yield a defect for each that is down."""
        now = self._states()
        self._before = now if self._before is None else self._before
        present = {name: was_up for name, was_up in self._before.items() if name in now}
        yield from fallen("network interface", present, now)

    def _states(self) -> dict[str, bool]:
        host = self.node.host
        found = [name for name in host.listdir(NETWORK) if name != "lo"]
        states = {name: host.read_text(f"{NETWORK}/{name}/operstate").strip() for name in found}
        # Interfaces of containers come and go; one without a known state is virtual.
        return {name: state != "down" for name, state in states.items() if state in {"up", "down", "lowerlayerdown"}}


@attrs.define
class InfiniBand:
    """The InfiniBand ports of this machine."""

    node: Node
    _before: dict[str, bool] | None = attrs.field(init=False, default=None)
    _lost: dict[str, int] = attrs.field(init=False, factory=dict)

    def look(self) -> Findings:
        """Yield a defect for each port that was active at the first look and is not, or has lost its link since."""
        states, lost = self._states(), self._losses()
        if self._before is None:
            self._before, self._lost = states, lost
        if not self._before:
            raise UnusableError
        yield from fallen("InfiniBand port", self._before, states)
        before, self._lost = self._lost, lost
        yield from flapping(before, lost)

    def _ports(self) -> Iterator[tuple[str, str]]:
        for device in self.node.host.listdir(INFINIBAND):
            for port in self.node.host.listdir(f"{INFINIBAND}/{device}/ports"):
                yield f"{device}/{port}", f"{INFINIBAND}/{device}/ports/{port}"

    def _states(self) -> dict[str, bool]:
        return {name: "ACTIVE" in self.node.host.read_text(f"{path}/state") for name, path in self._ports()}

    def _losses(self) -> dict[str, int]:
        host = self.node.host
        texts = {name: host.read_text(f"{path}/counters/link_downed").strip() for name, path in self._ports()}
        return {name: int(text) for name, text in texts.items() if text.isdigit()}


def fallen(kind: str, before: Mapping[str, bool], now: Mapping[str, bool]) -> Iterator[Defect]:
    """Yield a defect for each interface or port that was up at first and is now down; states are by name."""
    for name, was_up in before.items():
        if was_up and not now.get(name):
            yield Defect(f"{kind} {name} was down", subject=f"{kind} {name}", is_error=True)


def flapping(before: Mapping[str, int], now: Mapping[str, int]) -> Iterator[Defect]:
    """Yield a defect for each InfiniBand port that has lost its link since the last inspection, by its counter."""
    for name, count in now.items():
        lost = count - before.get(name, count)
        if lost > 0:
            times = "once" if lost == 1 else f"{lost} times"
            sentence = f"InfiniBand port {name} lost its link {times}"
            yield Defect(sentence, subject=f"InfiniBand port {name}: flapping")

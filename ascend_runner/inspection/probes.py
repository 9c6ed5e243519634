"""The probes of an inspection. Each reads one aspect of this node, and `judgement` finds the defects in it.

A probe raises TimeoutError if its tool hangs, and `UnusableError` if it does not work on this node.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, Protocol

from ascend_runner.host import cgroup, memory, npu, npu_smi
from ascend_runner.inspection import judgement
from ascend_runner.inspection.node import Node, Place, Tool, UnusableError, failure
from ascend_runner.inspection.watchlist import Defect

HCCN_TOOL_FOLDERS: Final = ("/usr/local/Ascend/driver/tools", "/usr/local/bin", "/usr/local/sbin")
NETWORK: Final = "/sys/class/net"
INFINIBAND: Final = "/sys/class/infiniband"
PRESSURES: Final = ("memory", "io")  # full pressure on the CPU of a whole system is undefined


class Probe(Protocol):
    """Probes one aspect of this node."""

    def look(self) -> Iterator[Defect]:
        """Yield the present defects.

        Raises:
            TimeoutError: A tool does not respond.
            UnusableError: The probe does not work on this node.
        """


class NpuHealth:
    """The health of the NPUs, by npu-smi: one call, and one more for each NPU that is not OK."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._tool = Tool(node, node.tool("npu-smi", npu_smi.FOLDERS))
        self._has_worked = False

    def look(self) -> Iterator[Defect]:
        """Yield the present defects."""
        self._tool.begin()
        answer = self._tool.call("info")
        found = npu_smi.devices(answer.stdout)
        why = failure(answer)
        unknown = judgement.unknown_health(found)
        if not found and self._has_worked:
            sentence = f"npu-smi info failed: {why}" if why else "npu-smi info did not list any NPU"
            yield Defect(subject="npu-smi", sentence=sentence, is_error=True)
        elif not found or unknown:
            what = f"printed an unknown health status {unknown!r}" if unknown else "printed no table in a known format"
            if why and not unknown:
                what = f"failed: {why}"
            raise UnusableError(f"npu-smi info {what}; the health of the NPUs is not inspected")
        self._has_worked = True
        wanted = self._node.device_ids
        for device in found:
            if device.health != npu_smi.HEALTHY and (not wanted or device.device_id in wanted):
                place = ("-i", str(device.card), "-c", str(device.chip))
                yield from judgement.of_health(device, self._tool.ask("info", "-t", "health", *place))


class DeviceNodes:
    """The device nodes of the NPUs in /dev."""

    def __init__(self, node: Node) -> None:
        self._host = node.host
        self._before = {one: name for one, name in npu.nodes(node.host).items() if one in node.device_ids}

    def look(self) -> Iterator[Defect]:
        """Yield the present defects."""
        yield from judgement.gone_devices(self._before, npu.nodes(self._host))


class Links:
    """The links of the NPUs, by hccn_tool. A reachable gateway proves that the link is up, so one call is enough."""

    def __init__(self, node: Node) -> None:
        self._node = node
        if not node.device_ids:
            raise UnusableError
        self._tool = Tool(node, node.tool("hccn_tool", HCCN_TOOL_FOLDERS))
        self._worked: set[int] = set()  # devices whose links have worked

    def look(self) -> Iterator[Defect]:
        """Yield the present defects."""
        self._tool.begin()
        for device_id in self._node.device_ids:
            health = judgement.net_health(self._tool.ask("-i", str(device_id), "-net_health", "-g"))
            is_fine = health == judgement.NET_IS_FINE
            state = "UP" if is_fine else judgement.link(self._tool.ask("-i", str(device_id), "-link", "-g"))
            if not health and not state:
                raise UnusableError(
                    "hccn_tool printed nothing in a known format; the links of the NPUs are not inspected"
                )
            was_up = device_id in self._worked
            if was_up or self._node.has_peers:
                yield from judgement.of_link(device_id, state, health, was_up=was_up)
            if is_fine:
                self._worked.add(device_id)


class Network:
    """The network interfaces of this machine that were up at first."""

    def __init__(self, node: Node) -> None:
        self._host = node.host
        self._before = self._states()

    def _states(self) -> dict[str, bool]:
        names = [name for name in self._host.listdir(NETWORK) if name != "lo"]
        states = {name: self._host.read_text(f"{NETWORK}/{name}/operstate").strip() for name in names}
        # Interfaces of containers come and go; one without a known state is virtual.
        return {name: state != "down" for name, state in states.items() if state in {"up", "down", "lowerlayerdown"}}

    def look(self) -> Iterator[Defect]:
        """Yield the present defects."""
        now = self._states()
        present = {name: was_up for name, was_up in self._before.items() if name in now}
        yield from judgement.fallen("network interface", present, now)


class InfiniBand:
    """The InfiniBand ports of this machine."""

    def __init__(self, node: Node) -> None:
        self._host = node.host
        self._before, self._lost = self._states(), self._losses()
        if not self._before:
            raise UnusableError

    def _ports(self) -> Iterator[tuple[str, str]]:
        for device in self._host.listdir(INFINIBAND):
            for port in self._host.listdir(f"{INFINIBAND}/{device}/ports"):
                yield f"{device}/{port}", f"{INFINIBAND}/{device}/ports/{port}"

    def _states(self) -> dict[str, bool]:
        return {name: "ACTIVE" in self._host.read_text(f"{path}/state") for name, path in self._ports()}

    def _losses(self) -> dict[str, int]:
        texts = {name: self._host.read_text(f"{path}/counters/link_downed").strip() for name, path in self._ports()}
        return {name: int(text) for name, text in texts.items() if text.isdigit()}

    def look(self) -> Iterator[Defect]:
        """Yield the present defects."""
        before, self._lost = self._lost, self._losses()
        yield from judgement.fallen("InfiniBand port", self._before, self._states())
        yield from judgement.flapping(before, self._lost)


class Room:
    """The free space and inodes of one directory. Each has a probe of its own, since the disk of another may hang."""

    def __init__(self, node: Node, place: Place) -> None:
        self._place = place
        self._path = node.host.path(place.path)

    def look(self) -> Iterator[Defect]:
        """Yield the present defects."""
        try:
            found = os.statvfs(self._path)
        except OSError:  # it may not exist yet
            return
        free, whole = found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
        yield from judgement.of_room(self._place.name, self._place.path, free, whole)
        yield from judgement.of_inodes(self._place.name, self._place.path, found.f_favail, found.f_files)


class Memory:
    """The memory of the job's control group, and the pressure on memory and disks."""

    def __init__(self, node: Node) -> None:
        self._host = node.host

    def look(self) -> Iterator[Defect]:
        """Yield the present defects."""
        yield from judgement.of_memory(*memory.working_set(self._host))
        group = cgroup.find(self._host, "memory", "memory.usage_in_bytes", "memory.current")
        own = group.folders[0] if group and not group.is_v1 else ""
        yield from judgement.of_pressure({name: self._pressure(name, own) for name in PRESSURES})

    def _pressure(self, name: str, own: str) -> str:
        text = self._host.read_text(f"{own}/{name}.pressure") if own else ""
        return text or self._host.read_text(f"/proc/pressure/{name}")


def all_probes(node: Node) -> dict[str, Callable[[], Probe]]:
    """Return the constructor of each probe by its name. Most constructors read the initial state, which may hang."""
    return {
        "npu-smi": partial(NpuHealth, node),
        "/dev": partial(DeviceNodes, node),
        "hccn_tool": partial(Links, node),
        NETWORK: partial(Network, node),
        INFINIBAND: partial(InfiniBand, node),
        "/proc and the control group": partial(Memory, node),
        **{place.path: partial(Room, node, place) for place in node.places},
    }

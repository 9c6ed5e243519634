"""Checks of a server list, or of a table that will become one: addresses, ports and super-pods."""

from __future__ import annotations

from collections.abc import Mapping
from socket import AF_INET, AF_INET6, inet_ntop, inet_pton
from typing import Final

import attrs

from ascend_runner.rank_table.codes import BAD_ENVIRONMENT, BAD_TABLE, BAD_VALUE, MISSING_FIELD
from ascend_runner.rank_table.dialects.server_list import PORTS, SUPER_PODS
from ascend_runner.rank_table.fields import Document, shown
from ascend_runner.rank_table.model import RankTable
from ascend_runner.rank_table.parts import Device, Server
from ascend_runner.rank_table.soundness import first_used
from ascend_runner.text import counted, is_whole_number

# The values that platforms write for a device without an address. On a single server they do no harm.
PLACEHOLDERS: Final = frozenset({"loop", "-1", "-.-.-.-"})
FAMILIES: Final[Mapping[int, str]] = {AF_INET: "IPv4", AF_INET6: "IPv6"}
LAST_PORT: Final = 65535
LAST_RESERVED_PORT: Final = 1023
LONGEST_POD_ID: Final = 127  # bytes
LAST_SUPER_DEVICE: Final = 0xFFFFFFFE  # 0xFFFFFFFF is HCCL's value for none


def check(table: RankTable, found: Document, chip: str | None, *, is_roce_wanted: bool = False) -> None:
    """Check the addresses and ports of every server and device, and the super-pods of version 1.2."""
    addresses = _Addresses(table=table, found=found)
    has_fabric = (chip == "A3" or table.version == SUPER_PODS) and len(table.super_pods) <= 1
    for server in table.servers:
        has_host = bool(server.extra_keys.get("host_ip")) and chip != "910B"
        needs_none = (addresses.is_alone and not is_roce_wanted) or has_fabric or has_host
        for device in server.devices:
            addresses.check_device_ip(device, needs_none=needs_none)
            if device.extra_keys:
                _check_ports(table, found, device)
        if server.extra_keys and server.devices:
            addresses.check_host_ip(server)
            _check_host_ports(table, found, server)

    if table.version == SUPER_PODS:
        _check_super_pods(table, found)


def family_of(address: str) -> int:
    """Return the family of an IP address, as inet_pton determines it for HCCL; 0 where it is not an address."""
    for family, text in ((AF_INET, address), (AF_INET6, address.partition("%")[0])):
        try:
            inet_pton(family, text)
        except (OSError, ValueError):  # ValueError: it contains a NUL
            continue
        return family

    return 0


@attrs.define(kw_only=True, eq=False, repr=False)
class _Addresses:
    """State of the address checks: the properties that all devices must share, and the addresses seen so far."""

    table: RankTable
    found: Document
    count: int = 0
    family: int = 0
    host_family: int = 0
    owners: dict[str, Device] = attrs.field(factory=dict)

    @property
    def is_alone(self) -> bool:
        """Whether there is only one server, in which case HCCL ignores families."""
        return len(self.table.servers) == 1

    def check_device_ip(self, device: Device, *, needs_none: bool) -> None:
        """Check a device's addresses, which may be absent with `needs_none`."""
        path = self.table.layout.path(device, "device_ip")
        is_there = bool(device.device_ip) and device.device_ip not in PLACEHOLDERS
        # Split as HCCL does: nothing follows a last comma. HCCL counts a missing address, too.
        addresses = device.device_ip.removesuffix(",").split(",")
        self.count = self.count or len(addresses)
        if len(addresses) != self.count:
            found = counted(len(addresses), "address")
            self.found.error(f"device_ip has {found}, but that of the first device has {self.count}", path)

        for address in addresses if is_there else ():
            self._check_address(address, device, path)
        if not is_there:
            self._check_missing_ip(device, path, needs_none=needs_none)

    def _check_address(self, address: str, device: Device, path: str) -> None:
        family = family_of(address)
        if not family:
            self.found.error(f"device_ip is {shown(address)}, expected an IP address", path)
            return

        name = _one_spelling(address, family)
        if name in self.owners:  # the address of another device, or of this one
            where = first_used(self.table.layout.path(self.owners[name]))
            self.found.error(f"duplicate device_ip {shown(address)}{where}", path)
        self.owners.setdefault(name, device)
        self.family = self.family or family
        if family != self.family and not self.is_alone:
            sentence = f"device_ip {shown(address)} is {FAMILIES[family]}, but the first is {FAMILIES[self.family]}"
            self.found.error(sentence, path, BAD_ENVIRONMENT)

    def _check_missing_ip(self, device: Device, path: str, *, needs_none: bool) -> None:
        found = shown(device.device_ip) if device.device_ip else "missing"
        if not needs_none:
            when = "with HCCL_INTRA_ROCE_ENABLE=1" if self.is_alone else "with several servers"
            self.found.error(f"device_ip is {found}, but every device needs one {when}", path)
        elif device.device_ip:  # it may be missing, but HCCL reads one that is present
            add = self.found.warn if self.is_alone else self.found.error
            add(f"device_ip is {found}, which is not an address and works on a single server only", path, BAD_VALUE)

    def check_host_ip(self, server: Server) -> None:
        """Check a server's own address, if it has one."""
        host_ip = server.extra_keys.get("host_ip")
        if not isinstance(host_ip, str):
            return

        path = self.table.layout.holder(server.devices[0], "host_ip")
        family = family_of(host_ip)
        self.host_family = self.host_family or family
        if not family:
            self.found.error(f"host_ip is {shown(host_ip)}, expected an IP address", path)
        elif family != self.host_family:
            sentence = f"host_ip {shown(host_ip)} is {FAMILIES[family]}, but the first is {FAMILIES[self.host_family]}"
            self.found.error(sentence, path)


def _one_spelling(address: str, family: int) -> str:
    """Return the canonical spelling of an address."""
    if family == AF_INET:
        return address

    number, mark, zone = address.partition("%")
    return f"{inet_ntop(AF_INET6, inet_pton(AF_INET6, number))}{mark}{zone}"


def _check_host_ports(table: RankTable, found: Document, server: Server) -> None:
    ports: dict[str, Device] = {}
    for device in server.devices:
        port = device.extra_keys.get("host_port")
        first = ports.setdefault(port, device) if isinstance(port, str) else device
        if first is not device:
            sentence = f"duplicate host_port {port} on this server{first_used(table.layout.path(first))}"
            found.warn(sentence, table.layout.path(device, "host_port"))


def _check_ports(table: RankTable, found: Document, device: Device) -> None:
    """Check the ports of a device, and the addresses that may replace its own."""
    for key in PORTS:
        port = device.extra_keys.get(key)
        if not isinstance(port, str):
            continue

        path = table.layout.path(device, key)
        number = _number(port, LAST_PORT)
        if not number:
            found.error(f"{key} is {shown(port)}, expected 1 to {LAST_PORT}", path)
        elif number <= LAST_RESERVED_PORT:
            found.warn(f"{key} is {port}, a port reserved for the system", path)

    backup = device.extra_keys.get("backup_device_ip")
    for address in backup.removesuffix(",").split(",") if isinstance(backup, str) and backup else ():
        if not family_of(address):
            sentence = f"backup_device_ip is {shown(address)}, expected an IP address"
            found.warn(sentence, table.layout.path(device, "backup_device_ip"), BAD_VALUE)


def _number(text: str, last: int) -> int | None:
    """Return a number from 0 to `last` that is written in ASCII digits, or None for anything else."""
    return int(text) if is_whole_number(text, len(str(last))) and int(text) <= last else None


def _check_super_pods(table: RankTable, found: Document) -> None:
    """Check the super-pods, and the place of every server and device in them."""
    seen: set[str] = set()
    for index, pod in enumerate(table.super_pods):
        path = f"super_pod_list[{index}].super_pod_id"
        name = pod.super_pod_id
        if not name:
            found.error("super_pod_id is empty or missing", path)
        elif name in seen:
            found.error(f"duplicate super_pod_id {shown(name)}", path)
        elif len(name.encode(errors="surrogatepass")) > LONGEST_POD_ID:
            found.error(f"super_pod_id {shown(name)} is longer than {LONGEST_POD_ID} bytes", path, BAD_TABLE)
        seen.add(name)

    pod_of = _check_members(table, found)
    if table.super_pods:
        _check_coverage(table, found, pod_of)
    _check_presence(table, found)
    _check_super_devices(table, found, pod_of)


def _check_members(table: RankTable, found: Document) -> dict[str, str]:
    """Check that each member is a server of the table and in one super-pod only; return the super-pod of each."""
    pod_of: dict[str, str] = {}
    servers = {server.server_id for server in table.servers}
    members = (
        (index, pod, *member) for index, pod in enumerate(table.super_pods) for member in enumerate(pod.server_ids)
    )
    for index, pod, position, server_id in members:
        path = f"super_pod_list[{index}].server_list[{position}].server_id"
        if server_id not in servers:
            found.error(f"server_id {shown(server_id)} is not in server_list", path)
        elif server_id in pod_of:
            found.error(f"server_id {shown(server_id)} is already in super-pod '{pod_of[server_id]}'", path)
        else:
            pod_of[server_id] = pod.super_pod_id

    return pod_of


def _check_coverage(table: RankTable, found: Document, pod_of: Mapping[str, str]) -> None:
    """Check that every server is in a super-pod, and next to the others of it, as CANN's documentation requires."""
    seen: set[str] = set()
    previous: str | None = None
    for server in table.servers:
        if not server.devices:
            continue

        path = table.layout.holder(server.devices[0], "server_id")
        pod = pod_of.get(server.server_id)
        if pod is None:
            found.error(f"server '{server.server_id}' is in no super-pod of super_pod_list", path, BAD_TABLE)
            continue

        if pod != previous and pod in seen:
            sentence = f"server '{server.server_id}' is not listed next to the other servers of super-pod '{pod}'"
            found.warn(f"{sentence}, which CANN does not support", path)
        seen.add(pod)
        previous = pod


def _check_presence(table: RankTable, found: Document) -> None:
    """Check that all devices have a super_device_id, or none, which makes the servers plain ones."""
    without = [device for device in table.devices if device.extra_keys.get("super_device_id") is None]
    if table.super_pods and without and len(without) == len(table.devices):
        sentence = "no device has a super_device_id, so HCCL treats the servers as plain ones despite super_pod_list"
        found.warn(sentence, "super_pod_list", MISSING_FIELD)
        return

    add = found.error if table.super_pods else found.warn
    for device in without if len(without) < len(table.devices) else ():
        path = table.layout.path(device, "super_device_id")
        add("super_device_id is missing, but other devices have one", path, MISSING_FIELD)


def _check_super_devices(table: RankTable, found: Document, pod_of: Mapping[str, str]) -> None:
    """Check that every super_device_id is a number and unique in its super-pod."""
    owners: dict[tuple[str, int], Device] = {}
    for server in table.servers:
        for device in server.devices:
            text = device.extra_keys.get("super_device_id")
            if text is None:
                continue

            number = _number(str(text), LAST_SUPER_DEVICE)
            pod = pod_of.get(server.server_id)
            if number is None:
                sentence = f"super_device_id is {shown(text)}, expected 0 to {LAST_SUPER_DEVICE}"
                found.error(sentence, table.layout.path(device, "super_device_id"))
            elif pod is not None and owners.setdefault((pod, number), device) is not device:
                where = first_used(table.layout.path(owners[pod, number]))
                sentence = f"duplicate super_device_id {number} in super-pod '{pod}'{where}"
                found.error(sentence, table.layout.path(device, "super_device_id"), BAD_TABLE)

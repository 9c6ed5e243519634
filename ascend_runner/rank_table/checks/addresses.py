"""Checks of the addresses and ports of a server list, or of what will become one."""

from __future__ import annotations

from collections.abc import Mapping
from socket import AF_INET, AF_INET6, inet_ntop, inet_pton
from typing import Final

import attrs

from ascend_runner.rank_table.checks.collector import Collector
from ascend_runner.rank_table.dialects.server_list import PORTS, SUPER_PODS
from ascend_runner.rank_table.fields import counted, shown
from ascend_runner.rank_table.model import Device, Server, first_used
from ascend_runner.rank_table.problems import BAD_ENVIRONMENT, BAD_VALUE

# What platforms write where a device has no address. On a single server it does no harm.
PLACEHOLDERS: Final = frozenset({"loop", "-1", "-.-.-.-"})
FAMILIES: Final[Mapping[int, str]] = {AF_INET: "IPv4", AF_INET6: "IPv6"}
LAST_PORT: Final = 65535
LAST_RESERVED_PORT: Final = 1023


@attrs.define(kw_only=True, eq=False, repr=False)
class _Seen:
    """What the devices checked so far have: the next ones must match it, and must not repeat an address."""

    is_alone: bool  # only one server, where HCCL ignores families
    is_roce_wanted: bool
    count: int = 0
    family: int = 0
    host_family: int = 0
    owners: dict[str, Device] = attrs.field(factory=dict)


def check(collector: Collector, chip: str | None, *, is_roce_wanted: bool = False) -> None:
    """Check the addresses and ports of every server and device."""
    table = collector.table
    seen = _Seen(is_alone=len(table.servers) == 1, is_roce_wanted=is_roce_wanted)
    has_fabric = (chip == "A3" or table.version == SUPER_PODS) and len(table.super_pods) <= 1
    for server in table.servers:
        has_host = bool(server.extra_keys.get("host_ip")) and chip != "910B"
        needs_none = (seen.is_alone and not is_roce_wanted) or has_fabric or has_host
        for device in server.devices:
            if device.device_ip and device.device_ip not in PLACEHOLDERS:
                _check_device_ip(collector, device, seen)
            else:
                _check_missing_ip(collector, device, seen, needs_none=needs_none)
            if device.extra_keys:
                _check_ports(collector, device)
                _check_backup_ip(collector, device)
        if server.extra_keys and server.devices:
            _check_host_ip(collector, server, seen)
            _check_host_ports(collector, server)


def family_of(address: str) -> int:
    """Return the family of an IP address, as inet_pton determines it for HCCL; 0 where it is not an address."""
    try:
        inet_pton(AF_INET, address)
    except (OSError, ValueError):  # ValueError: it contains a NUL
        pass
    else:
        return AF_INET

    try:
        inet_pton(AF_INET6, address.partition("%")[0])
    except (OSError, ValueError):
        return 0

    return AF_INET6


def _one_spelling(address: str, family: int) -> str:
    """Return the one spelling of all that mean the same IPv6 address."""
    if family == AF_INET:
        return address

    number, mark, zone = address.partition("%")
    return f"{inet_ntop(AF_INET6, inet_pton(AF_INET6, number))}{mark}{zone}"


def _check_device_ip(collector: Collector, device: Device, seen: _Seen) -> None:
    # Split as HCCL does: nothing follows a last comma.
    addresses = device.device_ip.removesuffix(",").split(",")
    _check_count(collector, device, len(addresses), seen)
    path = collector.device_path(device, "device_ip")
    for address in addresses:
        family = family_of(address)
        if not family:
            collector.error(f"device_ip is {shown(address)}, expected an IP address", path, BAD_VALUE)
            continue

        name = _one_spelling(address, family)
        if name in seen.owners:
            where = first_used(collector.device_path(seen.owners[name]))
            collector.error(f"duplicate device_ip {shown(address)}{where}", path, BAD_VALUE)
        seen.owners.setdefault(name, device)
        seen.family = seen.family or family
        if family != seen.family and not seen.is_alone:
            sentence = f"device_ip {shown(address)} is {FAMILIES[family]}, but the first is {FAMILIES[seen.family]}"
            collector.error(sentence, path, BAD_ENVIRONMENT)


def _check_missing_ip(collector: Collector, device: Device, seen: _Seen, *, needs_none: bool) -> None:
    _check_count(collector, device, 1, seen)  # HCCL counts a missing address, too
    path = collector.device_path(device, "device_ip")
    found = shown(device.device_ip) if device.device_ip else "missing"
    if not needs_none:
        when = "with HCCL_INTRA_ROCE_ENABLE=1" if seen.is_alone else "with several servers"
        collector.error(f"device_ip is {found}, but every device needs one {when}", path, BAD_VALUE)
    elif device.device_ip:  # it may be missing, but HCCL reads what is there
        add = collector.warning if seen.is_alone else collector.error
        add(f"device_ip is {found}, which is not an address and works on a single server only", path, BAD_VALUE)


def _check_count(collector: Collector, device: Device, count: int, seen: _Seen) -> None:
    seen.count = seen.count or count
    if count != seen.count:
        sentence = f"device_ip has {counted(count, 'address')}, but that of the first device has {seen.count}"
        collector.error(sentence, collector.device_path(device, "device_ip"), BAD_VALUE)


def _check_host_ip(collector: Collector, server: Server, seen: _Seen) -> None:
    host_ip = server.extra_keys.get("host_ip")
    if not isinstance(host_ip, str):
        return

    path = collector.server_path(server, "host_ip")
    family = family_of(host_ip)
    seen.host_family = seen.host_family or family
    if not family:
        collector.error(f"host_ip is {shown(host_ip)}, expected an IP address", path, BAD_VALUE)
    elif family != seen.host_family:
        sentence = f"host_ip {shown(host_ip)} is {FAMILIES[family]}, but the first is {FAMILIES[seen.host_family]}"
        collector.error(sentence, path, BAD_VALUE)


def _check_host_ports(collector: Collector, server: Server) -> None:
    ports: dict[str, Device] = {}
    for device in server.devices:
        port = device.extra_keys.get("host_port")
        if not isinstance(port, str):
            continue

        first = ports.setdefault(port, device)
        if first is not device:
            sentence = f"duplicate host_port {port} on this server{first_used(collector.device_path(first))}"
            collector.warning(sentence, collector.device_path(device, "host_port"))


def _check_ports(collector: Collector, device: Device) -> None:
    for key in PORTS:
        port = device.extra_keys.get(key)
        if not isinstance(port, str):
            continue

        path = collector.device_path(device, key)
        if not (port.isdigit() and port.isascii() and len(port) <= len(str(LAST_PORT)) and 0 < int(port) <= LAST_PORT):
            collector.error(f"{key} is {shown(port)}, expected 1 to {LAST_PORT}", path, BAD_VALUE)
        elif int(port) <= LAST_RESERVED_PORT:
            collector.warning(f"{key} is {port}, a port reserved for the system", path)


def _check_backup_ip(collector: Collector, device: Device) -> None:
    backup = device.extra_keys.get("backup_device_ip")
    if not isinstance(backup, str) or not backup:
        return

    for address in backup.removesuffix(",").split(","):
        if not family_of(address):
            sentence = f"backup_device_ip is {shown(address)}, expected an IP address"
            collector.warning(sentence, collector.device_path(device, "backup_device_ip"), BAD_VALUE)

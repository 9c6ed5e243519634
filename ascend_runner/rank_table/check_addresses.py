"""Checks of the addresses and ports of a server list, or of what will become one."""

from __future__ import annotations

from socket import AF_INET, AF_INET6, inet_ntop, inet_pton
from typing import TYPE_CHECKING, Final

import attrs

from ascend_runner.rank_table.fields import counted, shown
from ascend_runner.rank_table.findings import BAD_ENVIRONMENT, BAD_VALUE, ERROR, WARNING
from ascend_runner.rank_table.server_list import PORTS, SUPER_PODS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ascend_runner.rank_table.model import Device, Server
    from ascend_runner.rank_table.report import Report

# What platforms write where a device has no address. It does no harm on one server.
PLACEHOLDERS: Final = frozenset({"loop", "-1", "-.-.-.-"})
FAMILIES: Final[Mapping[int, str]] = {AF_INET: "IPv4", AF_INET6: "IPv6"}
LAST_PORT: Final = 65535
LAST_RESERVED_PORT: Final = 1023


@attrs.define
class _Seen:
    """What the devices looked at so far have: the next ones must fit to it, and must not have it again."""

    is_alone: bool  # only one server, where HCCL does not look at families
    is_roce_wanted: bool = False
    count: int = 0
    family: int = 0
    host_family: int = 0
    owners: dict[str, Device] = attrs.field(factory=dict)


def check(report: Report, chip: str | None, *, is_roce_wanted: bool = False) -> None:
    """Look at every server's and every device's addresses and ports."""
    servers = report.table.servers
    seen = _Seen(is_alone=len(servers) == 1, is_roce_wanted=is_roce_wanted)
    has_fabric = (chip == "A3" or report.table.version == SUPER_PODS) and len(report.table.super_pods) <= 1
    for server in servers:
        has_host = bool(server.more.get("host_ip")) and chip != "910B"
        needs_none = (seen.is_alone and not is_roce_wanted) or has_fabric or has_host
        for device in server.devices:
            if device.device_ip and device.device_ip not in PLACEHOLDERS:
                _check_device_ip(report, device, seen)
            else:
                _check_missing_ip(report, device, seen, needs_none=needs_none)
            if device.more:
                _check_more(report, device)
        if server.more and server.devices:
            _check_host_ip(report, server, seen)
            _check_host_ports(report, server)


def family_of(address: str) -> int:
    """Tell the family of an IP address, as inet_pton does for HCCL; 0 where it is none."""
    try:
        inet_pton(AF_INET, address)
    except (OSError, ValueError):  # ValueError: a NUL in it
        pass
    else:
        return AF_INET

    try:
        inet_pton(AF_INET6, address.partition("%")[0])
    except (OSError, ValueError):
        return 0

    return AF_INET6


def _one_spelling(address: str) -> str:
    """Spell an IPv6 address as all that mean the same are spelled here."""
    number, mark, zone = address.partition("%")

    return f"{inet_ntop(AF_INET6, inet_pton(AF_INET6, number))}{mark}{zone}"


def _check_device_ip(report: Report, device: Device, seen: _Seen) -> None:
    # As HCCL splits: what follows a last comma is none.
    addresses = device.device_ip.removesuffix(",").split(",")
    _check_count(report, device, len(addresses), seen)
    for address in addresses:
        family = family_of(address)
        if not family:
            sentence = f"device_ip is {shown(address)}, expected an IP address"
            report.add_of_device(ERROR, sentence, device, "device_ip", BAD_VALUE)
            continue

        name = address if family == AF_INET else _one_spelling(address)
        if name in seen.owners:
            other = report.table.layout.path(seen.owners[name].place)
            of = f"'{other}'" if other else "another device"
            sentence = f"device_ip {shown(address)} is that of {of} already"
            report.add_of_device(ERROR, sentence, device, "device_ip", BAD_VALUE)
        seen.owners.setdefault(name, device)
        seen.family = seen.family or family
        if family != seen.family and not seen.is_alone:
            sentence = f"device_ip {shown(address)} is {FAMILIES[family]}, the first is {FAMILIES[seen.family]}"
            report.add_of_device(ERROR, sentence, device, "device_ip", BAD_ENVIRONMENT)


def _check_missing_ip(report: Report, device: Device, seen: _Seen, *, needs_none: bool) -> None:
    _check_count(report, device, 1, seen)  # HCCL counts a missing address, too
    said = shown(device.device_ip) if device.device_ip else "missing"
    if not needs_none:
        why = "HCCL_INTRA_ROCE_ENABLE=1" if seen.is_alone else "several servers"
        sentence = f"device_ip is {said}, with {why} every device needs one"
        report.add_of_device(ERROR, sentence, device, "device_ip", BAD_VALUE)
    elif device.device_ip:  # it need not be there, but what is there is read
        sentence = f"device_ip is {said}, which is no address: it serves on one server only"
        severity = WARNING if seen.is_alone else ERROR
        report.add_of_device(severity, sentence, device, "device_ip", BAD_VALUE)


def _check_count(report: Report, device: Device, count: int, seen: _Seen) -> None:
    seen.count = seen.count or count
    if count != seen.count:
        sentence = f"device_ip holds {counted(count, 'address')}, that of the first device {seen.count}"
        report.add_of_device(ERROR, sentence, device, "device_ip", BAD_VALUE)


def _check_host_ip(report: Report, server: Server, seen: _Seen) -> None:
    host_ip = server.more.get("host_ip")
    if not isinstance(host_ip, str):
        return

    path = report.table.layout.holder(server.devices[0].place, "host_ip")
    family = family_of(host_ip)
    seen.host_family = seen.host_family or family
    if not family:
        report.add(ERROR, f"host_ip is {shown(host_ip)}, expected an IP address", path, BAD_VALUE)
    elif family != seen.host_family:
        sentence = f"host_ip {shown(host_ip)} is {FAMILIES[family]}, the first is {FAMILIES[seen.host_family]}"
        report.add(ERROR, sentence, path, BAD_VALUE)


def _check_host_ports(report: Report, server: Server) -> None:
    ports: dict[str, Device] = {}
    for device in server.devices:
        port = device.more.get("host_port")
        if not isinstance(port, str):
            continue
        if port in ports:
            sentence = f"host_port {port} is that of device {ports[port].device_id} of this server too"
            report.add_of_device(WARNING, sentence, device, "host_port")
        else:
            ports[port] = device


def _check_more(report: Report, device: Device) -> None:
    for key in PORTS:
        port = device.more.get(key)
        if not isinstance(port, str):
            continue
        if not (port.isdigit() and port.isascii() and len(port) <= len(str(LAST_PORT)) and 0 < int(port) <= LAST_PORT):
            sentence = f"{key} is {shown(port)}, expected 1 to {LAST_PORT}"
            report.add_of_device(ERROR, sentence, device, key, BAD_VALUE)
        elif int(port) <= LAST_RESERVED_PORT:
            report.add_of_device(WARNING, f"{key} is {port}, which the system reserves for itself", device, key)

    backup = device.more.get("backup_device_ip")
    if isinstance(backup, str) and backup:
        for address in backup.removesuffix(",").split(","):
            if not family_of(address):
                sentence = f"backup_device_ip is {shown(address)}, expected an IP address"
                report.add_of_device(WARNING, sentence, device, "backup_device_ip", BAD_VALUE)

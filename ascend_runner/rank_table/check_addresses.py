"""Checks of the addresses and ports of a server list, or of what will become one."""

from __future__ import annotations

from socket import AF_INET, AF_INET6, inet_pton
from typing import TYPE_CHECKING, Final

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


def check(report: Report, chip: str | None) -> None:
    """Look at every server's and every device's addresses and ports."""
    servers = report.table.servers
    is_alone = len(servers) == 1
    has_fabric = (chip == "A3" or report.table.version == SUPER_PODS) and len(report.table.super_pods) <= 1
    seen: dict[str, Device] = {}
    for server in servers:
        has_host = bool(server.more.get("host_ip")) and chip != "910B"
        for device in server.devices:
            if device.device_ip and device.device_ip not in PLACEHOLDERS:
                _check_device_ip(report, device, seen)
            elif not is_alone and not has_fabric and not has_host:
                said = shown(device.device_ip) if device.device_ip else "missing"
                sentence = f"device_ip is {said}, with several servers every device needs one"
                report.add_of_device(ERROR, sentence, device, "device_ip", BAD_VALUE)
            elif device.device_ip:
                sentence = f"device_ip is {shown(device.device_ip)}, which is no address: it serves on one server only"
                report.add_of_device(WARNING, sentence, device, "device_ip", BAD_VALUE)
            if device.more:
                _check_more(report, device)
        if server.more:
            _check_server(report, server)

    _check_alike(report, is_alone=is_alone)


def family_of(address: str) -> int:
    """Tell the family of an IP address, as inet_pton does for HCCL; 0 where it is none."""
    for family, text in ((AF_INET, address), (AF_INET6, address.partition("%")[0])):
        try:
            inet_pton(family, text)
        except (OSError, ValueError):  # ValueError: a NUL in it
            continue
        return family

    return 0


def _addresses(device: Device) -> list[str]:
    """Split as HCCL does: what follows a last comma is none."""
    return device.device_ip.removesuffix(",").split(",")


def _check_device_ip(report: Report, device: Device, seen: dict[str, Device]) -> None:
    for address in _addresses(device):
        if not family_of(address):
            sentence = f"device_ip is {shown(address)}, expected an IP address"
            report.add_of_device(ERROR, sentence, device, "device_ip", BAD_VALUE)
        elif address in seen:
            other = report.table.layout.path(seen[address].place)
            of = f"'{other}'" if other else "another device"
            sentence = f"device_ip {shown(address)} is that of {of} already"
            report.add_of_device(ERROR, sentence, device, "device_ip", BAD_VALUE)
        else:
            seen[address] = device


def _check_alike(report: Report, *, is_alone: bool) -> None:
    """Every device must have as many addresses as the first, and on several servers of its family."""
    devices = [device for server in report.table.servers for device in server.devices]
    if not devices:
        return

    count = len(_addresses(devices[0]))
    first_family = 0
    for device in devices:
        addresses = _addresses(device)
        if len(addresses) != count:
            sentence = f"device_ip holds {counted(len(addresses), 'address')}, that of the first device {count}"
            report.add_of_device(ERROR, sentence, device, "device_ip", BAD_VALUE)
        if is_alone:
            continue
        for address in addresses:
            family = family_of(address)
            first_family = first_family or family
            if family and family != first_family:
                sentence = f"device_ip {shown(address)} is {FAMILIES[family]}, the first is {FAMILIES[first_family]}"
                report.add_of_device(ERROR, sentence, device, "device_ip", BAD_ENVIRONMENT)


def _check_server(report: Report, server: Server) -> None:
    host_ip = server.more.get("host_ip")
    if isinstance(host_ip, str) and server.devices and not family_of(host_ip):
        path = report.table.layout.holder(server.devices[0].place, "host_ip")
        report.add(ERROR, f"host_ip is {shown(host_ip)}, expected an IP address", path, BAD_VALUE)

    ports: dict[object, Device] = {}
    for device in server.devices:
        port = device.more.get("host_port")
        if port is not None and port in ports:
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

"""Checks of super-pods (version 1.2): every server in one of them, every device with its own number inside."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from ascend_runner.rank_table.checks.collector import Collector
from ascend_runner.rank_table.fields import shown
from ascend_runner.rank_table.model import Device, Server, first_used
from ascend_runner.rank_table.problems import BAD_TABLE, BAD_VALUE, MISSING_FIELD

LONGEST_ID: Final = 127  # bytes
LAST_SUPER_DEVICE: Final = 0xFFFFFFFE  # 0xFFFFFFFF is HCCL's value for none
NO_NUMBER: Final = -1


def check(collector: Collector) -> None:
    """Check the super-pods, and the place of every server and device in them."""
    _check_ids(collector)
    pod_of = _check_members(collector)
    if collector.table.super_pods:
        _check_coverage(collector, pod_of)
    _check_presence(collector)
    _check_numbers(collector, pod_of)


def _check_ids(collector: Collector) -> None:
    seen: set[str] = set()
    for index, pod in enumerate(collector.table.super_pods):
        path = f"super_pod_list[{index}].super_pod_id"
        name = pod.super_pod_id
        if not name:
            collector.error("super_pod_id is empty or missing", path, BAD_VALUE)
        elif name in seen:
            collector.error(f"duplicate super_pod_id {shown(name)}", path, BAD_VALUE)
        elif len(name.encode(errors="surrogatepass")) > LONGEST_ID:
            collector.error(f"super_pod_id {shown(name)} is longer than {LONGEST_ID} bytes", path, BAD_TABLE)
        seen.add(name)


def _check_members(collector: Collector) -> dict[str, str]:
    """Check that each member is a server of the table and in one super-pod only; return the super-pod of each."""
    pod_of: dict[str, str] = {}
    servers = {server.server_id for server in collector.table.servers}
    for path, pod_id, server_id in _members(collector):
        if server_id not in servers:
            collector.error(f"server_id {shown(server_id)} is not in server_list", path, BAD_VALUE)
        elif server_id in pod_of:
            sentence = f"server_id {shown(server_id)} is already in super-pod '{pod_of[server_id]}'"
            collector.error(sentence, path, BAD_VALUE)
        else:
            pod_of[server_id] = pod_id

    return pod_of


def _members(collector: Collector) -> Iterator[tuple[str, str, str]]:
    for index, pod in enumerate(collector.table.super_pods):
        for position, server_id in enumerate(pod.server_ids):
            yield f"super_pod_list[{index}].server_list[{position}].server_id", pod.super_pod_id, server_id


def _check_coverage(collector: Collector, pod_of: Mapping[str, str]) -> None:
    """Check that every server is in a super-pod, and next to the others of it, as CANN's documentation requires."""
    busy = [server for server in collector.table.servers if server.devices]
    seen: set[str] = set()
    previous: str | None = None
    for server in busy:
        pod = pod_of.get(server.server_id)
        if pod is None:
            sentence = f"server '{server.server_id}' is in no super-pod of super_pod_list"
            collector.error(sentence, collector.server_path(server), BAD_TABLE)
            continue

        if pod != previous and pod in seen:
            _warn_of_stray(collector, server, pod)
        seen.add(pod)
        previous = pod


def _warn_of_stray(collector: Collector, server: Server, pod: str) -> None:
    sentence = (
        f"server '{server.server_id}' is not listed next to the other servers of super-pod '{pod}',"
        " which CANN does not support"
    )
    collector.warning(sentence, collector.server_path(server))


def _check_presence(collector: Collector) -> None:
    """Check that all devices have a super_device_id, or none, which makes the servers plain ones."""
    devices = collector.table.devices
    without = [device for device in devices if device.extra_keys.get("super_device_id") is None]
    if collector.table.super_pods and devices and len(without) == len(devices):
        sentence = "no device has a super_device_id, so HCCL treats the servers as plain ones despite super_pod_list"
        collector.warning(sentence, "super_pod_list", MISSING_FIELD)
        return

    add = collector.error if collector.table.super_pods else collector.warning
    for device in without if len(without) < len(devices) else ():
        path = collector.device_path(device, "super_device_id")
        add("super_device_id is missing, but other devices have one", path, MISSING_FIELD)


def _check_numbers(collector: Collector, pod_of: Mapping[str, str]) -> None:
    numbers: dict[tuple[str, int], Device] = {}
    for server in collector.table.servers:
        for device in server.devices:
            number = _check_number(collector, device)
            pod = pod_of.get(server.server_id)
            if pod is None or number == NO_NUMBER:
                continue
            first = numbers.setdefault((pod, number), device)
            if first is not device:
                where = first_used(collector.device_path(first))
                sentence = f"duplicate super_device_id {number} in super-pod '{pod}'{where}"
                collector.error(sentence, collector.device_path(device, "super_device_id"), BAD_TABLE)


def _check_number(collector: Collector, device: Device) -> int:
    number = device.extra_keys.get("super_device_id")
    if number is None:
        return NO_NUMBER

    text = str(number)
    is_number = text.isdigit() and text.isascii() and len(text) <= len(str(LAST_SUPER_DEVICE))
    if is_number and int(text) <= LAST_SUPER_DEVICE:
        return int(text)

    sentence = f"super_device_id is {shown(number)}, expected 0 to {LAST_SUPER_DEVICE}"
    collector.error(sentence, collector.device_path(device, "super_device_id"), BAD_VALUE)
    return NO_NUMBER

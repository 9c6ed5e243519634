"""Checks of super-pods (version 1.2): every server in one of them, every device with its own number inside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ascend_runner.rank_table.fields import shown
from ascend_runner.rank_table.findings import BAD_TABLE, BAD_VALUE, ERROR, MISSING_FIELD, WARNING

if TYPE_CHECKING:
    from ascend_runner.rank_table.model import Device, Server
    from ascend_runner.rank_table.report import Report

LONGEST_ID: Final = 127  # bytes
LAST_SUPER_DEVICE: Final = 0xFFFFFFFE  # 0xFFFFFFFF stands for none in HCCL
NO_NUMBER: Final = -1


def check(report: Report) -> None:
    """Look at the super-pods, and at the place of every server and device in them."""
    _check_ids(report)
    pod_of = _check_coverage(report)
    _check_presence(report)
    numbers: dict[tuple[str, int], Device] = {}
    for server in report.table.servers:
        for device in server.devices:
            number = _check_number(report, device)
            pod = pod_of.get(server.server_id)
            if pod is None or number == NO_NUMBER:
                continue
            other = numbers.setdefault((pod, number), device)
            if other is not device:
                where = report.table.layout.path(other.place)
                sentence = f"super_device_id {number} is that of '{where}' already, in super-pod '{pod}'"
                report.add_of_device(ERROR, sentence, device, "super_device_id", BAD_TABLE)


def _check_ids(report: Report) -> None:
    seen: set[str] = set()
    for index, pod in enumerate(report.table.super_pods):
        path = f"super_pod_list[{index}].super_pod_id"
        name = pod.super_pod_id
        if not name:
            report.add(ERROR, "super_pod_id is empty or missing", path, BAD_VALUE)
        elif name in seen:
            report.add(ERROR, f"super_pod_id {shown(name)} is there twice", path, BAD_VALUE)
        elif len(name.encode(errors="surrogatepass")) > LONGEST_ID:
            report.add(ERROR, f"super_pod_id {shown(name)} has more than {LONGEST_ID} bytes", path, BAD_TABLE)
        seen.add(name)


def _check_coverage(report: Report) -> dict[str, str]:
    """Tell of servers that are in no super-pod or in two, and give the pod of each."""
    pod_of: dict[str, str] = {}
    servers = {server.server_id for server in report.table.servers}
    for index, pod in enumerate(report.table.super_pods):
        for place, server_id in enumerate(pod.server_ids):
            path = f"super_pod_list[{index}].server_list[{place}].server_id"
            if server_id not in servers:
                report.add(ERROR, f"server_id {shown(server_id)} is not in server_list", path, BAD_VALUE)
            elif server_id in pod_of:
                sentence = f"server_id {shown(server_id)} is in super-pod '{pod_of[server_id]}' already"
                report.add(ERROR, sentence, path, BAD_VALUE)
            else:
                pod_of[server_id] = pod.super_pod_id

    if report.table.super_pods:
        busy = [server for server in report.table.servers if server.devices]
        for server in busy:
            if server.server_id not in pod_of:
                sentence = f"server '{server.server_id}' is in no super-pod, while super_pod_list is there"
                report.add_of_server(ERROR, sentence, server, BAD_TABLE)
        _check_neighbours(report, [server for server in busy if server.server_id in pod_of], pod_of)

    return pod_of


def _check_neighbours(report: Report, servers: list[Server], pod_of: dict[str, str]) -> None:
    """CANN's document wants the servers of one super-pod to stand together."""
    seen: set[str] = set()
    previous: str | None = None
    for server in servers:
        pod = pod_of[server.server_id]
        if pod != previous and pod in seen:
            sentence = f"server '{server.server_id}' stands apart from the other servers of super-pod '{pod}'"
            report.add_of_server(WARNING, f"{sentence}, which CANN does not support", server)
        seen.add(pod)
        previous = pod


def _check_presence(report: Report) -> None:
    """Look at who has a super_device_id: all, or none, which makes plain servers."""
    devices = report.table.devices
    without = [device for device in devices if device.more.get("super_device_id") is None]
    if report.table.super_pods and devices and len(without) == len(devices):
        sentence = "no device has a super_device_id, which makes plain servers, while super_pod_list is there"
        report.add(WARNING, sentence, "super_pod_list", MISSING_FIELD)
        return

    severity = ERROR if report.table.super_pods else WARNING
    for device in without if len(without) < len(devices) else ():
        sentence = "super_device_id is missing, while other devices have one"
        report.add_of_device(severity, sentence, device, "super_device_id", MISSING_FIELD)


def _check_number(report: Report, device: Device) -> int:
    number = device.more.get("super_device_id")
    if number is None:
        return NO_NUMBER

    text = str(number)
    is_number = text.isdigit() and text.isascii() and len(text) <= len(str(LAST_SUPER_DEVICE))
    if is_number and int(text) <= LAST_SUPER_DEVICE:
        return int(text)

    sentence = f"super_device_id is {shown(number)}, expected 0 to {LAST_SUPER_DEVICE}"
    report.add_of_device(ERROR, sentence, device, "super_device_id", BAD_VALUE)
    return NO_NUMBER

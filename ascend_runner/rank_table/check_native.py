"""What would come of a group list that HCCL reads itself, instead of the server list that it is converted to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ascend_runner.rank_table.fields import counted, shown
from ascend_runner.rank_table.findings import BAD_TABLE, WARNING
from ascend_runner.rank_table.model import GROUP_LIST, LAB_LIST

if TYPE_CHECKING:
    from ascend_runner.rank_table.report import Report

LAST_DEVICE: Final = 7  # of every chip, in this dialect
AVERAGES: Final = frozenset({1, 2, 4, 8, 16})  # devices per server, lab form
NIC_LOCATION: Final = "para_plane_nic_location"


def check(report: Report) -> None:
    """Warn, not more: the runner and `convert` hand HCCL a server list."""
    table = report.table
    if not table.devices or table.dialect not in {GROUP_LIST, LAB_LIST}:
        return

    if "version" in table.more:
        found = shown(table.more["version"])
        sentence = f"version is {found}, which a group list must not have: unconverted, HCCL takes another parser by it"
        report.add(WARNING, sentence, "version", BAD_TABLE)
    if table.dialect == LAB_LIST:
        _check_lab(report)
    else:
        _check_cloud(report)


def _check_cloud(report: Report) -> None:
    table = report.table
    beyond = next((device for device in table.devices if device.device_id > LAST_DEVICE), None)
    if beyond:
        sentence = f"device_id is {beyond.device_id}: unconverted, HCCL takes a group list only up to {LAST_DEVICE}"
        report.add_of_device(WARNING, sentence, beyond, "device_id", BAD_TABLE)

    by_hccl = sorted(
        ((server.server_id.encode(errors="surrogatepass"), device.device_id), device.rank_id)
        for server in table.servers
        for device in server.devices
    )
    if any(rank_id != expected for expected, (_, rank_id) in enumerate(by_hccl)):
        sentence = (
            "unconverted, HCCL would number these devices in another order (by server_id as text, then device_id):"
            " convert the table on every node, or on none"
        )
        report.add(WARNING, sentence, "group_list")


def _check_lab(report: Report) -> None:
    table = report.table
    location = table.more.get(NIC_LOCATION)
    if location != "device":
        sentence = f"{NIC_LOCATION} is {shown(location)}, unconverted, HCCL wants 'device'"
        report.add(WARNING, sentence, NIC_LOCATION, BAD_TABLE)

    size = len(table.devices)
    average, rest = divmod(size, len(table.servers))
    if rest or average not in AVERAGES:
        where = f"{counted(size, 'device')} on {counted(len(table.servers), 'server')}"
        sentence = f"{where}: unconverted, HCCL wants 1, 2, 4, 8 or 16 on each"
        report.add(WARNING, sentence, "group_list", BAD_TABLE)

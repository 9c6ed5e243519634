"""What would happen if HCCL read a group list itself, instead of the server list that it is converted to."""

from __future__ import annotations

from typing import Final

from ascend_runner.rank_table.checks.collector import Collector
from ascend_runner.rank_table.fields import counted, shown
from ascend_runner.rank_table.model import Dialect
from ascend_runner.rank_table.problems import BAD_TABLE

LAST_DEVICE: Final = 7  # of every chip, in this dialect
AVERAGES: Final = frozenset({1, 2, 4, 8, 16})  # devices per server, lab form
NIC_LOCATION: Final = "para_plane_nic_location"


def check(collector: Collector) -> None:
    """Only warn, as the runner and `convert` hand a server list to HCCL."""
    table = collector.table
    if not table.devices or table.dialect not in {Dialect.GROUP_LIST, Dialect.LAB_LIST}:
        return

    if "version" in table.extra_keys:
        found = shown(table.extra_keys["version"])
        sentence = f"version is {found}, for which HCCL selects another parser unless the table is converted"
        collector.warning(sentence, "version", BAD_TABLE)
    if table.dialect is Dialect.LAB_LIST:
        _check_lab(collector)
    else:
        _check_cloud(collector)


def _check_cloud(collector: Collector) -> None:
    table = collector.table
    beyond = next((device for device in table.devices if device.device_id > LAST_DEVICE), None)
    if beyond:
        sentence = f"device_id is {beyond.device_id}, but HCCL accepts at most {LAST_DEVICE} without conversion"
        collector.warning(sentence, collector.device_path(beyond, "device_id"), BAD_TABLE)

    by_hccl = sorted(
        ((server.server_id.encode(errors="surrogatepass"), device.device_id), device.rank_id)
        for server in table.servers
        for device in server.devices
    )
    if any(rank_id != expected for expected, (_, rank_id) in enumerate(by_hccl)):
        sentence = (
            "HCCL numbers the ranks differently without conversion (by server_id as text, then device_id); convert the"
            " table on every node or on none"
        )
        collector.warning(sentence, "group_list")


def _check_lab(collector: Collector) -> None:
    table = collector.table
    location = table.extra_keys.get(NIC_LOCATION)
    if location != "device":
        sentence = f"{NIC_LOCATION} is {shown(location)}, but HCCL requires 'device' without conversion"
        collector.warning(sentence, NIC_LOCATION, BAD_TABLE)

    size = len(table.devices)
    average, rest = divmod(size, len(table.servers))
    if rest or average not in AVERAGES:
        found = f"{counted(size, 'device')} on {counted(len(table.servers), 'server')}"
        sentence = f"{found}, but HCCL requires 1, 2, 4, 8 or 16 per server without conversion"
        collector.warning(sentence, "group_list", BAD_TABLE)

"""The group-list dialect ("template 2"), lab form: the tables of 2019 and 2020 that have a `deploy_mode`.

Each entry of an instance_list is one device with its server and its rank. The stated ranks are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Final

from ascend_runner.rank_table.fields import UNREADABLE, Fields, counted
from ascend_runner.rank_table.model import Device, Dialect, Layout, Server
from ascend_runner.rank_table.table import ParsedTable

MARK: Final = "deploy_mode"  # HCCL tells the two forms apart by this key, whatever its value
KNOWN_TOP: Final = frozenset({"status", "group_count", "group_list"})


def decode(top: Fields) -> ParsedTable:
    """Decode a completed table; problems are recorded in `top.document`."""
    groups = top.objects("group_list")
    top.check_count("group_count", len(groups), "group", of="group_list")

    lists: list[str] = []
    devices_of: dict[str, list[Device]] = {}
    for group in groups:
        instances = group.objects("instance_list")
        for instance in instances:
            devices_of.setdefault(instance.text("server_id"), []).append(_decode_instance(instance, len(lists)))
            lists.append(instance.path("devices"))
        _check_counts(group, instances)

    return ParsedTable(
        servers=tuple(
            Server(server_id=server_id, devices=tuple(sorted(devices, key=attrgetter("rank_id"))))
            for server_id, devices in devices_of.items()
        ),
        dialect=Dialect.LAB_LIST,
        version="",
        extra_keys=top.extra_keys(KNOWN_TOP),
        layout=Layout(lists=tuple(lists), firsts=tuple(range(len(lists))), has_ranks_beside=True),
        source=top.document.source,
    )


def _decode_instance(instance: Fields, index: int) -> Device:
    devices = instance.objects("devices")
    listed = instance.values.get("devices")
    if isinstance(listed, list) and len(listed) != 1:
        sentence = f"devices has {counted(len(listed), 'item')}, expected 1 (each instance has one rank_id)"
        instance.refuse(sentence, "devices")

    return Device(
        device_id=devices[0].whole_number("device_id") if devices else UNREADABLE,
        device_ip=devices[0].text("device_ip", default="") if devices else "",
        rank_id=instance.whole_number("rank_id"),
        index=index,
    )


def _check_counts(group: Fields, instances: Sequence[Fields]) -> None:
    servers = {instance.text("server_id") for instance in instances}
    for key, actual, noun in (
        ("instance_count", len(instances), "instance"),
        ("device_num", len(instances), "device"),
        ("server_num", len(servers), "server"),
    ):
        group.check_count(key, actual, noun, of="instance_list")

"""The group-list dialect ("template 2"), lab form: the tables of 2019 and 2020 that name a `deploy_mode`.

Each entry of an instance_list is one device with its server and its rank. The ranks that it states are kept.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Final

from ascend_runner.rank_table.fields import UNREADABLE
from ascend_runner.rank_table.model import LAB_LIST, Device, Draft, Layout, Server

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ascend_runner.rank_table.fields import Fields

MARK: Final = "deploy_mode"  # HCCL tells the two forms apart by this key, whatever its value
KNOWN_TOP: Final = frozenset({"status", "group_count", "group_list"})


def decode(top: Fields) -> Draft:
    """Read a completed table. What is wrong with it is told by `top.problems`."""
    groups = top.objects("group_list")
    top.check_count("group_count", len(groups), "group", of="group_list")

    lists: list[str] = []
    devices_of: dict[str, list[Device]] = {}
    for group in groups:
        instances = group.objects("instance_list")
        group.check_count("instance_count", len(instances), "instance", of="instance_list")
        group.check_count("device_num", len(instances), "device", of="instance_list")
        for instance in instances:
            devices_of.setdefault(instance.text("server_id"), []).append(_decode_instance(instance, len(lists)))
            lists.append(instance.path("devices"))
        group.check_count("server_num", _count_servers(instances), "server", of="instance_list")

    return Draft(
        servers=tuple(
            Server(server_id=server_id, devices=tuple(sorted(devices, key=attrgetter("rank_id"))))
            for server_id, devices in devices_of.items()
        ),
        dialect=LAB_LIST,
        version="",
        more=top.rest(KNOWN_TOP),
        layout=Layout(lists=tuple(lists), firsts=tuple(range(len(lists))), has_ranks_beside=True),
        source=top.problems.source,
    )


def _decode_instance(instance: Fields, place: int) -> Device:
    devices = instance.objects("devices")
    instance.check_length("devices", 1, "as there is one rank_id")

    return Device(
        device_id=devices[0].whole_number("device_id") if devices else UNREADABLE,
        device_ip=devices[0].text("device_ip", default="") if devices else "",
        rank_id=instance.whole_number("rank_id"),
        place=place,
    )


def _count_servers(instances: Sequence[Fields]) -> int:
    return len({instance.text("server_id") for instance in instances})

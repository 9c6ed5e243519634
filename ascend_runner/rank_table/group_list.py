"""The group-list dialect ("template 2"), as CCE and ModelArts write it: groups of pods with their devices.

The cloud form has no rank ids. They follow from an order that every node of a job must derive alike:

- groups in listed order;
- in each group, instances by the integer at the end of their pod_name, as ModelArts' own launcher orders them: what
  follows the last "-", or the whole name where there is no "-" (the HCCL-Controller names pods "0", "1", ...);
- an instance with a name that does not end in an integer keeps its position in the list, and the others are sorted
  into the remaining positions. Instances with the same integer stay in listed order. Both give a warning, as the order
  of the list then determines the ranks;
- devices in listed order.

Ranks are counted in that order. Pods with the same server_id form one server, at the position of its first rank.
Instances and groups without devices have no ranks.

The lab form, the tables of 2019 and 2020 that have a `deploy_mode`, states ranks: each entry of an instance_list is one
device with its server and its rank.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Final, TypedDict

import attrs

from ascend_runner.errors import RankTableError
from ascend_runner.rank_table.fields import UNREADABLE, Fields
from ascend_runner.rank_table.model import Device, Dialect, Layout, RankTable, Server, first_used
from ascend_runner.rank_table.server_list import SUPER_PODS
from ascend_runner.text import abbreviated, counted, is_whole_number

LAB_MARK: Final = "deploy_mode"  # HCCL tells the two forms apart by this key, whatever its value
KNOWN_TOP: Final = frozenset({"status", "group_count", "group_list"})


@attrs.frozen(kw_only=True, eq=False, repr=False)
class _Instance:
    """One entry of an instance_list; `first_index` is the `Device.index` of its first device."""

    fields: Fields
    pod_name: str
    server_id: str
    devices: Sequence[Fields]
    first_index: int

    @property
    def ordinal(self) -> int | None:
        """The number at the end of the pod's name."""
        return _number_at_end(self.pod_name)


class _Pod(TypedDict):
    """An entry of an instance_list that is to be written."""

    pod_name: str
    server_id: str
    devices: list[dict[str, str]]


def decode(top: Fields) -> RankTable:
    """Decode a completed table in the cloud form; problems are recorded in `top.document`."""
    groups: list[list[_Instance]] = []
    index = 0
    for fields in top.objects("group_list"):
        group = _decode_group(fields, index)
        groups.append(group)
        index += sum(len(pod.devices) for pod in group)
    top.check_count("group_count", len(groups), "group", of="group_list", is_dropped=True)

    instances = [instance for group in groups for instance in group]
    _refuse_same_names(instances)
    listed = [instance for instance in instances if instance.devices]
    ordered = [[instance for instance in group if instance.devices] for group in groups]
    for group in ordered:
        _warn_of_order(group)

    return RankTable(
        servers=_decode_servers(instance for group in ordered for instance in _put_in_order(group)),
        dialect=Dialect.GROUP_LIST,
        version="",
        idle_pods=tuple(instance.pod_name for instance in instances if not instance.devices),
        extra_keys=top.extra_keys(KNOWN_TOP),
        errors=(),
        source=top.document.source,
        layout=Layout(
            lists=tuple(instance.fields.path("devices") for instance in listed),
            firsts=tuple(instance.first_index for instance in listed),
        ),
    )


def decode_lab(top: Fields) -> RankTable:
    """Decode a completed table in the lab form; problems are recorded in `top.document`."""
    groups = top.objects("group_list")
    top.check_count("group_count", len(groups), "group", of="group_list", is_dropped=True)

    lists: list[str] = []
    devices_of: dict[str, list[Device]] = {}
    for group in groups:
        instances = group.objects("instance_list")
        for instance in instances:
            device = _decode_lab_instance(instance, len(lists))
            devices_of.setdefault(instance.text("server_id"), []).append(device)
            lists.append(instance.path("devices"))
        server_count = len({instance.text("server_id") for instance in instances})
        group.check_count("instance_count", len(instances), "instance", of="instance_list")
        group.check_count("device_num", len(instances), "device", of="instance_list")
        group.check_count("server_num", server_count, "server", of="instance_list")

    return RankTable(
        servers=tuple(
            Server(server_id=server_id, devices=tuple(sorted(devices, key=attrgetter("rank_id"))))
            for server_id, devices in devices_of.items()
        ),
        dialect=Dialect.LAB_LIST,
        version="",
        extra_keys=top.extra_keys(KNOWN_TOP),
        errors=(),
        source=top.document.source,
        layout=Layout(lists=tuple(lists), firsts=tuple(range(len(lists)))),
    )


def encode(table: RankTable) -> dict[str, object]:
    """Return a table as an equivalent group list.

    A group list has no rank ids, so a new group begins wherever the names of the pods would not keep their order.
    A server without pods becomes one, named after its position.

    Raises:
        RankTableError: No group list is equivalent to the table.
    """
    is_rank_list = table.dialect is Dialect.RANK_LIST
    if is_rank_list or table.version == SUPER_PODS:
        what = "the levels of a rank list" if is_rank_list else "super-pods (version 1.2)"
        raise RankTableError(f"cannot convert the table to a group list, which has no fields for {what}")

    groups: list[list[_Pod]] = []
    last: int | None = None
    for pod in _pods_by_rank(table):
        ordinal = _number_at_end(pod["pod_name"])
        if last is None or ordinal is None or ordinal <= last:
            groups.append([])
        groups[-1].append(pod)
        last = ordinal

    return {
        "status": "completed",
        "group_count": str(len(groups)),
        "group_list": [
            {
                "group_name": f"group-{index}",
                "device_count": str(sum(len(pod["devices"]) for pod in pods)),
                "instance_count": str(len(pods)),
                "instance_list": pods,
            }
            for index, pods in enumerate(groups)
        ],
    }


def _pods_by_rank(table: RankTable) -> Iterator[_Pod]:
    server_of = {device.rank_id: server.server_id for server in table.servers for device in server.devices}
    seen: set[tuple[str, str]] = set()
    runs = groupby(table.devices, key=lambda device: (server_of[device.rank_id], device.pod_name))
    for (server_id, pod_name), devices in runs:
        if (server_id, pod_name) in seen:
            owner = f"pod '{pod_name}'" if pod_name else f"server '{server_id}'"
            raise RankTableError(f"cannot convert the table to a group list: the ranks of {owner} are not contiguous")

        seen.add((server_id, pod_name))
        yield {
            "pod_name": pod_name or f"server-{len(seen) - 1}",
            "server_id": server_id,
            "devices": [{"device_id": str(device.device_id), "device_ip": device.device_ip} for device in devices],
        }


def _decode_group(group: Fields, first_index: int) -> list[_Instance]:
    is_empty = group.values.get("device_count") in ("0", 0)  # not a set: the value may be unhashable
    instances: list[_Instance] = []
    size = 0
    for fields in group.objects("instance_list", is_required=not is_empty):
        instance = _Instance(
            fields=fields,
            pod_name=fields.text("pod_name"),
            server_id=fields.text("server_id"),
            devices=fields.objects("devices", is_required=False),
            first_index=first_index + size,
        )
        instances.append(instance)
        size += len(instance.devices)

    group.check_count("instance_count", len(instances), "instance", of="instance_list")
    group.check_count("device_count", size, "device", of="instance_list")

    return instances


def _number_at_end(pod_name: str) -> int | None:
    end = pod_name.rpartition("-")[2]
    return int(end) if is_whole_number(end) else None


def _put_in_order(instances: Sequence[_Instance]) -> list[_Instance]:
    """Order the instances of one group as their ranks are counted; see the module's docstring."""
    numbered = sorted((pod for pod in instances if pod.ordinal is not None), key=attrgetter("ordinal"))
    following = iter(numbered)
    return [pod if pod.ordinal is None else next(following) for pod in instances]


def _decode_servers(instances: Iterable[_Instance]) -> tuple[Server, ...]:
    """Count the ranks, and join the pods of each server."""
    devices_of: dict[str, list[Device]] = {}
    rank_id = 0
    for instance in instances:
        devices = devices_of.setdefault(instance.server_id, [])
        for index, fields in enumerate(instance.devices, instance.first_index):
            devices.append(
                Device(
                    device_id=fields.whole_number("device_id"),
                    device_ip=fields.text("device_ip", default=""),
                    rank_id=rank_id,
                    pod_name=instance.pod_name,
                    index=index,
                )
            )
            rank_id += 1

    return tuple(Server(server_id=server_id, devices=tuple(devices)) for server_id, devices in devices_of.items())


def _refuse_same_names(instances: Iterable[_Instance]) -> None:
    seen: dict[str, _Instance] = {}
    for instance in instances:
        first = seen.setdefault(instance.pod_name, instance)
        if first is not instance:
            sentence = f"duplicate pod_name '{instance.pod_name}'{first_used(first.fields.path())}"
            instance.fields.refuse(sentence, "pod_name")


def _warn_of_order(instances: Sequence[_Instance]) -> None:
    """Warn of names that do not determine the order of a group of several instances."""
    if len(instances) <= 1:
        return

    uses = Counter(pod.ordinal for pod in instances)
    without = [pod.pod_name for pod in instances if pod.ordinal is None]
    alike = [pod.pod_name for pod in instances if pod.ordinal is not None and uses[pod.ordinal] > 1]
    first = instances[0].fields
    for pod_names, what in ((without, "have no number at the end"), (alike, "have the same number at the end")):
        if pod_names:
            named = abbreviated([f"'{name}'" for name in pod_names])
            sentence = f"pod names {what} ({named}), so ranks follow the order of the list"
            first.document.warn(sentence, first.path().rpartition("[")[0])


def _decode_lab_instance(instance: Fields, index: int) -> Device:
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

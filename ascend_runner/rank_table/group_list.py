"""The group-list dialect ("template 2"), cloud form, as CCE and ModelArts write it: groups of pods with their devices.

It states no ranks. They follow from an order, which every node of a job must find alike:

- groups as they are listed;
- in each group, instances by the integer that ends their pod_name, as ModelArts' own launcher orders them. It is what
  follows the last "-", or the whole name where there is no "-" (the HCCL-Controller names pods "0", "1", ...);
- an instance whose name ends in no such integer keeps the place at which it is listed, and those that have one are
  ordered among the places that are left. Those that share one stay as they are listed among themselves. Both give a
  warning, for then it is the list that decides about ranks;
- devices as they are listed.

Ranks are counted in that order. Pods with one server_id are one server, which stands where its first rank does.
Instances without devices have no ranks, and groups without devices neither.
"""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from typing import TYPE_CHECKING, Final

import attrs

from ascend_runner.errors import RankTableError
from ascend_runner.rank_table.fields import MOST_DIGITS, Fields
from ascend_runner.rank_table.findings import WARNING, Finding
from ascend_runner.rank_table.model import GROUP_LIST, RANK_LIST, Device, Draft, Layout, Server
from ascend_runner.rank_table.server_list import SUPER_PODS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ascend_runner.rank_table.model import RankTable

MOST_NAMED: Final = 3  # pods in one warning
KNOWN_TOP: Final = frozenset({"status", "group_count", "group_list"})


@attrs.frozen(kw_only=True)
class _Instance:
    """One entry of an instance_list.

    `ordinal` is the number that ends the pod's name, `first_place` the `Device.place` of its first device.
    """

    fields: Fields
    pod_name: str
    ordinal: int | None
    server_id: str
    devices: Sequence[Fields]
    first_place: int


@attrs.frozen
class _Pod:
    """What one entry of an instance_list is to say."""

    pod_name: str
    server_id: str
    devices: tuple[Device, ...]


def decode(top: Fields) -> Draft:
    """Read a completed table. What is wrong with it is told by `top.problems`."""
    groups: list[list[_Instance]] = []
    place = 0
    for fields in top.objects("group_list"):
        group = _decode_group(fields, place)
        groups.append(group)
        place += sum(len(pod.devices) for pod in group)
    top.check_count("group_count", len(groups), "group", of="group_list")

    instances = [instance for group in groups for instance in group]
    _refuse_same_names(instances)
    listed = [instance for instance in instances if instance.devices]
    ordered = [[instance for instance in group if instance.devices] for group in groups]

    return Draft(
        servers=_decode_servers(instance for group in ordered for instance in _put_in_order(group)),
        dialect=GROUP_LIST,
        version="",
        idle_pods=tuple(instance.pod_name for instance in instances if not instance.devices),
        more=top.rest(KNOWN_TOP),
        notes=tuple(note for group in ordered for note in _tell_listed_order(group)),
        layout=Layout(
            lists=tuple(instance.fields.path("devices") for instance in listed),
            firsts=tuple(instance.first_place for instance in listed),
        ),
        source=top.problems.source,
    )


def encode(table: RankTable) -> dict[str, object]:
    """Give a table as a group list that says the same; RankTableError where none can.

    A group list states no ranks, so a new group begins wherever the names of the pods would not keep their order.
    Where a server has no pods, it is one, named after its place.
    """
    if table.dialect == RANK_LIST or table.version == SUPER_PODS:
        what = "the levels of a rank list" if table.dialect == RANK_LIST else "super-pods (version 1.2)"
        raise RankTableError(f"the table cannot become a group list, which has no place for {what}")

    groups: list[list[_Pod]] = []
    last: int | None = None
    for pod in _pods_by_rank(table):
        ordinal = _number_at_end(pod.pod_name)
        if last is None or ordinal is None or ordinal <= last:
            groups.append([])
        groups[-1].append(pod)
        last = ordinal

    return {
        "status": "completed",
        "group_count": str(len(groups)),
        "group_list": [_encode_group(f"group-{index}", pods) for index, pods in enumerate(groups)],
    }


def _pods_by_rank(table: RankTable) -> Iterator[_Pod]:
    """Give the pods in the order of their ranks."""
    server_of = {device.rank_id: server.server_id for server in table.servers for device in server.devices}
    seen: set[tuple[str, str]] = set()
    runs = groupby(table.devices, key=lambda device: (server_of[device.rank_id], device.pod_name))
    for (server_id, pod_name), devices in runs:
        if (server_id, pod_name) in seen:
            whose = f"pod '{pod_name}'" if pod_name else f"server '{server_id}'"
            sentence = f"the table cannot become a group list: the ranks of {whose} have others between them"
            raise RankTableError(sentence)

        seen.add((server_id, pod_name))
        yield _Pod(pod_name or f"server-{len(seen) - 1}", server_id, tuple(devices))


def _encode_group(group_name: str, pods: Sequence[_Pod]) -> dict[str, object]:
    return {
        "group_name": group_name,
        "device_count": str(sum(len(pod.devices) for pod in pods)),
        "instance_count": str(len(pods)),
        "instance_list": [_encode_pod(pod) for pod in pods],
    }


def _encode_pod(pod: _Pod) -> dict[str, object]:
    devices = [{"device_id": str(device.device_id), "device_ip": device.device_ip} for device in pod.devices]

    return {"pod_name": pod.pod_name, "server_id": pod.server_id, "devices": devices}


def _decode_group(group: Fields, place: int) -> list[_Instance]:
    """Read the instances of a group in listed order; `place` is that of its first device."""
    is_empty = group.values.get("device_count") in ("0", 0)  # no set: the value may be unhashable
    instances: list[_Instance] = []
    size = 0
    for fields in group.objects("instance_list", is_needed=not is_empty):
        instance = _decode_instance(fields, place + size)
        instances.append(instance)
        size += len(instance.devices)

    group.check_count("instance_count", len(instances), "instance", of="instance_list")
    group.check_count("device_count", size, "device", of="instance_list")

    return instances


def _decode_instance(fields: Fields, place: int) -> _Instance:
    pod_name = fields.text("pod_name")

    return _Instance(
        fields=fields,
        pod_name=pod_name,
        ordinal=_number_at_end(pod_name),
        server_id=fields.text("server_id"),
        devices=fields.objects("devices", is_needed=False),
        first_place=place,
    )


def _number_at_end(pod_name: str) -> int | None:
    end = pod_name.rpartition("-")[2]

    return int(end) if end.isdigit() and end.isascii() and len(end) <= MOST_DIGITS else None


def _put_in_order(instances: Sequence[_Instance]) -> list[_Instance]:
    """Order the instances of one group as their ranks are counted: see the head of this module."""
    numbered = sorted((pod for pod in instances if pod.ordinal is not None), key=_ordinal)
    following = iter(numbered)

    return [pod if pod.ordinal is None else next(following) for pod in instances]


def _decode_servers(instances: Iterable[_Instance]) -> tuple[Server, ...]:
    """Count the ranks, and bring the pods of one server together."""
    devices_of: dict[str, list[Device]] = {}
    rank_id = 0
    for instance in instances:
        devices = devices_of.setdefault(instance.server_id, [])
        for place, fields in enumerate(instance.devices, instance.first_place):
            devices.append(_decode_device(fields, rank_id, instance.pod_name, place))
            rank_id += 1

    return tuple(Server(server_id=server_id, devices=tuple(devices)) for server_id, devices in devices_of.items())


def _decode_device(fields: Fields, rank_id: int, pod_name: str, place: int) -> Device:
    return Device(
        device_id=fields.whole_number("device_id"),
        device_ip=fields.text("device_ip", default=""),
        rank_id=rank_id,
        pod_name=pod_name,
        place=place,
    )


def _refuse_same_names(instances: Iterable[_Instance]) -> None:
    seen: dict[str, _Instance] = {}
    for instance in instances:
        first = seen.setdefault(instance.pod_name, instance)
        if first is not instance:
            sentence = f"pod_name '{instance.pod_name}' is that of '{first.fields.path()}' already"
            instance.fields.refuse(sentence, "pod_name")


def _tell_listed_order(instances: Sequence[_Instance]) -> Iterator[Finding]:
    """Warn of names that do not settle the order of one group. A single instance has none."""
    if len(instances) == 1:
        return

    without = [pod.pod_name for pod in instances if pod.ordinal is None]
    if without:
        yield _order_decides(f"{_named(without)} without a number at the end", instances[0].fields)

    uses = Counter(pod.ordinal for pod in instances)
    alike = [pod.pod_name for pod in instances if pod.ordinal is not None and uses[pod.ordinal] > 1]
    if alike:
        yield _order_decides(f"{_named(alike)} with the same number at the end", instances[0].fields)


def _order_decides(what: str, instance: Fields) -> Finding:
    return Finding(
        severity=WARNING,
        sentence=f"{what}: the order of the list decides about ranks",
        path=instance.path().rpartition("[")[0],
        source=instance.problems.source,
    )


def _named(pod_names: Sequence[str]) -> str:
    named = ", ".join(f"'{name}'" for name in pod_names[:MOST_NAMED])
    more = f" and {len(pod_names) - MOST_NAMED} more" if len(pod_names) > MOST_NAMED else ""

    return f"pod_name {named}{more}"


def _ordinal(instance: _Instance) -> int:
    return instance.ordinal or 0

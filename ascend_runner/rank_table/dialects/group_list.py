"""The group-list dialect ("template 2"), cloud form, as CCE and ModelArts write it: groups of pods with their devices.

It has no rank ids. They follow from an order that every node of a job must derive alike:

- groups in listed order;
- in each group, instances by the integer at the end of their pod_name, as ModelArts' own launcher orders them: what
  follows the last "-", or the whole name where there is no "-" (the HCCL-Controller names pods "0", "1", ...);
- an instance whose name does not end in an integer keeps its position in the list, and the others are sorted into the
  remaining positions. Instances with the same integer stay in listed order. Both give a warning, as the order of the
  list then determines the ranks;
- devices in listed order.

Ranks are counted in that order. Pods with the same server_id form one server, at the position of its first rank.
Instances and groups without devices have no ranks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final

import attrs

from ascend_runner.errors import RankTableError
from ascend_runner.problems import Problem
from ascend_runner.rank_table.dialects.server_list import SUPER_PODS
from ascend_runner.rank_table.fields import MOST_DIGITS, Fields
from ascend_runner.rank_table.model import Device, Dialect, Layout, Server, first_used
from ascend_runner.rank_table.problems import warning
from ascend_runner.rank_table.table import ParsedTable, RankTable

MOST_NAMED: Final = 3  # pods in one warning
KNOWN_TOP: Final = frozenset({"status", "group_count", "group_list"})


@attrs.frozen(kw_only=True)
class _Instance:
    """One entry of an instance_list.

    `ordinal` is the number at the end of the pod's name, `first_index` the `Device.index` of its first device.
    """

    fields: Fields
    pod_name: str
    ordinal: int | None
    server_id: str
    devices: Sequence[Fields]
    first_index: int


@attrs.frozen
class _Pod:
    """The content of an entry of an instance_list that is to be written."""

    pod_name: str
    server_id: str
    devices: tuple[Device, ...]


def decode(top: Fields) -> ParsedTable:
    """Decode a completed table; problems are recorded in `top.document`."""
    groups: list[list[_Instance]] = []
    index = 0
    for fields in top.objects("group_list"):
        group = _decode_group(fields, index)
        groups.append(group)
        index += sum(len(pod.devices) for pod in group)
    top.check_count("group_count", len(groups), "group", of="group_list")

    instances = [instance for group in groups for instance in group]
    _refuse_same_names(instances)
    listed = [instance for instance in instances if instance.devices]
    ordered = [[instance for instance in group if instance.devices] for group in groups]

    return ParsedTable(
        servers=_decode_servers(instance for group in ordered for instance in _put_in_order(group)),
        dialect=Dialect.GROUP_LIST,
        version="",
        idle_pods=tuple(instance.pod_name for instance in instances if not instance.devices),
        extra_keys=top.extra_keys(KNOWN_TOP),
        notes=tuple(note for group in ordered for note in _order_notes(group)),
        layout=Layout(
            lists=tuple(instance.fields.path("devices") for instance in listed),
            firsts=tuple(instance.first_index for instance in listed),
        ),
        source=top.document.source,
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
    server_of = {device.rank_id: server.server_id for server in table.servers for device in server.devices}
    seen: set[tuple[str, str]] = set()
    runs = groupby(table.devices, key=lambda device: (server_of[device.rank_id], device.pod_name))
    for (server_id, pod_name), devices in runs:
        if (server_id, pod_name) in seen:
            owner = f"pod '{pod_name}'" if pod_name else f"server '{server_id}'"
            raise RankTableError(f"cannot convert the table to a group list: the ranks of {owner} are not contiguous")

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


def _decode_group(group: Fields, first_index: int) -> list[_Instance]:
    is_empty = group.values.get("device_count") in ("0", 0)  # not a set: the value may be unhashable
    instances: list[_Instance] = []
    size = 0
    for fields in group.objects("instance_list", is_required=not is_empty):
        instance = _decode_instance(fields, first_index + size)
        instances.append(instance)
        size += len(instance.devices)

    group.check_count("instance_count", len(instances), "instance", of="instance_list")
    group.check_count("device_count", size, "device", of="instance_list")

    return instances


def _decode_instance(fields: Fields, first_index: int) -> _Instance:
    pod_name = fields.text("pod_name")

    return _Instance(
        fields=fields,
        pod_name=pod_name,
        ordinal=_number_at_end(pod_name),
        server_id=fields.text("server_id"),
        devices=fields.objects("devices", is_required=False),
        first_index=first_index,
    )


def _number_at_end(pod_name: str) -> int | None:
    end = pod_name.rpartition("-")[2]

    return int(end) if end.isdigit() and end.isascii() and len(end) <= MOST_DIGITS else None


def _put_in_order(instances: Sequence[_Instance]) -> list[_Instance]:
    """Order the instances of one group as their ranks are counted; see the module's docstring."""
    numbered = sorted((pod for pod in instances if pod.ordinal is not None), key=_ordinal)
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


def _order_notes(instances: Sequence[_Instance]) -> Iterator[Problem]:
    """Warn of names that do not determine the order of a group of several instances."""
    if len(instances) == 1:
        return

    uses = Counter(pod.ordinal for pod in instances)
    without = [pod.pod_name for pod in instances if pod.ordinal is None]
    alike = [pod.pod_name for pod in instances if pod.ordinal is not None and uses[pod.ordinal] > 1]
    for pod_names, what in ((without, "without a number at the end"), (alike, "with the same number at the end")):
        if pod_names:
            yield warning(
                f"pod names {what} ({_listed(pod_names)}): ranks follow the order of the list",
                path=instances[0].fields.path().rpartition("[")[0],
                source=instances[0].fields.document.source,
            )


def _listed(pod_names: Sequence[str]) -> str:
    named = ", ".join(f"'{name}'" for name in pod_names[:MOST_NAMED])

    return named + (f" and {len(pod_names) - MOST_NAMED} more" if len(pod_names) > MOST_NAMED else "")


def _ordinal(instance: _Instance) -> int:
    return instance.ordinal or 0

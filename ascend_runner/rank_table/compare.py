"""What differs between two nodes' tables, rank by rank, so that EI0005 ("ranks disagree") can be explained.

HCCL compares a checksum of the parsed document: every value and the order of lists count, keys that it ignores
included, while spaces and the order of keys do not. So documents are compared, all of them. The entries of a table's
own lists are first brought together by what they are about: ranks, servers, pods, super-pods. That they stand in
another order is a difference of its own.
"""

from __future__ import annotations

from itertools import zip_longest
from operator import attrgetter
from typing import TYPE_CHECKING, Final

import attrs

from ascend_runner.rank_table.model import GROUP_LIST, LAB_LIST, RANK_LIST, SERVER_LIST

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ascend_runner.rank_table.model import RankTable

    Lists = Mapping[str, "Lists"]

ABSENT: Final = object()
THE_TABLE: Final = "the table"
THE_ENTRY: Final = "the entry"
# The lists that make up a table of each dialect, each with those that its entries hold; the innermost hold devices.
PODS: Final[Lists] = {"group_list": {"instance_list": {"devices": {}}}}
LISTS: Final[Mapping[str, Lists]] = {
    SERVER_LIST: {"server_list": {"device": {}}, "super_pod_list": {}},
    RANK_LIST: {"rank_list": {}},
    GROUP_LIST: PODS,
    LAB_LIST: PODS,
}
DEVICE_LISTS: Final = frozenset({"device", "devices", "rank_list"})
# What an entry of the other lists is, and the key that names it.
NAMES: Final[Mapping[str, tuple[str, str]]] = {
    "server_list": ("server", "server_id"),
    "super_pod_list": ("super-pod", "super_pod_id"),
    "group_list": ("group", "group_name"),
    "instance_list": ("pod", "pod_name"),
}


@attrs.frozen(repr=False)
class Null:
    """JSON's null, which a table states, told from what it does not state and from the text 'null'."""

    def __repr__(self) -> str:
        return "null"


@attrs.frozen
class Difference:
    """One fact that the two tables state differently: `first` and `second` are None where a table does not state it.

    `what` is a path in what it is about, or THE_ENTRY where only one table has that at all.
    """

    about: str
    what: str
    first: object
    second: object


@attrs.define
class _Parts:
    """A document taken apart: its objects by what they are about, those of ranks apart, and the order of each list."""

    ranks_in_order: Iterator[int]
    objects: dict[str, Mapping[str, object]] = attrs.field(factory=dict)
    ranks: dict[int, Mapping[str, object]] = attrs.field(factory=dict)
    orders: dict[tuple[str, str], tuple[str, ...]] = attrs.field(factory=dict)


def compare(
    first: RankTable, first_document: object, second: RankTable, second_document: object
) -> Iterator[Difference]:
    """Tell what differs between two tables and the documents that they were read from.

    The whole comes first, then servers, pods and super-pods, then rank by rank, and the order of lists last.
    """
    ours, theirs = _take_apart(first, first_document), _take_apart(second, second_document)
    yield from compare_values(THE_TABLE, {"rank_size": first.rank_size}, {"rank_size": second.rank_size})
    for about in dict.fromkeys((*ours.objects, *theirs.objects)):
        yield from _compare_entries(about, ours.objects.get(about), theirs.objects.get(about))
    for rank_id in range(max(first.rank_size, second.rank_size)):
        yield from _compare_entries(f"rank {rank_id}", ours.ranks.get(rank_id), theirs.ranks.get(rank_id))
    yield from _compare_orders(ours, theirs)


def compare_values(about: str, first: object, second: object) -> Iterator[Difference]:
    """Tell at which paths two JSON values differ as HCCL compares them.

    Not recursive: a document may be nested more deeply than Python calls may be.
    """
    to_compare: list[tuple[str, object, object]] = [("", first, second)]
    while to_compare:
        path, ours, theirs = to_compare.pop()
        if isinstance(ours, dict) and isinstance(theirs, dict):
            keys = sorted(ours.keys() | theirs.keys(), reverse=True)
            inner = ((f"{path}.{key}" if path else key, key) for key in keys)
            to_compare += [(name, ours.get(key, ABSENT), theirs.get(key, ABSENT)) for name, key in inner]
        elif isinstance(ours, list) and isinstance(theirs, list):
            pairs = list(enumerate(zip_longest(ours, theirs, fillvalue=ABSENT)))
            to_compare += [(f"{path}[{index}]", *pair) for index, pair in reversed(pairs)]
        elif type(ours) is not type(theirs) or ours != theirs:
            yield Difference(about, path, _stated(ours), _stated(theirs))


def _stated(value: object) -> object:
    if value is ABSENT:
        return None

    return Null() if value is None else value


def _take_apart(table: RankTable, document: object) -> _Parts:
    devices = sorted(table.devices, key=attrgetter("place"))
    parts = _Parts(device.rank_id for device in devices)
    if isinstance(document, dict):
        _take(parts, THE_TABLE, document, LISTS[table.dialect])
    if table.dialect != RANK_LIST:  # which names no servers
        servers = {device.rank_id: server.server_id for server in table.servers for device in server.devices}
        pods = {device.rank_id: {"pod_name": device.pod_name} if device.pod_name else {} for device in devices}
        for rank_id, entry in parts.ranks.items():
            parts.ranks[rank_id] = {"server_id": servers[rank_id], **pods[rank_id], **entry}

    return parts


def _take(parts: _Parts, about: str, fields: Mapping[str, object], lists: Lists) -> None:
    """Take an object apart: its lists of entries from what else it holds."""
    parts.objects[about] = {key: value for key, value in fields.items() if key not in lists}
    for key, inner in lists.items():
        entries = fields.get(key)
        if not isinstance(entries, list):
            parts.objects[about] = {**parts.objects[about], **({key: entries} if key in fields else {})}
        elif key in DEVICE_LISTS:
            rank_ids = [next(parts.ranks_in_order) for _ in entries]
            parts.ranks.update(zip(rank_ids, entries))
            parts.orders[about, key] = tuple(f"rank {rank_id}" for rank_id in rank_ids)
        else:
            names = _names_of(about, key, entries)
            parts.orders[about, key] = names
            for name, entry in zip(names, entries):
                _take(parts, name, entry, inner)


def _names_of(about: str, key: str, entries: Sequence[Mapping[str, object]]) -> tuple[str, ...]:
    """Name the entries of a list by their own names where each has another, and by their places otherwise."""
    noun, name_key = NAMES[key]
    names = tuple(f"{noun} {entry.get(name_key)}" for entry in entries)
    if len(set(names)) == len(names) and all(entry.get(name_key) for entry in entries):
        return names

    within = "" if about == THE_TABLE else f"{about}, "
    return tuple(f"{within}{key}[{index}]" for index in range(len(entries)))


def _compare_entries(
    about: str, first: Mapping[str, object] | None, second: Mapping[str, object] | None
) -> Iterator[Difference]:
    if first is not None and second is not None:
        yield from compare_values(about, first, second)
    else:
        yield Difference(about, THE_ENTRY, *(_named(entry) for entry in (first, second)))


def _named(entry: Mapping[str, object] | None) -> object:
    """Say which entry it is: a device's, by its place."""
    if entry is None or "device_id" not in entry:
        return entry

    server = f" on {entry['server_id']}" if "server_id" in entry else ""
    return f"device {entry['device_id']}{server}"


def _compare_orders(first: _Parts, second: _Parts) -> Iterator[Difference]:
    """Tell the first place at which a list stands in another order, of what both have in it."""
    for about, key in dict.fromkeys((*first.orders, *second.orders)):
        ours, theirs = first.orders.get((about, key), ()), second.orders.get((about, key), ())
        both = set(ours) & set(theirs)
        pairs = zip((name for name in ours if name in both), (name for name in theirs if name in both))
        swapped = next((pair for pair in pairs if pair[0] != pair[1]), None)
        if swapped:
            index = next(index for index, pair in enumerate(zip(ours, theirs)) if pair[0] != pair[1])
            yield Difference(about, f"the order of {key}, where [{index}]", *swapped)

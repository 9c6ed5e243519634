"""The differences between two nodes' tables, rank by rank, to explain EI0005 ("ranks disagree").

HCCL compares a checksum of the parsed document: every value and the order of lists count, including keys that HCCL
ignores, while whitespace and the order of keys do not. So whole documents are compared. The entries of a table's lists
are first matched by subject: ranks, servers, pods, super-pods. A different order of a list is a difference of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from operator import attrgetter
from typing import Final

import attrs

from ascend_runner.rank_table import codec
from ascend_runner.rank_table.dialects import ENTRIES, Entries
from ascend_runner.rank_table.fields import Document
from ascend_runner.rank_table.model import Dialect, RankTable

ABSENT: Final = object()
THE_TABLE: Final = "the table"
THE_ENTRY: Final = "the entry"
DEVICE_LISTS: Final = frozenset({"device", "devices", "rank_list"})
# The noun for an entry of the other lists, and the key with its name.
NAMES: Final[Mapping[str, tuple[str, str]]] = {
    "server_list": ("server", "server_id"),
    "super_pod_list": ("super-pod", "super_pod_id"),
    "group_list": ("group", "group_name"),
    "instance_list": ("pod", "pod_name"),
}


@attrs.frozen
class Difference:
    """One value in which two tables differ: `first` and `second` are ABSENT where a table does not have it.

    `subject` is what the value belongs to ("rank 3"), `path` its path within the subject, or THE_ENTRY where only one
    table has the subject at all.
    """

    subject: str
    path: str
    first: object
    second: object


@attrs.define
class _Parts:
    """The parts of a document: its objects by subject, and the order of each list."""

    ranks_in_order: Iterator[int]
    objects: dict[str, Mapping[str, object]] = attrs.field(factory=dict)
    ranks: dict[int, Mapping[str, object]] = attrs.field(factory=dict)
    orders: dict[tuple[str, str], tuple[str, ...]] = attrs.field(factory=dict)


def compare(first: RankTable, second: RankTable) -> Iterator[Difference]:
    """Return the differences between two tables and the documents that they were read from.

    Those of the whole table come first, then servers, pods and super-pods, then ranks, and the order of lists last.
    """
    ours, theirs = _take_apart(first), _take_apart(second)
    yield from compare_values(THE_TABLE, {"rank_size": first.rank_size}, {"rank_size": second.rank_size})
    for subject in dict.fromkeys((*ours.objects, *theirs.objects)):
        yield from _compare_entries(subject, ours.objects.get(subject), theirs.objects.get(subject))
    for rank_id in range(max(first.rank_size, second.rank_size)):
        yield from _compare_entries(f"rank {rank_id}", ours.ranks.get(rank_id), theirs.ranks.get(rank_id))
    yield from _compare_orders(ours, theirs)


def compare_values(subject: str, first: object, second: object) -> Iterator[Difference]:
    """Return the differences of two JSON values as HCCL compares them.

    Not recursive, as a document may be nested more deeply than Python calls.
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
            yield Difference(subject, path, ours, theirs)


def _take_apart(table: RankTable) -> _Parts:
    devices = sorted(table.devices, key=attrgetter("index"))
    parts = _Parts(device.rank_id for device in devices)
    document = codec.parse(table.data, Document(table.source))
    if isinstance(document, dict):
        _take(parts, THE_TABLE, document, ENTRIES[table.dialect])
    if table.dialect is not Dialect.RANK_LIST:  # a rank list names no servers
        servers = {device.rank_id: server.server_id for server in table.servers for device in server.devices}
        pods = {device.rank_id: {"pod_name": device.pod_name} if device.pod_name else {} for device in devices}
        for rank_id, entry in parts.ranks.items():
            parts.ranks[rank_id] = {"server_id": servers[rank_id], **pods[rank_id], **entry}

    return parts


def _take(parts: _Parts, subject: str, fields: Mapping[str, object], lists: Entries) -> None:
    """Separate an object's lists of entries from the rest of it."""
    listed = {key: entries for key in lists if isinstance(entries := fields.get(key), list)}
    parts.objects[subject] = {key: value for key, value in fields.items() if key not in listed}
    for key, entries in listed.items():
        if key in DEVICE_LISTS:
            rank_ids = [next(parts.ranks_in_order) for _ in entries]
            parts.ranks.update(zip(rank_ids, entries))
            parts.orders[subject, key] = tuple(f"rank {rank_id}" for rank_id in rank_ids)
        else:
            names = _names_of(subject, key, entries)
            parts.orders[subject, key] = names
            for name, entry in zip(names, entries):
                _take(parts, name, entry, lists[key])


def _names_of(subject: str, key: str, entries: Sequence[Mapping[str, object]]) -> tuple[str, ...]:
    """Name the entries of a list by their own names if these are unique, and by their positions otherwise."""
    noun, name_key = NAMES[key]
    names = tuple(f"{noun} {entry.get(name_key)}" for entry in entries)
    if len(set(names)) == len(names) and all(entry.get(name_key) for entry in entries):
        return names

    within = "" if subject == THE_TABLE else f"{subject}, "
    return tuple(f"{within}{key}[{index}]" for index in range(len(entries)))


def _compare_entries(
    subject: str, first: Mapping[str, object] | None, second: Mapping[str, object] | None
) -> Iterator[Difference]:
    if first is not None and second is not None:
        yield from compare_values(subject, first, second)
    else:
        yield Difference(subject, THE_ENTRY, *(_named(entry) for entry in (first, second)))


def _named(entry: Mapping[str, object] | None) -> object:
    """Describe the entry of a device by its place."""
    if entry is None:
        return ABSENT
    if "device_id" not in entry:
        return entry

    server = f" on {entry['server_id']}" if "server_id" in entry else ""
    return f"device {entry['device_id']}{server}"


def _compare_orders(first: _Parts, second: _Parts) -> Iterator[Difference]:
    """Find the first position at which the order of a list differs, among the entries that both have."""
    for subject, key in dict.fromkeys((*first.orders, *second.orders)):
        ours, theirs = first.orders.get((subject, key), ()), second.orders.get((subject, key), ())
        both = set(ours) & set(theirs)
        pairs = zip((name for name in ours if name in both), (name for name in theirs if name in both))
        swapped = next((pair for pair in pairs if pair[0] != pair[1]), None)
        if swapped:
            index = next(index for index, pair in enumerate(zip(ours, theirs)) if pair[0] != pair[1])
            yield Difference(subject, f"{key} is in a different order: [{index}]", *swapped)

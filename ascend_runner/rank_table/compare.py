"""What differs between two tables, rank by rank, so that EI0005 ("ranks disagree") can be explained.

HCCL compares a checksum of the parsed document: every value and the order of lists count, keys that it ignores
included, while spaces and the order of keys do not. So two tables can say the same of every rank and still differ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ascend_runner.rank_table.model import Device, RankTable, Server

ABSENT: Final = object()


@attrs.frozen
class Difference:
    """One fact that the two tables state differently: `first` and `second` are None where a table does not state it."""

    about: str
    what: str
    first: object
    second: object


def compare_tables(first: RankTable, second: RankTable) -> Iterator[Difference]:
    """Tell what differs in the whole, then about servers, then rank by rank."""
    yield from _compare_values("the table", "version", first.version or None, second.version or None)
    yield from _compare_values("the table", "rank_size", first.rank_size, second.rank_size)
    yield from _compare_values("the table", "server_count", first.server_count, second.server_count)
    yield from _compare_maps("the table", first.more, second.more)
    pods = ({pod.super_pod_id: list(pod.server_ids) for pod in table.super_pods} for table in (first, second))
    yield from _compare_maps("the super-pods", *pods)
    yield from _compare_servers(first, second)

    by_rank = zip(_facts_by_rank(first, second.rank_size), _facts_by_rank(second, first.rank_size))
    for rank_id, (ours, theirs) in enumerate(by_rank):
        if ours and theirs:
            yield from _compare_maps(f"rank {rank_id}", ours, theirs)
        else:
            yield Difference(f"rank {rank_id}", "device", *(_place(facts) for facts in (ours, theirs)))


def compare_documents(first: object, second: object) -> Iterator[Difference]:
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
        elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
            pairs = list(enumerate(zip(ours, theirs)))
            to_compare += [(f"{path}[{index}]", *pair) for index, pair in reversed(pairs)]
        elif type(ours) is not type(theirs) or isinstance(ours, (dict, list)) or ours != theirs:
            yield Difference("the document", path, *(None if value is ABSENT else value for value in (ours, theirs)))


def _compare_servers(first: RankTable, second: RankTable) -> Iterator[Difference]:
    ours = {server.server_id: server for server in first.servers}
    theirs = {server.server_id: server for server in second.servers}
    for server_id in dict.fromkeys((*ours, *theirs)):
        if server_id in ours and server_id in theirs:
            yield from _compare_maps(f"server {server_id}", ours[server_id].more, theirs[server_id].more)


def _facts_by_rank(table: RankTable, at_least: int) -> Iterator[Mapping[str, object]]:
    servers = {device.rank_id: server for server in table.servers for device in server.devices}
    for device in table.devices:
        yield _facts(device, servers[device.rank_id])
    for _ in range(table.rank_size, at_least):
        yield {}


def _place(facts: Mapping[str, object]) -> str | None:
    return f"{facts['device_id']} on {facts['server_id']}" if facts else None


def _facts(device: Device, server: Server) -> Mapping[str, object]:
    facts: dict[str, object] = {"server_id": server.server_id, "device_id": device.device_id}
    if device.pod_name:
        facts["pod_name"] = device.pod_name

    return {**facts, "device_ip": device.device_ip, **device.more}


def _compare_maps(about: str, first: Mapping[str, object], second: Mapping[str, object]) -> Iterator[Difference]:
    for key in dict.fromkeys((*first, *second)):
        yield from _compare_values(about, key, first.get(key), second.get(key))


def _compare_values(about: str, what: str, first: object, second: object) -> Iterator[Difference]:
    if first != second:
        yield Difference(about, what, first, second)

"""Tables made of tables: several merged into one, or a part of one. Ranks are numbered anew, in the order they had."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Final

import attrs

from ascend_runner.errors import RankTableError
from ascend_runner.rank_table.model import NO_LAYOUT, NOTHING_MORE, RANK_LIST, SERVER_LIST, RankTable, Server, SuperPod
from ascend_runner.rank_table.server_list import PLAIN, SUPER_PODS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence


MOST_LISTED: Final = 8  # of what a table holds, in a sentence


def merge(tables: Sequence[RankTable]) -> RankTable:
    """Join tables in the order given: the ranks of the first come first.

    Super-pods of one id become one. RankTableError where a server is in two tables, or their versions do not go
    together.
    """
    if not tables:
        raise RankTableError("there is no table to merge")

    parts = [_as_written(table) for table in tables]
    holder_of: dict[str, RankTable] = {}
    pods: dict[str, list[str]] = {}
    for part in parts:
        if part.version != parts[0].version:
            sentence = (
                f"{_name(part)} cannot be merged: its version is '{part.version}', that of {_name(parts[0])} is"
                f" '{parts[0].version}'"
            )
            raise RankTableError(sentence)
        for server in part.servers:
            other = holder_of.setdefault(server.server_id, part)
            if other is not part:
                raise RankTableError(f"server '{server.server_id}' is in {_name(other)} and in {_name(part)}")
        for pod in part.super_pods:
            pods.setdefault(pod.super_pod_id, []).extend(pod.server_ids)

    first_ranks = accumulate((part.rank_size for part in parts), initial=0)
    moved = (_with_ranks(part.servers, first) for part, first in zip(parts, first_ranks))

    return attrs.evolve(
        parts[0],
        servers=tuple(server for servers_of_part in moved for server in servers_of_part),
        super_pods=tuple(SuperPod(pod_id, tuple(server_ids)) for pod_id, server_ids in pods.items()),
        layout=NO_LAYOUT,
        source="",
    )


def subset(
    table: RankTable,
    *,
    server_ids: Sequence[str] | None = None,
    device_ids: Collection[int] | None = None,
) -> RankTable:
    """Keep some servers (all: None) and on each of them some devices, by their physical ids (all: None).

    The servers keep the order of the table. RankTableError where a server, or a device on one of them, is not there.
    """
    known = {server.server_id for server in table.servers}
    for server_id in server_ids or ():
        if server_id not in known:
            raise RankTableError(f"server '{server_id}' is not in {_name(table)}: it has {_listed(known)}")

    part = _as_written(table)
    wanted = known if server_ids is None else set(server_ids)
    kept = [_keep(server, device_ids, _name(table)) for server in part.servers if server.server_id in wanted]
    ranks = {device.rank_id for server in kept for device in server.devices}
    numbers = {rank_id: index for index, rank_id in enumerate(sorted(ranks))}
    pods = (
        SuperPod(pod.super_pod_id, tuple(server_id for server_id in pod.server_ids if server_id in wanted))
        for pod in part.super_pods
    )

    return attrs.evolve(
        part,
        servers=tuple(_with_numbers(server, numbers) for server in kept),
        super_pods=tuple(pod for pod in pods if pod.server_ids),
    )


def _as_written(table: RankTable) -> RankTable:
    """Give a table as it is once written: a group list is a server list then."""
    if table.dialect == RANK_LIST:
        return attrs.evolve(table, notes=(), is_native=False)

    return attrs.evolve(
        table,
        servers=tuple(_without_pods(server) for server in table.servers),
        dialect=SERVER_LIST,
        version=SUPER_PODS if table.version == SUPER_PODS else PLAIN,
        more=table.more if table.dialect == SERVER_LIST else NOTHING_MORE,
        idle_pods=(),
        notes=(),
        is_native=False,
    )


def _without_pods(server: Server) -> Server:
    return attrs.evolve(server, devices=tuple(attrs.evolve(device, pod_name="") for device in server.devices))


def _keep(server: Server, device_ids: Collection[int] | None, name: str) -> Server:
    if device_ids is None:
        return server

    found = {device.device_id for device in server.devices}
    missing = sorted(set(device_ids) - found)
    if missing:
        sentence = f"server '{server.server_id}' of {name} has no device {missing[0]}: it has {_listed(found)}"
        raise RankTableError(sentence)

    devices = tuple(device for device in server.devices if device.device_id in device_ids)
    return attrs.evolve(server, devices=devices)


def _with_ranks(servers: Iterable[Server], first: int) -> Iterable[Server]:
    for server in servers:
        devices = tuple(attrs.evolve(device, rank_id=first + device.rank_id) for device in server.devices)
        yield attrs.evolve(server, devices=devices)


def _with_numbers(server: Server, numbers: dict[int, int]) -> Server:
    devices = tuple(attrs.evolve(device, rank_id=numbers[device.rank_id]) for device in server.devices)

    return attrs.evolve(server, devices=devices)


def _name(table: RankTable) -> str:
    return table.source or "the table"


def _listed(values: Collection[object]) -> str:
    """Name a few of many."""
    shown = sorted(values, key=lambda value: (len(str(value)), str(value)))
    more = f" and {len(shown) - MOST_LISTED} more" if len(shown) > MOST_LISTED else ""

    return f"{', '.join(str(value) for value in shown[:MOST_LISTED])}{more}"

"""Tables made from tables: several merged into one, or a subset of one. Ranks are renumbered in their order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import attrs

from ascend_runner.errors import RankTableError
from ascend_runner.rank_table.model import NO_EXTRA_KEYS, NO_LAYOUT, Dialect, RankTable, Server, SuperPod
from ascend_runner.rank_table.server_list import PLAIN, SUPER_PODS
from ascend_runner.text import abbreviated


def merge(tables: Sequence[RankTable]) -> RankTable:
    """Join tables in the order given: the ranks of the first come first. Super-pods with the same id become one.

    Raises:
        RankTableError: A server is in two tables, or the tables have different versions.
    """
    if not tables:
        raise RankTableError("no tables to merge")

    parts = [_as_written(table) for table in tables]
    _refuse_misfits(parts)
    servers: list[Server] = []
    pods: dict[str, list[str]] = {}
    size = 0
    for part in parts:
        servers += [_renumbered(server, size.__add__) for server in part.servers]
        size += part.rank_size
        for pod in part.super_pods:
            pods.setdefault(pod.super_pod_id, []).extend(pod.server_ids)

    return attrs.evolve(
        parts[0],
        servers=tuple(servers),
        super_pods=tuple(SuperPod(pod_id, tuple(server_ids)) for pod_id, server_ids in pods.items()),
        layout=NO_LAYOUT,
        source="",
    )


def _refuse_misfits(parts: Sequence[RankTable]) -> None:
    first = parts[0]
    holder_of: dict[str, RankTable] = {}
    for part in parts:
        if part.version != first.version:
            versions = f"version '{part.version}' of {_name(part)} and version '{first.version}' of {_name(first)}"
            raise RankTableError(f"cannot merge tables of different versions: {versions}")
        for server in part.servers:
            other = holder_of.setdefault(server.server_id, part)
            if other is not part:
                where = f"{_name(other)} and {_name(part)}"
                raise RankTableError(f"cannot merge tables: server '{server.server_id}' is in both {where}")


def subset(
    table: RankTable, *, server_ids: Sequence[str] | None = None, device_ids: Collection[int] | None = None
) -> RankTable:
    """Return the table of some servers (None: all) and some devices on each, by their physical ids (None: all).

    The servers keep the order of the table.

    Raises:
        RankTableError: The table does not have one of the servers, or a server does not have one of the devices.
    """
    known = {server.server_id for server in table.servers}
    for server_id in server_ids or ():
        if server_id not in known:
            raise RankTableError(f"server '{server_id}' is not in {_name(table)}, which has {_listed(known)}")

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
        servers=tuple(_renumbered(server, numbers.__getitem__) for server in kept),
        super_pods=tuple(pod for pod in pods if pod.server_ids),
    )


def _as_written(table: RankTable) -> RankTable:
    """Return a table as it will be written: a group list becomes a server list."""
    if table.dialect is Dialect.RANK_LIST:
        return attrs.evolve(table, notes=(), data=b"")

    servers = (
        attrs.evolve(server, devices=tuple(attrs.evolve(device, pod_name="") for device in server.devices))
        for server in table.servers
    )
    return attrs.evolve(
        table,
        servers=tuple(servers),
        dialect=Dialect.SERVER_LIST,
        version=SUPER_PODS if table.version == SUPER_PODS else PLAIN,
        extra_keys=table.extra_keys if table.dialect is Dialect.SERVER_LIST else NO_EXTRA_KEYS,
        idle_pods=(),
        notes=(),
        data=b"",
    )


def _keep(server: Server, device_ids: Collection[int] | None, name: str) -> Server:
    if device_ids is None:
        return server

    found = {device.device_id for device in server.devices}
    missing = sorted(set(device_ids) - found)
    if missing:
        what = f"server '{server.server_id}' of {name} has no device {missing[0]}"
        raise RankTableError(f"{what}, only {_listed(found)}")

    devices = tuple(device for device in server.devices if device.device_id in device_ids)
    return attrs.evolve(server, devices=devices)


def _renumbered(server: Server, number_of: Callable[[int], int]) -> Server:
    devices = tuple(attrs.evolve(device, rank_id=number_of(device.rank_id)) for device in server.devices)
    return attrs.evolve(server, devices=devices)


def _name(table: RankTable) -> str:
    return table.source or "the table"


def _listed(values: Collection[object]) -> str:
    return abbreviated(sorted(map(str, values), key=lambda value: (len(value), value)))

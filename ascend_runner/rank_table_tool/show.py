"""A table as text and as JSON, and in a few words."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from ascend_runner.rank_table.model import RankTable
from ascend_runner.rank_table.parts import Server
from ascend_runner.rank_table.summary import dialect_of, size_of
from ascend_runner.text import columns, format_numbers, printable

MOST_LISTED: Final = 64  # devices with a line each, unless all are asked for


def text_of(table: RankTable, name: str, *, lists_all: bool = False) -> str:
    """Describe a table and list it: by device if it is small or `lists_all`, otherwise by server."""
    by_device = lists_all or table.rank_size <= MOST_LISTED
    rows = list(_device_rows(table) if by_device else _server_rows(table))
    heads = ("super-pod", "server", "pod", "rank" if by_device else "ranks", "device", "device_ip")
    idle = f"pods without devices: {', '.join(map(printable, table.idle_pods))}" if table.idle_pods else ""
    lines = [f"{printable(name)}: {dialect_of(table)}", size_of(table), idle]

    return "\n".join((*filter(None, lines), *(("", *columns(heads, rows)) if rows else ()))) + "\n"


def facts_of(table: RankTable) -> str:
    """Return a table as JSON that is the same for every dialect; in ASCII, as names may not be valid UTF-8."""
    pod_of = _super_pods(table)
    facts = {
        "source": table.source,
        "dialect": table.dialect.value,
        "version": table.version or None,
        "rank_size": table.rank_size,
        "server_count": table.server_count,
        "servers": [_facts_of_server(server, pod_of.get(server.server_id)) for server in table.servers],
        "idle_pods": list(table.idle_pods),
        "warnings": list(table.warnings),
    }
    return json.dumps(facts, indent=2, ensure_ascii=True) + "\n"


def _facts_of_server(server: Server, super_pod_id: str | None) -> dict[str, object]:
    return {
        "server_id": server.server_id,
        "super_pod_id": super_pod_id,
        "addresses": list(server.addresses),
        "devices": [
            {
                "rank_id": device.rank_id,
                "device_id": device.device_id,
                "device_ip": device.device_ip or None,
                "pod_name": device.pod_name or None,
            }
            for device in server.devices
        ],
    }


def _device_rows(table: RankTable) -> Iterator[tuple[str, ...]]:
    """Return a row per device, without the cells that equal those of the row above."""
    pod_of = _super_pods(table)
    shared: tuple[str, ...] = ()
    for server in table.servers:
        for device in server.devices:
            row = (pod_of.get(server.server_id, ""), server.server_id, device.pod_name)
            places = ("", "", "") if row == shared else row
            shared = row
            yield (*places, str(device.rank_id), str(device.device_id), device.device_ip)


def _server_rows(table: RankTable) -> Iterator[tuple[str, ...]]:
    """Return a row per server, or per pod of it."""
    pod_of = _super_pods(table)
    for server in table.servers:
        for name in server.pod_names or ("",):
            devices = server.devices_of(name)
            ends = [device.device_ip for device in (*devices[:1], *devices[-1:])]
            addresses = " ... ".join(dict.fromkeys(ends))
            ranks = format_numbers(device.rank_id for device in devices)
            device_ids = format_numbers(device.device_id for device in devices)
            yield (pod_of.get(server.server_id, ""), server.server_id, name, ranks, device_ids, addresses)


def _super_pods(table: RankTable) -> dict[str, str]:
    return {server_id: pod.super_pod_id for pod in table.super_pods for server_id in pod.server_ids}

"""The conditions that servers and devices must meet to form a rank table.

A quick check of the whole table comes first: nearly every table is sound, and some are large. Only when it fails does
a slower one find every problem and its path.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import attrgetter

from ascend_runner.problems import Problem
from ascend_runner.rank_table.model import Device, Layout, Server, first_used
from ascend_runner.rank_table.problems import BAD_VALUE, error


def find_problems(servers: Sequence[Server], layout: Layout, source: str) -> list[Problem]:
    """Return every reason why these servers do not form a table."""
    if _is_sound(servers):
        return []

    found = [*_duplicate_servers(servers, layout), *_bad_devices(servers, layout), *_bad_ranks(servers, layout)]
    return [error(sentence, source=source, path=path, code=BAD_VALUE) for sentence, path in found]


def _is_sound(servers: Sequence[Server]) -> bool:
    size = sum(len(server.devices) for server in servers)
    seen = bytearray(size)
    for server in servers:
        for device in server.devices:
            rank_id = device.rank_id
            if not 0 <= rank_id < size or seen[rank_id]:
                return False
            seen[rank_id] = 1
        if len({device.device_id for device in server.devices}) < len(server.devices):
            return False

    return len({server.server_id for server in servers}) == len(servers)


def _duplicate_servers(servers: Sequence[Server], layout: Layout) -> Iterator[tuple[str, str]]:
    seen: dict[str, str] = {}
    for server in servers:
        first_index = min((device.index for device in server.devices), default=-1)
        if server.server_id in seen:
            sentence = f"duplicate server_id '{server.server_id}'{first_used(seen[server.server_id])}"
            yield sentence, layout.holder(first_index, "server_id")
        seen.setdefault(server.server_id, layout.holder(first_index))


def _bad_devices(servers: Sequence[Server], layout: Layout) -> Iterator[tuple[str, str]]:
    for server in servers:
        seen: dict[int, Device] = {}
        for device in sorted(server.devices, key=attrgetter("index")):
            first = seen.setdefault(device.device_id, device)
            if first is not device:
                where = first_used(layout.path(first.index))
                sentence = f"duplicate device_id {device.device_id} on server '{server.server_id}'{where}"
                yield sentence, layout.path(device.index, "device_id")


def _bad_ranks(servers: Sequence[Server], layout: Layout) -> Iterator[tuple[str, str]]:
    """Find each rank_id that is out of range or a duplicate; without one of these no rank can be missing."""
    devices = sorted((device for server in servers for device in server.devices), key=attrgetter("index"))
    seen: dict[int, Device] = {}
    for device in devices:
        rank_id = device.rank_id
        path = layout.rank_path(device.index)
        if not 0 <= rank_id < len(devices):
            yield f"rank_id is {rank_id}, expected 0 to {len(devices) - 1} (one per device)", path
        elif rank_id in seen:
            yield f"duplicate rank_id {rank_id}{first_used(layout.path(seen[rank_id].index))}", path
        seen.setdefault(rank_id, device)

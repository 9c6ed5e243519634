"""Checks that servers form a rank table: ranks 0 to n-1, each once; no server twice, no device twice on a server."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter

from ascend_runner.problems import Problem, Severity
from ascend_runner.rank_table.codes import BAD_VALUE
from ascend_runner.rank_table.parts import Device, Dialect, Layout, Server


def find_errors(servers: tuple[Server, ...], dialect: Dialect, layout: Layout, source: str) -> list[Problem]:
    """Return every error because of which the servers do not form a table; `source` is the name of the document.

    A quick check of the whole table comes first: nearly every table is sound, and some are large. Only when it fails
    does a slower one find every problem and its path.
    """
    if _is_sound(servers):
        return []

    found = [
        *_duplicate_servers(servers, layout),
        *_duplicate_devices(servers, layout),
        *_bad_ranks(servers, dialect, layout),
    ]
    return [
        Problem(severity=Severity.ERROR, sentence=sentence, path=path, source=source, code=BAD_VALUE)
        for sentence, path in found
    ]


def first_used(path: str) -> str:
    """Return the end of a sentence about a duplicate: where the value was used first, if that is known."""
    return f" (first used in {path})" if path else ""


def _is_sound(servers: tuple[Server, ...]) -> bool:
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


def _duplicate_servers(servers: tuple[Server, ...], layout: Layout) -> Iterator[tuple[str, str]]:
    seen: dict[str, str] = {}
    for server in servers:
        first = min(server.devices, key=attrgetter("index"), default=None)
        if server.server_id in seen:
            sentence = f"duplicate server_id '{server.server_id}'{first_used(seen[server.server_id])}"
            yield sentence, layout.holder(first, "server_id") if first else ""
        seen.setdefault(server.server_id, layout.holder(first) if first else "")


def _duplicate_devices(servers: tuple[Server, ...], layout: Layout) -> Iterator[tuple[str, str]]:
    for server in servers:
        seen: dict[int, Device] = {}
        for device in sorted(server.devices, key=attrgetter("index")):
            first = seen.setdefault(device.device_id, device)
            if first is not device:
                where = first_used(layout.path(first))
                sentence = f"duplicate device_id {device.device_id} on server '{server.server_id}'{where}"
                yield sentence, layout.path(device, "device_id")


def _bad_ranks(servers: tuple[Server, ...], dialect: Dialect, layout: Layout) -> Iterator[tuple[str, str]]:
    """Find each rank_id that is out of range or a duplicate; without one of these no rank can be missing."""
    devices = sorted((device for server in servers for device in server.devices), key=attrgetter("index"))
    # In the lab form rank_id is a key beside the list of its one device.
    path_of = layout.holder if dialect is Dialect.LAB_LIST else layout.path
    seen: dict[int, Device] = {}
    for device in devices:
        rank_id = device.rank_id
        if not 0 <= rank_id < len(devices):
            yield f"rank_id is {rank_id}, expected 0 to {len(devices) - 1} (one per device)", path_of(device, "rank_id")
        elif rank_id in seen:
            where = first_used(layout.path(seen[rank_id]))
            yield f"duplicate rank_id {rank_id}{where}", path_of(device, "rank_id")
        seen.setdefault(rank_id, device)

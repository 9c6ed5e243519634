"""What must hold for servers and devices to be a rank table, looked at in bulk.

The quick look comes first, since nearly every table is sound and some are large; where it fails, the slow one tells
everything that is wrong, each with its place in the document.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from ascend_runner.errors import RankTableFormatError
from ascend_runner.rank_table.findings import BAD_VALUE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ascend_runner.rank_table.model import Draft, RankTable, Server


def require_table(table: Draft | RankTable) -> None:
    """Raise RankTableFormatError, with all that is wrong, where these servers are no table."""
    problems = find_problems(table)
    if problems:
        first = problems[0]
        raise RankTableFormatError(
            first.sentence, path=first.path, source=first.source, code=first.code, others=problems[1:]
        )


def find_problems(table: Draft | RankTable) -> list[RankTableFormatError]:
    """Tell what keeps these servers from being a table."""
    return [] if is_sound(table.servers) else [*_id_problems(table), *_rank_problems(table)]


def is_sound(servers: Sequence[Server]) -> bool:
    """Whether these servers are a table: the quick look."""
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


def _id_problems(table: Draft | RankTable) -> Iterator[RankTableFormatError]:
    """Report each server_id, and each device_id of one server, that is there already."""
    servers_seen: set[str] = set()
    for server in table.servers:
        name = server.server_id
        devices = sorted(server.devices, key=attrgetter("place"))
        if name in servers_seen:
            path = table.layout.holder(devices[0].place, "server_id") if devices else ""
            yield _problem(table, f"server_id '{name}' is there twice", path)
        servers_seen.add(name)

        devices_seen: set[int] = set()
        for device in devices:
            if device.device_id in devices_seen:
                path = table.layout.path(device.place, "device_id")
                yield _problem(table, f"device {device.device_id} is listed twice on server '{name}'", path)
            devices_seen.add(device.device_id)


def _rank_problems(table: Draft | RankTable) -> Iterator[RankTableFormatError]:
    """Report each rank_id that is out of range or there already; with none of these, no rank can be missing."""
    devices = sorted(table.devices, key=attrgetter("place"))
    seen: dict[int, str] = {}
    for device in devices:
        rank_id = device.rank_id
        path = table.layout.rank_path(device.place)
        if not 0 <= rank_id < len(devices):
            sentence = f"rank_id is {rank_id}, expected 0 to {len(devices) - 1}, one for each device"
            yield _problem(table, sentence, path)
        elif rank_id in seen:
            yield _problem(table, f"rank_id {rank_id} is that of {seen[rank_id]} already", path)
        else:
            entry = table.layout.path(device.place)
            seen[rank_id] = f"'{entry}'" if entry else "another device"


def _problem(table: Draft | RankTable, sentence: str, path: str) -> RankTableFormatError:
    return RankTableFormatError(sentence, path=path, source=table.source, code=BAD_VALUE)

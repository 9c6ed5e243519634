"""The rank-list dialect (version 2.0, Ascend 950): one entry per rank, with its addresses on each level of the network.

It names no servers. By CANN's document the lowest level of the network is what is inside of a server, and a local_id
is unique in a server: so the net_instance_id of a rank's lowest level is the server_id here. Where that level is larger
than a machine (a rack), device ids come again in it: each time they do, a further server is counted.

Numbers are numbers in this dialect. What a rank's levels hold is `Device.more`, as it stands, but folded.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from ascend_runner.rank_table.findings import rewritten
from ascend_runner.rank_table.model import RANK_LIST, Device, Draft, Layout, Server
from ascend_runner.rank_table.pieces import fold, unfold

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ascend_runner.rank_table.fields import Fields
    from ascend_runner.rank_table.model import RankTable

VERSION: Final = "2.0"
KNOWN_TOP: Final = frozenset({"status", "version", "rank_count", "rank_list"})
KNOWN_OF_RANK: Final = frozenset({"rank_id", "device_id"})
HOST_TYPES: Final = ("IPV4", "IPV6")  # by CANN's document only of a machine's own network cards


def decode(top: Fields) -> Draft:
    """Read a completed table. What is wrong with it is told by `top.problems`."""
    version = top.version()
    if version not in {VERSION, ""}:
        top.refuse(f"version is '{version}', expected '{VERSION}'", "version")

    ranks = [(_decode_instance(entry), _decode_device(entry)) for entry in top.each("rank_list")]
    top.check_count("rank_count", len(ranks), "rank", of="rank_list")
    # Of texts only the version is looked at here: numbers are what the others are to be.
    version_path = "version" if isinstance(top.values.get("version"), (int, float)) else ""
    unlike = (("string", version_path), ("number", top.problems.first_non_number))
    notes = tuple(rewritten(wanted, path, top.problems.source) for wanted, path in unlike if path)
    if "rank_count" not in top.values:
        notes += (rewritten("number", "rank_count", top.problems.source),)

    return Draft(
        servers=_gather_servers(ranks),
        dialect=RANK_LIST,
        version=VERSION,
        more=top.rest(KNOWN_TOP),
        notes=notes,
        is_native=not notes,
        layout=Layout(lists=("rank_list",), firsts=(0,)),
        source=top.problems.source,
    )


def encode(table: Draft | RankTable) -> dict[str, object]:
    """Give the table as the document that HCCL reads."""
    return {
        "status": "completed",
        "version": VERSION,
        **table.more,
        "rank_count": len(table.devices),
        "rank_list": table.devices,
    }


def encode_entry(device: object) -> dict[str, object]:
    """Give an entry of the encoded `rank_list` as an object: one by one, as all of them would fill the memory."""
    if not isinstance(device, Device):
        raise TypeError(f"{type(device)} is nothing that a rank list holds")

    return {"rank_id": device.rank_id, "device_id": device.device_id, **unfold(device.more)}


def _decode_device(fields: Fields) -> Device:
    local_id, device_id, rank_id = map(fields.whole_number, ("local_id", "device_id", "rank_id"))
    rest = fields.rest(KNOWN_OF_RANK)
    rest["local_id"] = local_id

    return Device(device_id=device_id, rank_id=rank_id, more=fold(rest), place=fields.index)


def _decode_instance(fields: Fields) -> str:
    """Name the instance of the rank's lowest level."""
    levels = fields.objects("level_list")
    if levels:
        return levels[0].text("net_instance_id")

    fields.refuse("level_list is empty, expected at least the level inside of the server", "level_list")
    return ""


def _gather_servers(ranks: Iterable[tuple[str, Device]]) -> tuple[Server, ...]:
    devices_of: dict[str, list[Device]] = {}
    machines: Counter[tuple[str, int]] = Counter()
    for instance, device in sorted(ranks, key=lambda rank: rank[1].rank_id):
        machine = machines[instance, device.device_id]
        machines[instance, device.device_id] += 1
        devices_of.setdefault(f"{instance}/{machine}" if machine else instance, []).append(device)

    return tuple(
        Server(server_id=server_id, devices=tuple(devices), addresses=tuple(dict.fromkeys(_host_addresses(devices))))
        for server_id, devices in devices_of.items()
    )


def _host_addresses(devices: Iterable[Device]) -> Iterator[str]:
    """Give the addresses of the machine's own network cards, as far as the levels name some."""
    for device in devices:
        more = unfold(device.more)
        yield from _address(more.get("control_plane"))
        for level in _objects(more.get("level_list")):
            for address in _objects(level.get("rank_addr_list")):
                if address.get("addr_type") in HOST_TYPES:  # no set: it may be unhashable
                    yield from _address(address)


def _address(value: object) -> Iterator[str]:
    address = value.get("addr") if isinstance(value, dict) else None
    if isinstance(address, str):
        yield address


def _objects(value: object) -> list[dict[str, object]]:
    """Pass over what is no array of objects: checks tell of it."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []

"""The rank-list dialect (version 2.0, Ascend 950): one entry per rank, with its addresses on each network level.

It has no servers. According to CANN's documentation the lowest level of the network is inside the server, and local_id
is unique on a server: so the net_instance_id of a rank's lowest level is the server_id here. Where that level is larger
than a machine (a rack), device ids repeat in it; each repetition counts as a further server.

Numbers are numbers in this dialect. A rank's levels are in `Device.extra_keys`, as in the document.

HCCL reads the same version on the A3 if the servers are joined by optical cross-connects (OXC): then the third of four
levels has the type OXC_Mesh, and each rank its place in a super-pod (topoinfo_ranktableOxc.cc of hcomm).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from ascend_runner.rank_table.fields import MISSING_FIELD, Fields
from ascend_runner.rank_table.model import Device, Dialect, Layout, RankTable, Server

VERSION: Final = "2.0"
KNOWN_TOP: Final = frozenset({"status", "version", "rank_count", "rank_list"})
KNOWN_OF_RANK: Final = frozenset({"rank_id", "device_id"})
OXC: Final = "OXC_Mesh"
HOST_TYPES: Final = ("IPV4", "IPV6")  # according to CANN's documentation only for a machine's own network cards


def decode(top: Fields) -> RankTable:
    """Decode a completed table; problems are recorded in `top.document`."""
    version = top.version()
    if version not in {VERSION, ""}:
        top.refuse(f"version is '{version}', expected '{VERSION}'", "version")

    ranks = [(_decode_instance(entry), _decode_device(entry)) for entry in top.objects("rank_list")]
    top.check_count("rank_count", len(ranks), "rank", of="rank_list")
    # HCCL accepts each value with one JSON type only; only the version is a string in this dialect.
    if isinstance(top.values.get("version"), (int, float)):
        top.document.warn_of_type("string", "version")
    if top.document.first_non_number:
        top.document.warn_of_type("number", top.document.first_non_number)
    if "rank_count" not in top.values:
        top.document.warn_of_type("number", "rank_count")
    elif top.values["rank_count"] is None:
        top.refuse_value("rank_count", "a whole number", code=MISSING_FIELD)

    return RankTable(
        servers=_gather_servers(ranks),
        dialect=Dialect.RANK_LIST,
        version=VERSION,
        extra_keys=top.extra_keys(KNOWN_TOP),
        errors=(),
        source=top.document.source,
        layout=Layout(lists=("rank_list",), firsts=(0,)),
    )


def encode(table: RankTable) -> dict[str, object]:
    """Return the table as the document that HCCL reads."""
    return {
        "status": "completed",
        "version": VERSION,
        **table.extra_keys,
        "rank_count": len(table.devices),
        "rank_list": [
            {"rank_id": device.rank_id, "device_id": device.device_id, **device.extra_keys} for device in table.devices
        ],
    }


def is_oxc(table: RankTable) -> bool:
    """Return whether a rank list is one of an A3 whose servers are joined by optical cross-connects."""
    levels = (level for device in table.devices[:1] for level in _objects(device.extra_keys.get("level_list")))
    return any(level.get("net_type") == OXC for level in levels)


def _decode_device(fields: Fields) -> Device:
    local_id, device_id, rank_id = map(fields.whole_number, ("local_id", "device_id", "rank_id"))
    extra_keys = {**fields.extra_keys(KNOWN_OF_RANK), "local_id": local_id}
    return Device(device_id=device_id, rank_id=rank_id, extra_keys=extra_keys, index=fields.index)


def _decode_instance(fields: Fields) -> str:
    """Return the net_instance_id of the rank's lowest level."""
    levels = fields.objects("level_list")
    if levels:
        return levels[0].text("net_instance_id")

    fields.refuse("level_list is empty, expected at least the level inside the server", "level_list")
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
    """Find the addresses of the machine's own network cards, as far as the levels contain any."""
    for device in devices:
        yield from _address(device.extra_keys.get("control_plane"))
        yield from _address({"addr": device.extra_keys.get("host_ip")})
        for level in _objects(device.extra_keys.get("level_list")):
            for address in _objects(level.get("rank_addr_list")):
                if address.get("addr_type") in HOST_TYPES:  # not a set: the value may be unhashable
                    yield from _address(address)


def _address(value: object) -> Iterator[str]:
    address = value.get("addr") if isinstance(value, dict) else None
    if isinstance(address, str):
        yield address


def _objects(value: object) -> list[dict[str, object]]:
    """Return the objects of an array; [] if it is not an array, which the checks report."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []

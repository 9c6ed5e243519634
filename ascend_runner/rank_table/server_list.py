"""The server-list dialect ("template 1"), which HCCL reads: servers, and the device and rank of each entry.

Decodes a table, and encodes one as HCCL wants it: its key order, every scalar a string (HCCL refuses numbers here).
Ranks are what the document states: their order need not be that of the lists.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Final

from ascend_runner.rank_table.model import Device, Layout, RankTable, Server

if TYPE_CHECKING:
    from ascend_runner.rank_table.fields import Fields

VERSION: Final = "1.0"
NUMBERS: Final = "{source} has numbers where HCCL wants strings: it is not handed on as it stands, but written anew"


def decode(top: Fields) -> RankTable:
    """Read a completed table. What is wrong with it is told by `top.problems`."""
    entries = top.objects("server_list")
    top.check_count("server_count", len(entries), "server", of="server_list")
    if top.text("version") not in {VERSION, ""}:
        top.refuse(f"version is '{top.text('version')}', expected '{VERSION}'", "version")

    devices_of = [entry.objects("device") for entry in entries]
    firsts = (0, *accumulate(len(devices) for devices in devices_of))
    busy = [index for index, devices in enumerate(devices_of) if devices]

    return RankTable(
        servers=tuple(_decode_server(*server) for server in zip(entries, devices_of, firsts)),
        version=top.text("version"),
        is_native=not top.problems.has_numbers,
        warnings=(NUMBERS.format(source=top.problems.source),) if top.problems.has_numbers else (),
        layout=Layout(
            lists=tuple(entries[index].path("device") for index in busy),
            firsts=tuple(firsts[index] for index in busy),
        ),
    )


def encode(table: RankTable) -> dict[str, object]:
    """Give the table as the document that HCCL reads."""
    return {
        "status": "completed",
        "version": VERSION,
        "server_count": str(table.server_count),
        "server_list": [_encode_server(server) for server in table.servers],
    }


def _decode_server(fields: Fields, devices: list[Fields], first_place: int) -> Server:
    server_id = fields.text("server_id")
    decoded = [_decode_device(device, place) for place, device in enumerate(devices, first_place)]

    return Server(server_id=server_id, devices=tuple(sorted(decoded, key=_rank_id)))


def _decode_device(fields: Fields, place: int) -> Device:
    return Device(
        device_id=fields.whole_number("device_id"),
        device_ip=fields.text("device_ip", default=""),
        rank_id=fields.whole_number("rank_id"),
        place=place,
    )


def _encode_server(server: Server) -> dict[str, object]:
    return {"server_id": server.server_id, "device": [_encode_device(device) for device in server.devices]}


def _encode_device(device: Device) -> dict[str, str]:
    return {"device_id": str(device.device_id), "device_ip": device.device_ip, "rank_id": str(device.rank_id)}


def _rank_id(device: Device) -> int:
    return device.rank_id

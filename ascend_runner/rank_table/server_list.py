"""The server-list dialect ("template 1"), which HCCL reads: servers, and the device and rank of each entry.

Version 1.0 and version 1.2 (super-pods), whoever wrote it: by hand, CANN's examples, MindCluster's hccl.json, CCE's.
Decodes a table, and encodes one as HCCL wants it: its key order, every scalar a string (HCCL refuses numbers here).
Ranks are what the document states: their order need not be that of the lists.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Final

from ascend_runner.rank_table.fields import shown
from ascend_runner.rank_table.findings import BAD_TABLE, BAD_VALUE, WARNING, Finding, rewritten
from ascend_runner.rank_table.model import NOTHING_MORE, SERVER_LIST, Device, Draft, Layout, Server, SuperPod

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from ascend_runner.rank_table.fields import Fields
    from ascend_runner.rank_table.model import RankTable

PLAIN: Final = "1.0"
SUPER_PODS: Final = "1.2"
# Written by some generators over what is a server list. HCCL chooses its parser for heterogeneous tables by it.
MISTAKEN: Final = "1.1"

KNOWN_TOP: Final = frozenset({"status", "version", "server_count", "server_list", "super_pod_list"})
KNOWN_OF_SERVER: Final = frozenset({"server_id", "device"})
KNOWN_OF_DEVICE: Final = frozenset({"device_id", "device_ip", "rank_id"})
# What HCCL reads besides, where it is there. All of it must be strings.
TEXTS_OF_SERVER: Final = ("host_ip",)
PORTS: Final = ("device_port", "host_port", "backup_device_port", "device_vnic_port")
TEXTS_OF_DEVICE: Final = (*PORTS, "super_device_id", "backup_device_ip", "net_position", "net_protocol")
# Where a server's entry names its machine: HCCL's key, MindCluster's (its server_id may be a pod's UID), MindSpore's.
ADDRESSES: Final = ("host_ip", "container_ip", "server_ip", "pod_ip")


def decode(top: Fields) -> Draft:
    """Read a completed table. What is wrong with it is told by `top.problems`."""
    version, notes = _decode_version(top)
    entries = top.objects("server_list")
    top.check_count("server_count", len(entries), "server", of="server_list")

    servers: list[Server] = []
    firsts: dict[str, int] = {}  # of each list of devices
    place = 0
    for entry in entries:
        servers.append(_decode_server(entry, place))
        if servers[-1].devices:
            firsts[entry.path("device")] = place
        place += len(servers[-1].devices)
    super_pods = tuple(_decode_super_pod(entry) for entry in top.objects("super_pod_list", is_needed=False))
    if any(gap.startswith("super_pod_list") for gap in top.problems.gaps):
        super_pods = ()  # with some of it lost, none of it can be checked
    elif version == SUPER_PODS and not super_pods and "super_pod_list" in top.values:
        notes = (*notes, _empty_list_note(top))
    if top.problems.first_non_text:
        notes = (*notes, rewritten("string", top.problems.first_non_text, top.problems.source))

    return Draft(
        servers=tuple(servers),
        version=version,
        super_pods=super_pods,
        more=top.rest(KNOWN_TOP),
        notes=notes,
        is_native=not notes,
        layout=Layout(lists=tuple(firsts), firsts=tuple(firsts.values())),
        source=top.problems.source,
    )


def encode(table: Draft | RankTable) -> dict[str, object]:
    """Give the table as the document that HCCL reads: version 1.2 where that is what it was, and 1.0 otherwise.

    Its servers are still records, which `encode_entry` makes objects of.
    """
    document: dict[str, object] = {
        "status": "completed",
        "version": SUPER_PODS if table.version == SUPER_PODS else PLAIN,
        "server_count": str(len(table.servers)),
        "server_list": table.servers,
    }
    if table.super_pods:
        document["super_pod_list"] = [_encode_super_pod(super_pod) for super_pod in table.super_pods]

    # The other keys of another dialect mean nothing here.
    return {**document, **table.more} if table.dialect == SERVER_LIST else document


def encode_entry(server: object) -> dict[str, object]:
    """Give an entry of the encoded `server_list` as an object: one by one, as all of them would fill the memory."""
    if not isinstance(server, Server):
        raise TypeError(f"{type(server)} is nothing that a server list holds")

    devices = [_encode_device(device) for device in server.devices]
    return {"server_id": server.server_id, **server.more, "device": devices}


def _decode_version(top: Fields) -> tuple[str, tuple[Finding, ...]]:
    """Read the version, and tell where HCCL would choose another parser by it."""
    value = top.values.get("version")
    version = top.version(default="")
    if version in {PLAIN, SUPER_PODS}:
        return version, ()

    if version == MISTAKEN:
        consequence = "by which HCCL takes a table for a heterogeneous one"
    elif not version:
        consequence = "without which HCCL takes a table for a group list"
    else:
        top.refuse(f"version is {shown(value)}, expected '{PLAIN}' or '{SUPER_PODS}'", "version")
        return version, ()

    note = Finding(
        severity=WARNING,
        sentence=f"version is {shown(value) if version else 'missing'}, {consequence}: it is written anew as '{PLAIN}'",
        path="version",
        source=top.problems.source,
        code=BAD_VALUE,
    )
    return version, (note,)


def _decode_server(fields: Fields, first_place: int) -> Server:
    server_id = fields.text("server_id")
    decoded = [_decode_device(device, place) for place, device in enumerate(fields.objects("device"), first_place)]
    more = _decode_rest(fields, KNOWN_OF_SERVER, TEXTS_OF_SERVER)
    named = (more.get(key) for key in ADDRESSES) if more else ()

    return Server(
        server_id=server_id,
        devices=tuple(sorted(decoded, key=attrgetter("rank_id"))),
        addresses=tuple(address for address in named if isinstance(address, str) and address),
        more=more,
    )


def _decode_device(fields: Fields, place: int) -> Device:
    device_id = fields.whole_number("device_id")
    device_ip = fields.text("device_ip", default="")
    rank_id = fields.whole_number("rank_id")
    more = _decode_rest(fields, KNOWN_OF_DEVICE, TEXTS_OF_DEVICE)

    return Device(device_id=device_id, device_ip=device_ip, rank_id=rank_id, more=more, place=place)


def _decode_rest(fields: Fields, known: Collection[str], texts: Collection[str]) -> Mapping[str, object]:
    """Read the other keys: those of `texts` as strings, the rest as they stand."""
    rest = fields.rest(known)
    if not rest:
        return NOTHING_MORE

    for key in texts:
        if key in rest and not isinstance(rest[key], str):
            rest[key] = fields.text(key, default="")

    return rest


def _decode_super_pod(fields: Fields) -> SuperPod:
    super_pod_id = fields.text("super_pod_id", default="")
    servers = fields.objects("server_list")

    return SuperPod(super_pod_id, tuple(server.text("server_id", default="") for server in servers))


def _empty_list_note(top: Fields) -> Finding:
    return Finding(
        severity=WARNING,
        sentence="super_pod_list is empty, which HCCL refuses: the table is written anew without it",
        path="super_pod_list",
        source=top.problems.source,
        code=BAD_TABLE,
    )


def _encode_device(device: Device) -> dict[str, object]:
    return {
        "device_id": str(device.device_id),
        "device_ip": device.device_ip,
        "rank_id": str(device.rank_id),
        **device.more,
    }


def _encode_super_pod(super_pod: SuperPod) -> dict[str, object]:
    return {
        "super_pod_id": super_pod.super_pod_id,
        "server_list": [{"server_id": server_id} for server_id in super_pod.server_ids],
    }

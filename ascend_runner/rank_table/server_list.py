"""The server-list dialect ("template 1"), which HCCL reads: servers, and the device and rank of each entry.

Versions 1.0 and 1.2 (super-pods), whether written by hand, by CANN's tools, by MindCluster or by CCE. Decodes a table,
and encodes one as HCCL requires it: its key order, every scalar a string (HCCL rejects numbers here). Ranks are those
that the document states; they need not follow the order of the lists.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from operator import attrgetter
from typing import Final

from ascend_runner.rank_table.fields import BAD_TABLE, BAD_VALUE, Fields, shown
from ascend_runner.rank_table.model import NO_EXTRA_KEYS, Device, Dialect, Layout, RankTable, Server, SuperPod

PLAIN: Final = "1.0"
SUPER_PODS: Final = "1.2"
# Some generators write it in what is a server list; HCCL selects its parser of heterogeneous tables by it.
MISTAKEN: Final = "1.1"

KNOWN_TOP: Final = frozenset({"status", "version", "server_count", "server_list", "super_pod_list"})
KNOWN_OF_SERVER: Final = frozenset({"server_id", "device"})
KNOWN_OF_DEVICE: Final = frozenset({"device_id", "device_ip", "rank_id"})
# Further keys that HCCL reads where present. All of them must be strings.
TEXTS_OF_SERVER: Final = ("host_ip",)
PORTS: Final = ("device_port", "host_port", "backup_device_port", "device_vnic_port")
TEXTS_OF_DEVICE: Final = (*PORTS, "super_device_id", "backup_device_ip", "net_position", "net_protocol")
# Keys with an address of the machine: HCCL's, MindCluster's (whose server_id may be a pod's UID), MindSpore's.
ADDRESSES: Final = ("host_ip", "container_ip", "server_ip", "pod_ip")


def decode(top: Fields) -> RankTable:
    """Decode a completed table; problems are recorded in `top.document`."""
    document = top.document
    version = _decode_version(top)
    entries = top.objects("server_list")
    top.check_count("server_count", len(entries), "server", of="server_list")
    servers, layout = _decode_servers(entries)
    super_pods = tuple(_decode_super_pod(entry) for entry in top.objects("super_pod_list", is_required=False))
    if any(gap.startswith("super_pod_list") for gap in document.gaps):  # an incomplete list cannot be checked
        super_pods = ()
    elif version == SUPER_PODS and not super_pods and "super_pod_list" in top.values:
        sentence = "super_pod_list is empty, which HCCL rejects (ascend-runner leaves it out)"
        document.warn(sentence, "super_pod_list", BAD_TABLE)
    if document.first_non_text:
        document.warn_of_type("string", document.first_non_text)

    return RankTable(
        servers=servers,
        version=version,
        super_pods=super_pods,
        extra_keys=top.extra_keys(KNOWN_TOP),
        errors=(),
        source=document.source,
        layout=layout,
    )


def encode(table: RankTable) -> dict[str, object]:
    """Return the table as the document that HCCL reads: version 1.2 if that is the table's own, and 1.0 otherwise."""
    document: dict[str, object] = {
        "status": "completed",
        "version": SUPER_PODS if table.version == SUPER_PODS else PLAIN,
        "server_count": str(len(table.servers)),
        "server_list": [_encode_server(server) for server in table.servers],
    }
    if table.super_pods:
        document["super_pod_list"] = [_encode_super_pod(super_pod) for super_pod in table.super_pods]

    # The extra keys of another dialect have no meaning here.
    return {**document, **table.extra_keys} if table.dialect is Dialect.SERVER_LIST else document


def _decode_version(top: Fields) -> str:
    version = top.version(default="")
    if version not in {PLAIN, SUPER_PODS, MISTAKEN, ""}:
        top.refuse(f"version is {shown(top.values['version'])}, expected '{PLAIN}' or '{SUPER_PODS}'", "version")
    if version in {MISTAKEN, ""}:
        found, kind = ("missing", "a group list") if not version else (shown(top.values["version"]), "heterogeneous")
        sentence = f"version is {found}, so HCCL would parse the table as {kind}; rewritten as '{PLAIN}'"
        top.document.warn(sentence, "version", BAD_VALUE)

    return version


def _decode_servers(entries: Sequence[Fields]) -> tuple[tuple[Server, ...], Layout]:
    servers: list[Server] = []
    firsts: dict[str, int] = {}  # index of the first device of each list
    index = 0
    for entry in entries:
        server = _decode_server(entry, index)
        servers.append(server)
        if server.devices:
            firsts[entry.path("device")] = index
        index += len(server.devices)

    return tuple(servers), Layout(lists=tuple(firsts), firsts=tuple(firsts.values()))


def _decode_server(fields: Fields, first_index: int) -> Server:
    server_id = fields.text("server_id")
    decoded = [_decode_device(device, index) for index, device in enumerate(fields.objects("device"), first_index)]
    extra_keys = _decode_extra(fields, KNOWN_OF_SERVER, TEXTS_OF_SERVER)
    named = (extra_keys.get(key) for key in ADDRESSES) if extra_keys else ()

    return Server(
        server_id=server_id,
        devices=tuple(sorted(decoded, key=attrgetter("rank_id"))),
        addresses=tuple(address for address in named if isinstance(address, str) and address),
        extra_keys=extra_keys,
    )


def _decode_device(fields: Fields, index: int) -> Device:
    return Device(
        device_id=fields.whole_number("device_id"),
        device_ip=fields.text("device_ip", default=""),
        rank_id=fields.whole_number("rank_id"),
        extra_keys=_decode_extra(fields, KNOWN_OF_DEVICE, TEXTS_OF_DEVICE),
        index=index,
    )


def _decode_extra(fields: Fields, known: Collection[str], texts: Collection[str]) -> Mapping[str, object]:
    """Read the other keys: the ones in `texts` as strings, the rest as they are."""
    extra_keys = fields.extra_keys(known)
    if not extra_keys:
        return NO_EXTRA_KEYS

    for key in texts:
        if key in extra_keys and not isinstance(extra_keys[key], str):
            extra_keys[key] = fields.text(key, default="")

    return extra_keys


def _decode_super_pod(fields: Fields) -> SuperPod:
    super_pod_id = fields.text("super_pod_id", default="")
    servers = fields.objects("server_list")
    return SuperPod(super_pod_id, tuple(server.text("server_id", default="") for server in servers))


def _encode_server(server: Server) -> dict[str, object]:
    devices = [_encode_device(device) for device in server.devices]
    return {"server_id": server.server_id, **server.extra_keys, "device": devices}


def _encode_device(device: Device) -> dict[str, object]:
    return {
        "device_id": str(device.device_id),
        "device_ip": device.device_ip,
        "rank_id": str(device.rank_id),
        **device.extra_keys,
    }


def _encode_super_pod(super_pod: SuperPod) -> dict[str, object]:
    return {
        "super_pod_id": super_pod.super_pod_id,
        "server_list": [{"server_id": server_id} for server_id in super_pod.server_ids],
    }

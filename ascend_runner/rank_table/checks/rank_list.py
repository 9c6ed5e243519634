"""Checks of a rank list (version 2.0): local ids, ports, and the addresses on each level and of the control plane.

The levels of a rank are read here as they are in the document: nothing else in the package needs them.
"""

from __future__ import annotations

from typing import Final

from ascend_runner.rank_table.checks.server_list import FAMILIES, LAST_PORT, family_of
from ascend_runner.rank_table.codes import MISSING_FIELD
from ascend_runner.rank_table.fields import UNREADABLE, Document, Fields, shown
from ascend_runner.rank_table.model import RankTable
from ascend_runner.rank_table.parts import Device, Server
from ascend_runner.rank_table.soundness import first_used
from ascend_runner.text import counted

MOST_RANKS: Final = 65536
SPARE: Final = 64  # the local_id of a spare device that replaces another
MOST_LEVELS: Final = 8
LAST_LAYER: Final = 7
MOST_ADDRESSES: Final = 24  # per level
MOST_PORTS: Final = 16  # per address
LONGEST_PORT: Final = 32
MOST_BACKUPS: Final = 16  # per address
LONGEST_INSTANCE: Final = 1024
LONGEST_ADDRESS: Final = 256
EID_DIGITS: Final = 32
EID: Final = "EID"
ADDRESS_TYPES: Final = (EID, *(family.upper() for family in FAMILIES.values()))
NET_TYPES: Final = ("TOPO_FILE_DESC", "CLOS", "1DMESH", "2DMESH", "A3_SERVER", "A2_AX_SERVER")
DETOURS: Final = ("true", "false")


def check(table: RankTable, found: Document) -> None:
    """Check every rank and every level of it."""
    document = Document(table.source)
    top = Fields(document, table.extra_keys)
    size = len(table.devices)
    if size > MOST_RANKS:
        top.refuse(f"rank_count is {size}, but HCCL accepts at most {MOST_RANKS}", "rank_count")
    if "detour" in top.values:
        _check_choice(top, "detour", ("", *DETOURS))

    address_counts: dict[tuple[int, str], int] = {}  # by net_layer and net_instance_id
    for server in table.servers:
        _check_local_ids(top, server)
        for device in server.devices:
            _check_rank(_fields_of(device, top), address_counts)
    _check_spares(top, table)

    found.problems += document.errors


def _fields_of(device: Device, top: Fields) -> Fields:
    return Fields(top.document, device.extra_keys, top, "rank_list", device.index)


def _check_local_ids(top: Fields, server: Server) -> None:
    owners: dict[object, Device] = {}
    for device in server.devices:
        local_id = device.extra_keys.get("local_id")
        owner = owners.setdefault(local_id, device)
        if owner is not device and local_id != SPARE:
            where = first_used(_fields_of(owner, top).path())
            sentence = f"duplicate local_id {local_id} on server '{server.server_id}'{where}"
            _fields_of(device, top).refuse(sentence, "local_id")


def _check_spares(top: Fields, table: RankTable) -> None:
    """Check that there is at most one spare device in the table, for a local_id that no rank has."""
    local_ids = [device.extra_keys.get("local_id") for device in table.devices]
    spares = [_fields_of(device, top) for device, local_id in zip(table.devices, local_ids) if local_id == SPARE]
    for spare in spares[1:]:
        spare.refuse(f"local_id is {SPARE} (a spare device), but a table may have only one", "local_id")
    if not spares:
        return

    replaced = spares[0].values.get("replaced_local_id")
    if replaced != UNREADABLE and replaced in local_ids:
        sentence = f"replaced_local_id is {shown(replaced)}, but a rank has this local_id"
        spares[0].refuse(sentence, "replaced_local_id")


def _check_rank(rank: Fields, address_counts: dict[tuple[int, str], int]) -> None:
    local_id = _number(rank, "local_id", 0, SPARE)
    if local_id == SPARE:
        _number(rank, "replaced_local_id", 0, SPARE - 1)
    for key in ("device_port", "host_port"):
        if key in rank.values:
            _number(rank, key, 1, LAST_PORT)

    levels = rank.objects("level_list")
    if len(levels) > MOST_LEVELS:
        rank.refuse(f"level_list has {len(levels)} levels, but HCCL accepts at most {MOST_LEVELS}", "level_list")
    previous = UNREADABLE
    for level in levels:
        layer = _check_level(level, address_counts)
        if UNREADABLE < layer <= previous:
            level.refuse(f"net_layer is {layer} after {previous}, expected increasing numbers", "net_layer")
        previous = max(previous, layer)

    plane = rank.member("control_plane") if "control_plane" in rank.values else None
    if plane:  # optional, but must be complete
        _check_typed(plane)
        _number(plane, "listen_port", 1, LAST_PORT)


def _check_level(level: Fields, address_counts: dict[tuple[int, str], int]) -> int:
    layer = _number(level, "net_layer", 0, LAST_LAYER)
    instance = level.text("net_instance_id")
    if len(instance.encode(errors="surrogatepass")) > LONGEST_INSTANCE:
        level.refuse(f"net_instance_id is longer than {LONGEST_INSTANCE} bytes", "net_instance_id")
    if "net_type" in level.values:
        _check_choice(level, "net_type", NET_TYPES)

    for address in level.objects("rank_addr_list"):
        _check_address(address)
    listed = level.values.get("rank_addr_list")
    if isinstance(listed, list):  # otherwise that has been reported
        expected = address_counts.setdefault((layer, instance), len(listed))
        if len(listed) > MOST_ADDRESSES:
            sentence = f"rank_addr_list has {len(listed)} addresses, but HCCL accepts at most {MOST_ADDRESSES}"
            level.refuse(sentence, "rank_addr_list")
        elif len(listed) != expected:
            sentence = f"rank_addr_list has {counted(len(listed), 'address')}"
            level.refuse(f"{sentence}, but that of another rank of '{instance}' has {expected}", "rank_addr_list")

    return layer


def _check_address(address: Fields) -> None:
    kind = _check_typed(address)
    if "backup_addr" in address.values:
        _check_backup_addresses(address, kind)

    ports = address.values.get("ports")
    if not isinstance(ports, list) or not 1 <= len(ports) <= MOST_PORTS:
        _refuse_array(address, "ports", f"an array of 1 to {MOST_PORTS} strings")
        return
    for index, port in enumerate(ports):
        if not isinstance(port, str) or not 1 <= len(port) <= LONGEST_PORT:
            sentence = f"ports[{index}] is {shown(port)}, expected a string like '0/4'"
            address.refuse(sentence, f"ports[{index}]")


def _check_typed(fields: Fields) -> str:
    """Check an address and its type; return the type, or "" where it is unknown."""
    kind = _check_choice(fields, "addr_type", ADDRESS_TYPES)
    text = fields.text("addr")
    if kind and text and not _is_address(text, kind):
        fields.refuse(f"addr is {shown(text)}, expected an address of type {kind}", "addr")

    return kind


def _check_backup_addresses(address: Fields, kind: str) -> None:
    """Check that the backup addresses have the same type, which must not be EID."""
    listed = address.values["backup_addr"]
    if not isinstance(listed, list) or len(listed) > MOST_BACKUPS:
        _refuse_array(address, "backup_addr", f"an array of at most {MOST_BACKUPS} strings")
    elif kind == EID and listed:
        sentence = f"backup_addr has {counted(len(listed), 'address')}, but an address of type {EID} has no backups"
        address.refuse(sentence, "backup_addr")
    else:
        for index, text in enumerate(listed if kind else ()):
            if not isinstance(text, str) or not _is_address(text, kind):
                sentence = f"backup_addr[{index}] is {shown(text)}, expected an address of type {kind}"
                address.refuse(sentence, f"backup_addr[{index}]")


def _is_address(text: str, kind: str) -> bool:
    if kind != EID:
        return len(text) <= LONGEST_ADDRESS and FAMILIES.get(family_of(text), "").upper() == kind

    return len(text) == EID_DIGITS and all(character in "0123456789abcdefABCDEF" for character in text)


def _check_choice(fields: Fields, key: str, choices: tuple[str, ...]) -> str:
    value = fields.values.get(key)
    if isinstance(value, str) and value in choices:
        return value

    fields.refuse_value(key, f"one of {', '.join(repr(choice) for choice in choices if choice)}")
    return ""


def _refuse_array(fields: Fields, key: str, expected: str) -> None:
    value = fields.values.get(key)
    if isinstance(value, list):
        fields.refuse(f"{key} has {counted(len(value), 'item')}, expected {expected}", key)
    else:
        fields.refuse_value(key, expected)


def _number(fields: Fields, key: str, first: int, last: int) -> int:
    """Read a number that HCCL requires as a JSON number, not as a string."""
    number = fields.whole_number(key)
    if number == UNREADABLE:
        return number

    if not isinstance(fields.values[key], int):
        fields.refuse(f"{key} is {shown(fields.values[key])}, but HCCL requires a number", key, code=MISSING_FIELD)
    if first <= number <= last:
        return number

    fields.refuse(f"{key} is {number}, expected {first} to {last}", key)
    return UNREADABLE

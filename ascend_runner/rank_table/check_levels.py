"""Checks of a rank list (version 2.0): local ids, ports, and the addresses on each level and of the control plane.

A rank's levels are looked at as they stand in the document: nothing else of the package needs them.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Final

import attrs

from ascend_runner.rank_table.check_addresses import FAMILIES, LAST_PORT, family_of
from ascend_runner.rank_table.fields import UNREADABLE, Fields, Problems, counted, shown
from ascend_runner.rank_table.findings import BAD_VALUE, ERROR, MISSING_FIELD
from ascend_runner.rank_table.pieces import unfold

if TYPE_CHECKING:
    from ascend_runner.rank_table.model import Device, Server
    from ascend_runner.rank_table.report import Report

MOST_RANKS: Final = 65536
BACKUP: Final = 64  # the local_id of a spare device that stands in for another
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


@attrs.define
class _Seen:
    """What the ranks looked at so far have."""

    address_counts: dict[tuple[int, str], int] = attrs.field(factory=dict)  # by net_layer and net_instance_id
    local_ids: set[object] = attrs.field(factory=set)
    spares: list[Device] = attrs.field(factory=list)


def check(report: Report) -> None:
    """Look at every rank and every level of it."""
    table = report.table
    problems = Problems(table.source)
    top = Fields(problems, dict(table.more))
    size = len(table.devices)
    if size > MOST_RANKS:
        top.refuse(f"rank_count is {size}, HCCL takes at most {MOST_RANKS}", "rank_count")
    if "detour" in top.values:
        _check_choice(top, "detour", ("", *DETOURS))

    seen = _Seen()
    for server in table.servers:
        _check_server(top, server, seen)
    _check_spares(top, seen)

    for problem in problems.found():
        report.add(ERROR, problem.sentence, problem.path, problem.code)


def _fields_of(device: Device, top: Fields) -> Fields:
    return Fields(top.problems, unfold(device.more), top, "rank_list", device.place)


def _check_server(top: Fields, server: Server, seen: _Seen) -> None:
    """Look at the ranks of a server, at each of them once: what they hold is folded."""
    owners: dict[object, Device] = {}
    for device in server.devices:
        rank = _fields_of(device, top)
        local_id = rank.values.get("local_id")
        owner = owners.setdefault(local_id, device)
        if local_id == BACKUP:
            seen.spares.append(device)
        elif owner is not device:
            where = _fields_of(owner, top).path()
            rank.refuse(f"local_id {local_id} is that of '{where}' already, on server '{server.server_id}'", "local_id")
        _check_rank(rank, seen.address_counts)
    seen.local_ids.update(owners)


def _check_spares(top: Fields, seen: _Seen) -> None:
    """HCCL takes one spare device in a table, for one whose local_id no rank has."""
    spares = [_fields_of(device, top) for device in sorted(seen.spares, key=attrgetter("rank_id"))]
    for spare in spares[1:]:
        spare.refuse(f"local_id is {BACKUP}, that of a spare device, which only one rank may have", "local_id")
    if not spares:
        return

    replaced = spares[0].values.get("replaced_local_id")
    if replaced != UNREADABLE and any(local_id == replaced for local_id in seen.local_ids):  # it may be unhashable
        spares[0].refuse(
            f"replaced_local_id is {shown(replaced)}, which a rank has as its local_id", "replaced_local_id"
        )


def _check_rank(rank: Fields, address_counts: dict[tuple[int, str], int]) -> None:
    local_id = _number(rank, "local_id", 0, BACKUP)
    if local_id == BACKUP:
        _number(rank, "replaced_local_id", 0, BACKUP - 1)
    for key in ("device_port", "host_port"):
        if key in rank.values:
            _number(rank, key, 1, LAST_PORT)

    levels = rank.objects("level_list")
    if len(levels) > MOST_LEVELS:
        rank.refuse(f"level_list holds {len(levels)} levels, HCCL takes at most {MOST_LEVELS}", "level_list")
    previous = UNREADABLE
    for level in levels:
        layer = _check_level(level, address_counts)
        if UNREADABLE < layer <= previous:
            level.refuse(f"net_layer is {layer} after {previous}, expected rising numbers", "net_layer")
        previous = max(previous, layer)

    if "control_plane" in rank.values:
        _check_control_plane(rank.member("control_plane"))


def _check_level(level: Fields, address_counts: dict[tuple[int, str], int]) -> int:
    layer = _number(level, "net_layer", 0, LAST_LAYER)
    instance = level.text("net_instance_id")
    if len(instance.encode(errors="surrogatepass")) > LONGEST_INSTANCE:
        level.refuse(f"net_instance_id has more than {LONGEST_INSTANCE} bytes", "net_instance_id")
    if "net_type" in level.values:
        _check_choice(level, "net_type", NET_TYPES)

    for address in level.objects("rank_addr_list"):
        _check_address(address)
    listed = level.values.get("rank_addr_list")
    if isinstance(listed, list):  # else that has been told
        expected = address_counts.setdefault((layer, instance), len(listed))
        _check_address_count(level, len(listed), expected)

    return layer


def _check_address_count(level: Fields, count: int, expected: int) -> None:
    if count > MOST_ADDRESSES:
        sentence = f"rank_addr_list holds {count} addresses, HCCL takes at most {MOST_ADDRESSES}"
        level.refuse(sentence, "rank_addr_list")
    if count != expected:
        instance = level.text("net_instance_id")
        sentence = f"rank_addr_list holds {counted(count, 'address')}, another rank's of '{instance}' {expected}"
        level.refuse(sentence, "rank_addr_list")


def _check_control_plane(plane: Fields | None) -> None:
    """HCCL wants all of it where it is there."""
    if plane:
        _check_typed(plane)
        _number(plane, "listen_port", 1, LAST_PORT)


def _check_address(address: Fields) -> None:
    kind = _check_typed(address)
    if "backup_addr" in address.values:
        _check_backup_addresses(address, kind)

    ports = address.values.get("ports")
    if not isinstance(ports, list) or not 1 <= len(ports) <= MOST_PORTS:
        code = BAD_VALUE if "ports" in address.values else MISSING_FIELD
        expected = f"expected an array of 1 to {MOST_PORTS} strings"
        address.refuse(f"ports {_listed(address, 'ports')}, {expected}", "ports", code=code)
        return
    for index, port in enumerate(ports):
        if not isinstance(port, str) or not 1 <= len(port) <= LONGEST_PORT:
            sentence = f"ports[{index}] is {shown(port)}, expected a string like '0/4'"
            address.refuse(sentence, f"ports[{index}]")


def _check_typed(fields: Fields) -> str:
    """Look at an address and its type; the type, or "" where it is none."""
    kind = _check_choice(fields, "addr_type", ADDRESS_TYPES)
    text = fields.text("addr")
    if kind and text and not _is_address(text, kind):
        fields.refuse(f"addr is {shown(text)}, expected an address of type {kind}", "addr")

    return kind


def _check_backup_addresses(address: Fields, kind: str) -> None:
    """HCCL takes other addresses of the same type, unless that is EID."""
    listed = address.values["backup_addr"]
    if not isinstance(listed, list) or len(listed) > MOST_BACKUPS:
        sentence = f"backup_addr {_listed(address, 'backup_addr')}, expected an array of up to {MOST_BACKUPS} strings"
        address.refuse(sentence, "backup_addr")
    elif kind == EID and listed:
        sentence = f"backup_addr holds {counted(len(listed), 'address')}, beside an address of type {EID} there is none"
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

    code = BAD_VALUE if key in fields.values else MISSING_FIELD
    expected = ", ".join(f"'{choice}'" for choice in choices if choice)
    fields.refuse(f"{key} is {_said(fields, key)}, expected one of {expected}", key, code=code)
    return ""


def _listed(fields: Fields, key: str) -> str:
    value = fields.values.get(key)

    return f"holds {len(value)}" if isinstance(value, list) else f"is {_said(fields, key)}"


def _said(fields: Fields, key: str) -> str:
    return shown(fields.values[key]) if key in fields.values else "missing"


def _number(fields: Fields, key: str, first: int, last: int) -> int:
    """Read a number that HCCL wants as one, and not as a string."""
    number = fields.whole_number(key)
    if number == UNREADABLE:
        return number
    if not isinstance(fields.values[key], int):
        fields.refuse(f"{key} is {shown(fields.values[key])}, HCCL wants a number here", key, code=MISSING_FIELD)
    if first <= number <= last:
        return number

    fields.refuse(f"{key} is {number}, expected {first} to {last}", key)
    return UNREADABLE

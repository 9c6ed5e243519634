"""Reports before the launch whatever HCCL would reject up to half an hour after it.

The levels of a rank are read here as they are in the document: nothing else in the package needs them.

Pure: a table in, all its problems out. The rules are HCCL's own (hcomm: config.cc, topoinfo_ranktable*.cc,
rank_table_info.cc) and CANN's documentation's; what only the documentation forbids is a warning.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from socket import AF_INET, AF_INET6, inet_ntop, inet_pton
from typing import Final

import attrs

from ascend_runner.platforms.chips import LAST_DEVICE
from ascend_runner.problems import Problem, Severity
from ascend_runner.rank_table import rank_list
from ascend_runner.rank_table.fields import (
    BAD_ENVIRONMENT,
    BAD_TABLE,
    BAD_VALUE,
    MISSING_FIELD,
    UNREADABLE,
    Document,
    Fields,
    shown,
)
from ascend_runner.rank_table.model import Device, Dialect, RankTable, Server, first_used
from ascend_runner.rank_table.server_list import MISTAKEN, PLAIN, PORTS, SUPER_PODS
from ascend_runner.text import counted, is_whole_number

# On a 910 the devices 0-3 and 4-7 are two rings: four devices are one ring, or two pairs that face each other.
SETS_OF_4: Final = frozenset(
    frozenset(map(int, digits)) for digits in ("0123", "4567", "0145", "0246", "0347", "1256", "1357", "2367")
)
COUNTS_OF_910: Final = frozenset({1, 2, 4, 8})


def implied_chip(table: RankTable) -> str | None:
    """Return the chip that a table is for, where its version or its chip_info determines it."""
    if table.dialect is Dialect.RANK_LIST:
        return "A3" if rank_list.is_oxc(table) else "950"
    if table.version == SUPER_PODS:
        return "A3"

    return "910" if table.extra_keys.get("chip_info") == "910" else None


def check_version(table: RankTable, found: Document, chip: str | None) -> None:
    """Check that HCCL reads this version on the chip: it selects its parser by the version."""
    version = table.version
    if chip == "950" and version != rank_list.VERSION:
        stated = f"version is '{version}'" if version else f"version is '{PLAIN}' after conversion"
        found.error(f"{stated}, but the 950 requires '{rank_list.VERSION}'", "version")
    elif version == rank_list.VERSION and chip != "950" and not (chip == "A3" and rank_list.is_oxc(table)):
        sentence = f"version is '{version}' (950 only), but the {chip} requires '{PLAIN}' or '{SUPER_PODS}'"
        found.error(sentence, "version")
    elif version == SUPER_PODS and chip != "A3":
        sentence = f"version is '{version}' (super-pods of the A3), but the {chip} requires '{PLAIN}'"
        found.warn(sentence, "version")
    elif version in {PLAIN, MISTAKEN} and chip == "A3" and len(table.servers) > 1:
        sentence = f"version is '{version}', but the A3 uses super-pods only with version '{SUPER_PODS}'"
        found.warn(sentence, "version")


def check_910(table: RankTable, found: Document) -> None:
    """Check that all servers have the same number of devices, and sets of devices that the rings of a 910 connect."""
    servers = [server for server in table.servers if server.devices]
    expected = len(servers[0].devices) if servers else 0
    for server in servers:
        path = table.layout.holder(server.devices[0], "server_id")
        device_ids = sorted(device.device_id for device in server.devices)
        count = len(device_ids)
        if count != expected:
            sentence = (
                f"server '{server.server_id}' has {counted(count, 'device')}, but the first server has {expected};"
                " the 910 requires the same number on every server"
            )
            found.error(sentence, path)
        if count == 4 and frozenset(device_ids) not in SETS_OF_4:  # noqa: PLR2004 - see SETS_OF_4
            listed = ", ".join(map(str, device_ids))
            sentence = f"server '{server.server_id}' has devices {listed}, which do not form a ring on the 910"
            found.error(sentence, path)
        elif count not in COUNTS_OF_910:
            sentence = f"server '{server.server_id}' has {count} devices, expected 1, 2, 4 or 8 on the 910"
            found.warn(sentence, path)


# The values that platforms write for a device without an address. On a single server they do no harm.
PLACEHOLDERS: Final = frozenset({"loop", "-1", "-.-.-.-"})
FAMILIES: Final[Mapping[int, str]] = {AF_INET: "IPv4", AF_INET6: "IPv6"}
LAST_PORT: Final = 65535
LAST_RESERVED_PORT: Final = 1023
LONGEST_POD_ID: Final = 127  # bytes
LAST_SUPER_DEVICE: Final = 0xFFFFFFFE  # 0xFFFFFFFF is HCCL's value for none


def check_server_list(table: RankTable, found: Document, chip: str | None, *, is_roce_wanted: bool = False) -> None:
    """Check the addresses and ports of every server and device, and the super-pods of version 1.2."""
    addresses = _Addresses(table=table, found=found)
    has_fabric = (chip == "A3" or table.version == SUPER_PODS) and len(table.super_pods) <= 1
    for server in table.servers:
        has_host = bool(server.extra_keys.get("host_ip")) and chip != "910B"
        needs_none = (addresses.is_alone and not is_roce_wanted) or has_fabric or has_host
        for device in server.devices:
            addresses.check_device_ip(device, needs_none=needs_none)
            if device.extra_keys:
                _check_ports(table, found, device)
        if server.extra_keys and server.devices:
            addresses.check_host_ip(server)
            _check_host_ports(table, found, server)

    if table.version == SUPER_PODS:
        _check_super_pods(table, found)


def family_of(address: str) -> int:
    """Return the family of an IP address, as inet_pton determines it for HCCL; 0 where it is not an address."""
    for family, text in ((AF_INET, address), (AF_INET6, address.partition("%")[0])):
        try:
            inet_pton(family, text)
        except (OSError, ValueError):  # ValueError: it contains a NUL
            continue
        return family

    return 0


@attrs.define(kw_only=True, eq=False, repr=False)
class _Addresses:
    """State of the address checks: the properties that all devices must share, and the addresses seen so far."""

    table: RankTable
    found: Document
    count: int = 0
    family: int = 0
    host_family: int = 0
    owners: dict[str, Device] = attrs.field(factory=dict)

    @property
    def is_alone(self) -> bool:
        """Whether there is only one server; HCCL ignores families then."""
        return len(self.table.servers) == 1

    def check_device_ip(self, device: Device, *, needs_none: bool) -> None:
        """Check a device's addresses, which may be absent with `needs_none`."""
        path = self.table.layout.path(device, "device_ip")
        is_there = bool(device.device_ip) and device.device_ip not in PLACEHOLDERS
        # Split as HCCL does: nothing follows a last comma. HCCL counts a missing address, too.
        addresses = device.device_ip.removesuffix(",").split(",")
        self.count = self.count or len(addresses)
        if len(addresses) != self.count:
            found = counted(len(addresses), "address")
            self.found.error(f"device_ip has {found}, but the first device has {self.count}", path)

        for address in addresses if is_there else ():
            self._check_address(address, device, path)
        if not is_there:
            self._check_missing_ip(device, path, needs_none=needs_none)

    def _check_address(self, address: str, device: Device, path: str) -> None:
        family = family_of(address)
        if not family:
            self.found.error(f"device_ip is {shown(address)}, expected an IP address", path)
            return

        name = _one_spelling(address, family)
        if name in self.owners:  # the address of another device, or of this one
            where = first_used(self.table.layout.path(self.owners[name]))
            self.found.error(f"duplicate device_ip {shown(address)}{where}", path)
        self.owners.setdefault(name, device)
        self.family = self.family or family
        if family != self.family and not self.is_alone:
            sentence = f"device_ip {shown(address)} is {FAMILIES[family]}, but the first is {FAMILIES[self.family]}"
            self.found.error(sentence, path, BAD_ENVIRONMENT)

    def _check_missing_ip(self, device: Device, path: str, *, needs_none: bool) -> None:
        found = shown(device.device_ip) if device.device_ip else "missing"
        if not needs_none:
            when = "with HCCL_INTRA_ROCE_ENABLE=1" if self.is_alone else "with several servers"
            self.found.error(f"device_ip is {found}, but every device needs one {when}", path)
        elif device.device_ip:  # it may be missing, but HCCL reads one that is present
            add = self.found.warn if self.is_alone else self.found.error
            add(f"device_ip is {found}, which is not an address and works on a single server only", path, BAD_VALUE)

    def check_host_ip(self, server: Server) -> None:
        """Check a server's own address, if it has one."""
        host_ip = server.extra_keys.get("host_ip")
        if not isinstance(host_ip, str):
            return

        path = self.table.layout.holder(server.devices[0], "host_ip")
        family = family_of(host_ip)
        self.host_family = self.host_family or family
        if not family:
            self.found.error(f"host_ip is {shown(host_ip)}, expected an IP address", path)
        elif family != self.host_family:
            sentence = f"host_ip {shown(host_ip)} is {FAMILIES[family]}, but the first is {FAMILIES[self.host_family]}"
            self.found.error(sentence, path)


def _one_spelling(address: str, family: int) -> str:
    """Return the canonical spelling of an address."""
    if family == AF_INET:
        return address

    number, mark, zone = address.partition("%")
    return f"{inet_ntop(AF_INET6, inet_pton(AF_INET6, number))}{mark}{zone}"


def _check_host_ports(table: RankTable, found: Document, server: Server) -> None:
    ports: dict[str, Device] = {}
    for device in server.devices:
        port = device.extra_keys.get("host_port")
        first = ports.setdefault(port, device) if isinstance(port, str) else device
        if first is not device:
            sentence = f"duplicate host_port {port} on this server{first_used(table.layout.path(first))}"
            found.warn(sentence, table.layout.path(device, "host_port"))


def _check_ports(table: RankTable, found: Document, device: Device) -> None:
    """Check the ports of a device, and the addresses that may replace its own."""
    for key in PORTS:
        port = device.extra_keys.get(key)
        if not isinstance(port, str):
            continue

        path = table.layout.path(device, key)
        number = _digits(port, LAST_PORT)
        if not number:
            found.error(f"{key} is {shown(port)}, expected 1 to {LAST_PORT}", path)
        elif number <= LAST_RESERVED_PORT:
            found.warn(f"{key} is {port}, a port reserved for the system", path)

    backup = device.extra_keys.get("backup_device_ip")
    for address in backup.removesuffix(",").split(",") if isinstance(backup, str) and backup else ():
        if not family_of(address):
            sentence = f"backup_device_ip is {shown(address)}, expected an IP address"
            found.warn(sentence, table.layout.path(device, "backup_device_ip"), BAD_VALUE)


def _digits(text: str, last: int) -> int | None:
    """Return a number from 0 to `last` that is written in ASCII digits, or None for anything else."""
    return int(text) if is_whole_number(text, len(str(last))) and int(text) <= last else None


def _check_super_pods(table: RankTable, found: Document) -> None:
    """Check the super-pods, and the place of every server and device in them."""
    seen: set[str] = set()
    for index, pod in enumerate(table.super_pods):
        path = f"super_pod_list[{index}].super_pod_id"
        name = pod.super_pod_id
        if not name:
            found.error("super_pod_id is empty or missing", path)
        elif name in seen:
            found.error(f"duplicate super_pod_id {shown(name)}", path)
        elif len(name.encode(errors="surrogatepass")) > LONGEST_POD_ID:
            found.error(f"super_pod_id {shown(name)} is longer than {LONGEST_POD_ID} bytes", path, BAD_TABLE)
        seen.add(name)

    pod_of = _check_members(table, found)
    if table.super_pods:
        _check_coverage(table, found, pod_of)
    _check_presence(table, found)
    _check_super_devices(table, found, pod_of)


def _check_members(table: RankTable, found: Document) -> dict[str, str]:
    """Check that each member is a server of the table and in one super-pod only; return the super-pod of each."""
    pod_of: dict[str, str] = {}
    servers = {server.server_id for server in table.servers}
    members = (
        (index, pod, *member) for index, pod in enumerate(table.super_pods) for member in enumerate(pod.server_ids)
    )
    for index, pod, position, server_id in members:
        path = f"super_pod_list[{index}].server_list[{position}].server_id"
        if server_id not in servers:
            found.error(f"server_id {shown(server_id)} is not in server_list", path)
        elif server_id in pod_of:
            found.error(f"server_id {shown(server_id)} is already in super-pod '{pod_of[server_id]}'", path)
        else:
            pod_of[server_id] = pod.super_pod_id

    return pod_of


def _check_coverage(table: RankTable, found: Document, pod_of: Mapping[str, str]) -> None:
    """Check that every server is in a super-pod, and next to the others of it, as CANN's documentation requires."""
    seen: set[str] = set()
    previous: str | None = None
    for server in table.servers:
        if not server.devices:
            continue

        path = table.layout.holder(server.devices[0], "server_id")
        pod = pod_of.get(server.server_id)
        if pod is None:
            found.error(f"server '{server.server_id}' is in no super-pod of super_pod_list", path, BAD_TABLE)
            continue

        if pod != previous and pod in seen:
            sentence = f"server '{server.server_id}' is not listed next to the other servers of super-pod '{pod}'"
            found.warn(f"{sentence}, which CANN does not support", path)
        seen.add(pod)
        previous = pod


def _check_presence(table: RankTable, found: Document) -> None:
    """Check that all devices have a super_device_id, or none, which makes the servers plain ones."""
    without = [device for device in table.devices if device.extra_keys.get("super_device_id") is None]
    if table.super_pods and without and len(without) == len(table.devices):
        sentence = "no device has a super_device_id, so HCCL treats the servers as plain ones despite super_pod_list"
        found.warn(sentence, "super_pod_list", MISSING_FIELD)
        return

    add = found.error if table.super_pods else found.warn
    for device in without if len(without) < len(table.devices) else ():
        path = table.layout.path(device, "super_device_id")
        add("super_device_id is missing, but other devices have one", path, MISSING_FIELD)


def _check_super_devices(table: RankTable, found: Document, pod_of: Mapping[str, str]) -> None:
    """Check that every super_device_id is a number and unique in its super-pod."""
    owners: dict[tuple[str, int], Device] = {}
    for server in table.servers:
        for device in server.devices:
            text = device.extra_keys.get("super_device_id")
            if text is None:
                continue

            number = _digits(str(text), LAST_SUPER_DEVICE)
            pod = pod_of.get(server.server_id)
            if number is None:
                sentence = f"super_device_id is {shown(text)}, expected 0 to {LAST_SUPER_DEVICE}"
                found.error(sentence, table.layout.path(device, "super_device_id"))
            elif pod is not None and owners.setdefault((pod, number), device) is not device:
                where = first_used(table.layout.path(owners[pod, number]))
                sentence = f"duplicate super_device_id {number} in super-pod '{pod}'{where}"
                found.error(sentence, table.layout.path(device, "super_device_id"), BAD_TABLE)


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


OXC_LAYERS: Final = (0, 1, 2, 3)
OXC_LAYER: Final = 2


def check_rank_list(table: RankTable, found: Document, chip: str | None) -> None:
    """Check every rank and every level of it."""
    document = Document(table.source)
    top = Fields(document, table.extra_keys)
    size = len(table.devices)
    if size > MOST_RANKS:
        top.refuse(f"rank_count is {size}, but HCCL accepts at most {MOST_RANKS}", "rank_count")
    if "detour" in top.values:
        _check_choice(top, "detour", ("", *DETOURS))

    address_counts: dict[tuple[int, str], int] = {}  # by net_layer and net_instance_id
    is_oxc = chip == "A3" and rank_list.is_oxc(table)
    for server in table.servers:
        _check_local_ids(top, server)
        for device in server.devices:
            rank = _fields_of(device, top)
            _check_oxc_rank(rank) if is_oxc else _check_rank(rank, address_counts)
    _check_spares(top, table)

    found.problems += document.errors


def _check_oxc_rank(rank: Fields) -> None:
    """Check the place in a super-pod and the four levels of a rank whose server is joined by optical cross-connects."""
    _json_text(rank, "super_pod_id")
    rank.whole_number("super_device_id")
    levels = rank.objects("level_list")
    layers = tuple(level.whole_number("net_layer") for level in levels)
    if layers != OXC_LAYERS and UNREADABLE not in layers:
        rank.refuse(f"level_list has the levels {', '.join(map(str, layers))}, expected 0, 1, 2, 3", "level_list")
    for layer, level in zip(layers, levels):
        net_type, instance = _json_text(level, "net_type"), _json_text(level, "net_instance_id")
        _json_text(level, "net_attr", default="")
        if layer == OXC_LAYER and net_type and net_type != rank_list.OXC:
            level.refuse(f"net_type is {shown(net_type)}, expected '{rank_list.OXC}' on level {layer}", "net_type")
        if layer == OXC_LAYER and instance and instance != "0":
            level.refuse(f"net_instance_id is {shown(instance)}, expected '0' on level {layer}", "net_instance_id")
        for address in level.objects("rank_addr_list"):
            for key in ("addr", "addr_type", "plane_id"):
                _json_text(address, key, default="")
            ports = address.values.get("ports")
            if not isinstance(ports, list) or not all(isinstance(port, str) for port in ports):
                address.refuse_value("ports", "an array of strings")


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
    local_id = _json_number(rank, "local_id", 0, SPARE)
    if local_id == SPARE:
        _json_number(rank, "replaced_local_id", 0, SPARE - 1)
    for key in ("device_port", "host_port"):
        if key in rank.values:
            _json_number(rank, key, 1, LAST_PORT)

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
        _json_number(plane, "listen_port", 1, LAST_PORT)


def _check_level(level: Fields, address_counts: dict[tuple[int, str], int]) -> int:
    layer = _json_number(level, "net_layer", 0, LAST_LAYER)
    instance = _json_text(level, "net_instance_id")
    _json_text(level, "net_attr", default="")
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
            level.refuse(f"{sentence}, but another rank of '{instance}' has {expected}", "rank_addr_list")

    return layer


def _check_address(address: Fields) -> None:
    kind = _check_typed(address)
    _json_text(address, "plane_id", default="")
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


def _json_text(fields: Fields, key: str, *, default: str | None = None) -> str:
    """Read a string, for which HCCL accepts no number; with a `default` it may be missing or empty."""
    value = fields.values.get(key, default)
    if isinstance(value, str) and (value or default is not None):
        return value

    code = BAD_VALUE if isinstance(value, str) else MISSING_FIELD
    fields.refuse_value(key, "a non-empty string" if default is None else "a string", code=code)
    return ""


def _json_number(fields: Fields, key: str, first: int, last: int) -> int:
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


LONGEST_SERVER_ID: Final = 64  # bytes
LONGEST_PATH: Final = 4095  # bytes; PATH_MAX less the NUL
LARGEST_FILE: Final = 40 << 20  # bytes
LARGEST_RANK_LIST: Final = 1 << 30  # bytes
# Limits of HCCL for a group list that it reads itself.
LAST_UNCONVERTED: Final = 7  # device_id, on every chip
AVERAGES: Final = frozenset({1, 2, 4, 8, 16})  # devices per server, lab form
NIC_LOCATION: Final = "para_plane_nic_location"
RETRY: Final = "HCCL_OP_RETRY_ENABLE"


def check(  # noqa: PLR0913  keywords: most callers need few
    table: RankTable,
    *,
    path: str = "",
    size: int = 0,
    chip: str | None = None,
    is_unconverted: bool = False,
    is_roce_wanted: bool = False,
) -> tuple[Problem, ...]:
    """Return errors, which HCCL would reject, then warnings about what is unusual but works; each in document order.

    `path` is the file that HCCL is to read, as its ranks will be given it ("": not checked), `size` its bytes, and
    `chip` one of CHIPS (None: only what holds for all). With `is_unconverted`, HCCL reads the document as it is, not
    converted; with `is_roce_wanted`, devices of one server use their network ports, too.
    """
    found = Document(table.source)
    chip = chip or implied_chip(table)
    _check_file(table, found, path, size)
    check_version(table, found, chip)
    _check_empty(table, found)
    _check_servers(table, found, chip)
    if chip == "910":
        check_910(table, found)
    if table.dialect is Dialect.RANK_LIST:
        check_rank_list(table, found, chip)
    else:
        check_server_list(table, found, chip, is_roce_wanted=is_roce_wanted)
    if is_unconverted:
        _check_unconverted(table, found)

    return _sorted(found.problems)


def check_document(
    table: RankTable, *, path: str = "", chip: str | None = None, is_unconverted: bool = False
) -> tuple[Problem, ...]:
    """Return all problems of a result of `codec.examine`, whether it is a table or not; keywords as for `check`.

    Where it is not a table, warnings are left out: they may be consequences of the errors.
    """
    size = len(table.data)
    found = [*table.notes, *check(table, path=path, size=size, chip=chip, is_unconverted=is_unconverted)]
    if table.errors:
        known = {problem.path for problem in table.errors}
        known |= {path.rpartition("[")[0] for path in known if path.endswith("]")}  # an array with an unreadable item
        found = [problem for problem in found if problem.severity is Severity.ERROR and problem.path not in known]
        found += table.errors

    return _sorted(found)


def name_problem(path: str) -> str:
    """Return why HCCL would not read a file of this name, or "": the first ".json" must be the end of the path."""
    if path.find(".json") == len(path) - len(".json"):
        return ""

    return f"HCCL cannot read {path}: '.json' must occur once in the path, at its end"


def wants_roce(environ: Mapping[str, str]) -> bool:
    """Whether HCCL is to use the devices' network ports inside a server, so that every device needs an address."""
    return environ.get("HCCL_INTRA_ROCE_ENABLE") == "1"


def check_retry(table: RankTable, levels: str) -> list[Problem]:
    """Return warnings about addresses that HCCL lacks to retry an operation, as HCCL_OP_RETRY_ENABLE requests.

    `levels` is its value, such as "L1:1, L2:1": between servers, and between super-pods, where another die's network
    port takes over. A retry fails without them (CANN's environment variable reference).
    """
    found, levels = Document(table.source), levels.replace(" ", "")
    without_host = [server for server in table.servers if server.devices and not server.extra_keys.get("host_ip")]
    if {"L0:1", "L1:1", "L2:1"}.intersection(levels.split(",")) and without_host:
        servers = f"server {shown(without_host[0].server_id)}{' and others' if without_host[1:] else ''}"
        found.warn(f"host_ip is missing for {servers}, so that HCCL cannot retry operations ({RETRY}={levels})")
    without_backup = [device for device in table.devices if not device.extra_keys.get("backup_device_ip")]
    if "L2:1" in levels.split(",") and len(table.super_pods) > 1 and without_backup:
        ranks = f"rank {without_backup[0].rank_id}{' and others' if without_backup[1:] else ''}"
        found.warn(f"backup_device_ip is missing for {ranks}, so that HCCL cannot retry between super-pods ({RETRY})")
    return found.problems


def _check_file(table: RankTable, found: Document, path: str, size: int) -> None:
    if path and name_problem(path):
        found.problems.append(Problem(severity=Severity.ERROR, sentence=name_problem(path), code=BAD_TABLE))
    if len(path.encode(errors="surrogateescape")) > LONGEST_PATH:
        found.error(f"the path of the table is longer than {LONGEST_PATH} bytes", "", BAD_TABLE)

    largest = LARGEST_RANK_LIST if table.dialect is Dialect.RANK_LIST else LARGEST_FILE
    if size > largest:
        found.error(f"the table has {size} bytes, but HCCL reads at most {largest}", "", BAD_TABLE)


def _check_empty(table: RankTable, found: Document) -> None:
    """Check that there are devices. A job without any has a group list; the other dialects exist for HCCL alone."""
    if table.devices:
        return

    if table.dialect is Dialect.RANK_LIST:
        found.error("rank_list is empty, expected at least one rank", "rank_list")
    elif table.dialect is not Dialect.SERVER_LIST:
        found.warn("the table has no devices")
    elif not table.servers:
        found.error("server_list is empty, expected at least one server", "server_list")


def _check_servers(table: RankTable, found: Document, chip: str | None) -> None:
    for index, server in enumerate(table.servers):
        if server.devices:
            _check_server_id(table, found, server)
            _check_device_ids(table, found, server, chip)
            _check_ranks(table, found, server)
        else:
            # Only a server list can have a server without devices, and its servers are in document order.
            sentence = f"server '{server.server_id}' has no devices"
            found.error(sentence, f"server_list[{index}].device", BAD_TABLE)


def _check_server_id(table: RankTable, found: Document, server: Server) -> None:
    if table.dialect is Dialect.RANK_LIST:  # its ids are made of instance ids, which may be longer
        return

    if len(server.server_id.encode(errors="surrogatepass")) > LONGEST_SERVER_ID:
        sentence = f"server_id {shown(server.server_id)} is longer than {LONGEST_SERVER_ID} bytes"
        found.error(sentence, table.layout.holder(server.devices[0], "server_id"), BAD_TABLE)


def _check_device_ids(table: RankTable, found: Document, server: Server, chip: str | None) -> None:
    last_device = LAST_DEVICE[chip] if chip else max(LAST_DEVICE.values())
    for device in server.devices:
        if device.device_id > last_device:
            owner = f"the {chip}" if chip else "any chip"
            sentence = f"device_id is {device.device_id}, but the highest on {owner} is {last_device}"
            found.error(sentence, table.layout.path(device, "device_id"))


def _check_ranks(table: RankTable, found: Document, server: Server) -> None:
    first, last = server.devices[0].rank_id, server.devices[-1].rank_id
    if last - first != len(server.devices) - 1:
        sentence = (
            f"ranks {first} to {last} of server '{server.server_id}' are interleaved with those of other servers,"
            " which CANN does not support"
        )
        found.warn(sentence, table.layout.holder(server.devices[0], "server_id"))


def _check_unconverted(table: RankTable, found: Document) -> None:
    """Check what would happen if HCCL read the document itself.

    Only warn, as the runner and `convert` give HCCL a server list.
    """
    if table.is_packed:
        found.warn("the table is packed (base64 of gzip), which HCCL cannot read without conversion", "", BAD_TABLE)
    if not table.devices or table.dialect not in {Dialect.GROUP_LIST, Dialect.LAB_LIST}:
        return

    if "version" in table.extra_keys:
        stated = shown(table.extra_keys["version"])
        sentence = f"version is {stated}, for which HCCL selects another parser unless the table is converted"
        found.warn(sentence, "version", BAD_TABLE)
    if table.dialect is Dialect.LAB_LIST:
        _check_lab(table, found)
    else:
        _check_cloud(table, found)


def _check_cloud(table: RankTable, found: Document) -> None:
    beyond = next((device for device in table.devices if device.device_id > LAST_UNCONVERTED), None)
    if beyond:
        sentence = f"device_id is {beyond.device_id}, but HCCL accepts at most {LAST_UNCONVERTED} without conversion"
        found.warn(sentence, table.layout.path(beyond, "device_id"), BAD_TABLE)

    by_hccl = sorted(
        ((server.server_id.encode(errors="surrogatepass"), device.device_id), device.rank_id)
        for server in table.servers
        for device in server.devices
    )
    if any(rank_id != expected for expected, (_, rank_id) in enumerate(by_hccl)):
        sentence = (
            "HCCL numbers the ranks differently without conversion (by server_id as text, then device_id); convert the"
            " table on every node or on none"
        )
        found.warn(sentence, "group_list")


def _check_lab(table: RankTable, found: Document) -> None:
    location = table.extra_keys.get(NIC_LOCATION)
    if location != "device":
        sentence = f"{NIC_LOCATION} is {shown(location)}, but HCCL requires 'device' without conversion"
        found.warn(sentence, NIC_LOCATION, BAD_TABLE)

    size = len(table.devices)
    average, rest = divmod(size, len(table.servers))
    if rest or average not in AVERAGES:
        stated = f"{counted(size, 'device')} on {counted(len(table.servers), 'server')}"
        sentence = f"{stated}, but HCCL requires 1, 2, 4, 8 or 16 per server without conversion"
        found.warn(sentence, "group_list", BAD_TABLE)


def _sorted(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    return tuple(sorted(problems, key=_sort_key))


def _sort_key(problem: Problem) -> tuple[bool, list[tuple[int, str]]]:
    """Order problems: errors first, then by path, the numbers in a path as numbers."""
    parts = re.split(r"(\d+)", problem.path)
    return problem.severity is not Severity.ERROR, [(int(part), "") if part.isdigit() else (0, part) for part in parts]

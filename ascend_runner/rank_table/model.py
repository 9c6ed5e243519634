"""A job's rank table in any dialect: servers, their devices, and the rank of each device.

Numbers are numbers here and strings in most documents. Independent of JSON.
"""

from __future__ import annotations

import enum
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from operator import attrgetter
from types import MappingProxyType
from typing import Final

import attrs

from ascend_runner.members import documented
from ascend_runner.problems import Problem, RankTableFormatError, Severity
from ascend_runner.rank_table.fields import BAD_VALUE
from ascend_runner.text import counted, format_numbers

NO_EXTRA_KEYS: Final[Mapping[str, object]] = MappingProxyType({})


class Dialect(enum.Enum):
    """The dialects of a job's rank table, by their usual names."""

    GROUP_LIST = "group list"
    LAB_LIST = "group list, lab form"
    SERVER_LIST = "server list"
    RANK_LIST = "rank list"


@attrs.frozen(kw_only=True)
class Device:
    """One NPU and the rank that runs on it.

    `device_id` is the physical number (as in /dev/davinciN), `device_ip` the address of its network port: "" where the
    table gives none, several joined by commas where it gives several. `pod_name` is "" in the dialects without pods.
    `extra_keys` are the other keys of the device's entry as in the document (ports, backup addresses, levels).
    `index` is the number of the device's entry in document order, from 0; see Layout.
    """

    device_id: int
    device_ip: str = ""
    rank_id: int
    pod_name: str = ""
    extra_keys: Mapping[str, object] = attrs.field(default=NO_EXTRA_KEYS, hash=False)
    index: int = attrs.field(default=0, eq=False, repr=False)


@attrs.frozen(kw_only=True)
class Server:
    """One server of the table. `devices` are in the order of their ranks.

    Two pods may share a server; `Device.pod_name` tells their devices apart. `addresses` are addresses of the machine
    besides the server_id, which need not be one. `extra_keys` are the other keys of the server's entry.
    """

    server_id: str
    devices: tuple[Device, ...]
    addresses: tuple[str, ...] = attrs.field(default=(), eq=False)
    extra_keys: Mapping[str, object] = attrs.field(default=NO_EXTRA_KEYS, hash=False)

    @property
    def pod_names(self) -> tuple[str, ...]:
        """The pods with devices on this server, in the order of their first rank; () in dialects without pods."""
        return tuple(dict.fromkeys(device.pod_name for device in self.devices if device.pod_name))

    def devices_of(self, pod_name: str) -> tuple[Device, ...]:
        """Return a pod's devices in the order of their ranks; the position of a device is its local index."""
        return tuple(device for device in self.devices if device.pod_name == pod_name)


@attrs.frozen
class SuperPod:
    """A super-pod: servers whose devices are connected by the pod's own fabric."""

    super_pod_id: str
    server_ids: tuple[str, ...]


@attrs.frozen
class Layout:
    """The places of the devices in the document, so that a problem can name its path.

    `lists` are the paths of the lists that hold devices, `firsts` the `Device.index` of the first entry of each.
    A path per device would take more memory than the devices themselves.
    """

    lists: tuple[str, ...] = ()
    firsts: tuple[int, ...] = ()

    def path(self, device: Device, key: str = "") -> str:
        """Return the path of a device's entry, or of a key in it, or "" if the table was not read from a document."""
        position = bisect_right(self.firsts, device.index) - 1
        if position < 0:
            return ""

        entry = f"{self.lists[position]}[{device.index - self.firsts[position]}]"
        return f"{entry}.{key}" if key else entry

    def holder(self, device: Device, key: str = "") -> str:
        """Return the path of the object whose list holds a device, or of a key in it: "server_list[1].server_id"."""
        holder = self.path(device).rpartition("[")[0].rpartition(".")[0]
        return f"{holder}.{key}" if holder and key else holder


NO_LAYOUT: Final = Layout()


def find_errors(servers: tuple[Server, ...], dialect: Dialect, layout: Layout, source: str) -> list[Problem]:
    """Return every error that keeps the servers from forming a table; `source` is the name of the document.

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


# What a notebook shows of each device, and of each server of a larger table.
DEVICE_HEADS: Final = ("server", "pod", "rank", "device", "device_ip")
SERVER_HEADS: Final = ("server", "pods", "ranks", "devices")
MOST_LISTED: Final = 64  # devices with a row each


@documented
@attrs.frozen(kw_only=True, repr=False)
class RankTable:
    """A job's rank table: its servers, their devices, and the rank of each device.

        table = ascend_runner.rank_table.read("/user/config")
        for device in table.devices:
            print(device.rank_id, device.device_id, device.device_ip)

    `devices` are in the order of their ranks: every rank from 0 to rank_size - 1 occurs once, and so does every
    server_id, and on one server every device_id. `servers` are in document order (in a group list: the order of their
    first rank). `version` is the document's own, "" where it has none (group lists). `idle_pods` are the instances
    without devices. `extra_keys` are the other keys at the top of the document, `notes` the warnings about it, `source`
    its name. `data` are its bytes, unpacked where `is_packed`; a table that was not read from a document has none.

    `errors` is None, except on a table from `codec.examine`, where it lists the errors of the document.

    Raises:
        RankTableFormatError: The servers do not form a table; the error carries every problem.
    """

    servers: tuple[Server, ...]
    dialect: Dialect = Dialect.SERVER_LIST
    version: str = "1.0"
    idle_pods: tuple[str, ...] = ()
    super_pods: tuple[SuperPod, ...] = ()
    extra_keys: Mapping[str, object] = attrs.field(default=NO_EXTRA_KEYS, hash=False)
    notes: tuple[Problem, ...] = attrs.field(default=(), eq=False, repr=False)
    errors: tuple[Problem, ...] | None = attrs.field(default=None, eq=False, repr=False)
    layout: Layout = attrs.field(default=NO_LAYOUT, eq=False, repr=False)
    source: str = attrs.field(default="", eq=False)
    data: bytes = attrs.field(default=b"", eq=False, repr=False)
    is_packed: bool = attrs.field(default=False, eq=False)
    # All devices by rank. A field, as a slotted class cannot cache a property.
    devices: tuple[Device, ...] = attrs.field(init=False, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        """Reject servers that do not form a table."""
        if self.errors is None:
            errors = find_errors(self.servers, self.dialect, self.layout, self.source)
            if errors:
                raise RankTableFormatError(errors)

        devices = (device for server in self.servers for device in server.devices)
        object.__setattr__(self, "devices", tuple(sorted(devices, key=attrgetter("rank_id"))))

    @property
    def is_native(self) -> bool:
        """Whether HCCL reads the document as it is, so that it is passed on byte for byte."""
        return bool(self.data) and self.dialect in {Dialect.SERVER_LIST, Dialect.RANK_LIST} and not self.notes

    @property
    def warnings(self) -> tuple[str, ...]:
        """The notes as sentences."""
        return tuple(str(note) for note in self.notes)

    @property
    def rank_size(self) -> int:
        """The number of ranks."""
        return len(self.devices)

    @property
    def server_count(self) -> int:
        """The number of servers."""
        return len(self.servers)

    @property
    def servers_by_rank(self) -> tuple[Server, ...]:
        """The servers that have devices, ordered by their first rank."""
        servers = (server for server in self.servers if server.devices)
        return tuple(sorted(servers, key=lambda server: server.devices[0].rank_id))

    @property
    def pod_names(self) -> tuple[str, ...]:
        """The pods that have devices, ordered by their first rank; none in the dialects without pods."""
        return tuple(dict.fromkeys(device.pod_name for device in self.devices if device.pod_name))

    def __str__(self) -> str:
        """Return its dialect and size, such as "server list: 2 servers, 16 devices"."""
        return f"{self.dialect.value}: {counted(self.server_count, 'server')}, {counted(self.rank_size, 'device')}"

    def __repr__(self) -> str:
        """Return the same in angle brackets: thousands of devices would fill screens."""
        return f"<RankTable: {self}>"

    def _repr_html_(self) -> str:
        """Return the table for a notebook: a row for each device, or for each server if there are many devices."""
        from ascend_runner import html_table  # noqa: PLC0415  only notebooks show it

        title = str(self)
        if self.rank_size > MOST_LISTED:
            return html_table.text(title, "server", SERVER_HEADS, list(map(_row, self.servers)))
        devices = [
            (server.server_id, device.pod_name, str(device.rank_id), str(device.device_id), device.device_ip)
            for server in self.servers
            for device in server.devices
        ]
        return html_table.text(title, "device", DEVICE_HEADS, devices)

    def rank(self, rank_id: int) -> Device:
        """Return the device that a rank runs on.

        Raises:
            LookupError: The table has no such rank.
        """
        if not 0 <= rank_id < len(self.devices):
            raise LookupError(f"rank {rank_id} is out of range, expected 0 to {len(self.devices) - 1}")

        return self.devices[rank_id]


def _row(server: Server) -> tuple[str, ...]:
    ranks = format_numbers(device.rank_id for device in server.devices)
    device_ids = format_numbers(device.device_id for device in server.devices)
    return server.server_id, ", ".join(server.pod_names), ranks, device_ids

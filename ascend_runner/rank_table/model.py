"""What a rank table says, whatever dialect it was written in: servers, their devices, and the rank of each.

Knows nothing of JSON. Numbers are numbers here and strings on the wire. Invariants are checked once, in bulk, when a
`RankTable` is made: a table has up to 65,536 devices, so that a validator per device would be what costs.
"""

from __future__ import annotations

from bisect import bisect_right
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import attrs

from ascend_runner.errors import RankTableFormatError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

NOTHING_MORE: Final[Mapping[str, object]] = MappingProxyType({})


@attrs.frozen(kw_only=True)
class Device:
    """One NPU and the rank that runs on it.

    `device_id` is the physical number (as in /dev/davinciN), `device_ip` the address of its network port: "" where the
    table gives none, several joined by commas where it gives several. `pod_name` is "" in the dialects without pods.
    `more` are the other keys of the device's entry as they stand in the document (ports, backup addresses, levels).
    """

    device_id: int
    device_ip: str = ""
    rank_id: int
    pod_name: str = ""
    more: Mapping[str, object] = attrs.field(default=NOTHING_MORE, hash=False)
    # The number of the device's entry in the order of the document, from 0: see Layout.
    place: int = attrs.field(default=0, eq=False, repr=False)


@attrs.frozen(kw_only=True)
class Server:
    """One machine, or what the table calls one. `devices` are in the order of their ranks.

    Two pods may share a server: each finds its own devices by `Device.pod_name`.
    """

    server_id: str
    devices: tuple[Device, ...]
    more: Mapping[str, object] = attrs.field(default=NOTHING_MORE, hash=False)

    @property
    def pod_names(self) -> tuple[str, ...]:
        """The pods that have devices here, in the order of their first rank; none in the dialects without pods."""
        return tuple(dict.fromkeys(device.pod_name for device in self.devices if device.pod_name))

    def devices_of(self, pod_name: str) -> tuple[Device, ...]:
        """Give the devices of one pod, in the order of their ranks: a device's local index is its position here."""
        return tuple(device for device in self.devices if device.pod_name == pod_name)


@attrs.frozen
class Layout:
    """Where the devices stood in the document, so that a sentence about one can name its path.

    `lists` are the paths of the lists that hold devices, `firsts` the `Device.place` of each list's first entry.
    It is a table of lists and not a path per device, since 65,536 paths weigh more than the devices.
    """

    lists: tuple[str, ...] = ()
    firsts: tuple[int, ...] = ()

    def path(self, place: int) -> str:
        """Name the entry of the device at `place`: "server_list[1].device[0]"; "" where no document was read."""
        index = bisect_right(self.firsts, place) - 1

        return f"{self.lists[index]}[{place - self.firsts[index]}]" if index >= 0 else ""

    def list_of(self, place: int) -> str:
        """Name the list that the device at `place` stands in: "server_list[1].device"."""
        return self.path(place).rpartition("[")[0]


NO_LAYOUT: Final = Layout()


@attrs.frozen(kw_only=True)
class RankTable:
    """A job's rank table.

    Holds: every rank from 0 to rank_size - 1 is there once, and so is every server_id, and on one server every device.

    `servers` are in the order of the document (group-list: of their first rank). `version` is the document's own, and
    "" where its dialect has none (group-list). `idle_pods` are the instances that have no device.
    `warnings` are sentences about what is odd but works.
    """

    servers: tuple[Server, ...]
    version: str = "1.0"
    idle_pods: tuple[str, ...] = ()
    more: Mapping[str, object] = attrs.field(default=NOTHING_MORE, hash=False)
    warnings: tuple[str, ...] = attrs.field(default=(), eq=False)
    # True where HCCL reads the document as it stands, so that it is handed on byte for byte.
    is_native: bool = attrs.field(default=False, eq=False)
    layout: Layout = attrs.field(default=NO_LAYOUT, eq=False, repr=False)
    # All devices by rank. A field, since properties of slotted records cannot remember.
    devices: tuple[Device, ...] = attrs.field(init=False, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        """Refuse a table that cannot be (RankTableFormatError with all that is wrong)."""
        problems = find_problems(self.servers, self.layout)
        if problems:
            first = problems[0]
            raise RankTableFormatError(first.sentence, path=first.path, others=problems[1:])

        devices = sorted(_all_devices(self.servers), key=_rank_id)
        object.__setattr__(self, "devices", tuple(devices))

    @property
    def rank_size(self) -> int:
        """The number of ranks."""
        return len(self.devices)

    @property
    def server_count(self) -> int:
        """The number of servers."""
        return len(self.servers)

    def rank(self, rank_id: int) -> Device:
        """Give the device that a rank runs on; LookupError where there is no such rank."""
        if not 0 <= rank_id < len(self.devices):
            raise LookupError(f"rank {rank_id} is not one of 0 to {len(self.devices) - 1}")

        return self.devices[rank_id]

    def server(self, server_id: str) -> Server:
        """Give the server with this id; LookupError where there is none."""
        for server in self.servers:
            if server.server_id == server_id:
                return server

        raise LookupError(f"no server has the server_id '{server_id}'")

    def server_of(self, rank_id: int) -> Server:
        """Give the server that a rank runs on; LookupError where there is no such rank."""
        wanted = self.rank(rank_id)
        for server in self.servers:
            if any(device is wanted for device in server.devices):
                return server

        raise LookupError(f"rank {rank_id} is on no server")


def find_problems(servers: Sequence[Server], layout: Layout) -> list[RankTableFormatError]:
    """Tell what keeps these servers from being a table.

    The quick look comes first: nearly every table is sound, and some are large.
    """
    return [] if _is_sound(servers) else [*_id_problems(servers, layout), *_rank_problems(servers, layout)]


def _is_sound(servers: Sequence[Server]) -> bool:
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


def _id_problems(servers: Sequence[Server], layout: Layout) -> Iterator[RankTableFormatError]:
    """Report each server_id, and each device_id of one server, that is there already."""
    servers_seen: set[str] = set()
    for server in servers:
        name = server.server_id
        devices = sorted(server.devices, key=_place)
        if name in servers_seen:
            path = layout.list_of(devices[0].place).rpartition(".")[0] if devices else ""
            yield RankTableFormatError(f"server_id '{name}' is there twice", path=_key(path, "server_id"))
        servers_seen.add(name)

        devices_seen: set[int] = set()
        for device in devices:
            if device.device_id in devices_seen:
                sentence = f"device {device.device_id} is listed twice on server '{name}'"
                yield RankTableFormatError(sentence, path=_key(layout.path(device.place), "device_id"))
            devices_seen.add(device.device_id)


def _rank_problems(servers: Sequence[Server], layout: Layout) -> Iterator[RankTableFormatError]:
    """Report each rank_id that is out of range or there already; with none of these, no rank can be missing."""
    devices = sorted(_all_devices(servers), key=_place)
    seen: dict[int, str] = {}
    for device in devices:
        rank_id = device.rank_id
        path = layout.path(device.place)
        if not 0 <= rank_id < len(devices):
            sentence = f"rank_id is {rank_id}, expected 0 to {len(devices) - 1}, one for each device"
            yield RankTableFormatError(sentence, path=_key(path, "rank_id"))
        elif rank_id in seen:
            other = f"'{seen[rank_id]}'" if seen[rank_id] else "another device"
            yield RankTableFormatError(f"rank_id {rank_id} is that of {other} already", path=_key(path, "rank_id"))
        else:
            seen[rank_id] = path


def _all_devices(servers: Sequence[Server]) -> Iterator[Device]:
    return (device for server in servers for device in server.devices)


def _key(path: str, key: str) -> str:
    return f"{path}.{key}" if path else ""


def _rank_id(device: Device) -> int:
    return device.rank_id


def _place(device: Device) -> int:
    return device.place

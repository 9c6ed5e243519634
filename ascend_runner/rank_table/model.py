"""What a rank table says, whatever dialect it was written in: servers, their devices, and the rank of each.

Knows nothing of JSON. Numbers are numbers here and strings on the wire. Invariants are checked once, in bulk, when a
`RankTable` is made: a table has up to 65,536 devices, so that a validator per device would be what costs.
"""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import attrs

from ascend_runner.rank_table.invariants import require_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ascend_runner.rank_table.findings import Finding

# The dialects of a job's table, as people call them.
GROUP_LIST: Final = "group list"
LAB_LIST: Final = "group list, lab form"
SERVER_LIST: Final = "server list"
RANK_LIST: Final = "rank list"

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

    Two pods may share a server: each finds its own devices by `Device.pod_name`. `addresses` are those by which its
    machine may know itself, besides the server_id, which need not be one. `more` are the other keys of its entry.
    """

    server_id: str
    devices: tuple[Device, ...]
    addresses: tuple[str, ...] = attrs.field(default=(), eq=False)
    more: Mapping[str, object] = attrs.field(default=NOTHING_MORE, hash=False)

    @property
    def pod_names(self) -> tuple[str, ...]:
        """The pods that have devices here, in the order of their first rank; none in the dialects without pods."""
        return tuple(dict.fromkeys(device.pod_name for device in self.devices if device.pod_name))

    def devices_of(self, pod_name: str) -> tuple[Device, ...]:
        """Give the devices of one pod, in the order of their ranks: a device's local index is its position here."""
        return tuple(device for device in self.devices if device.pod_name == pod_name)


@attrs.frozen
class SuperPod:
    """A super-pod: servers whose devices reach each other over the pod's own fabric."""

    super_pod_id: str
    server_ids: tuple[str, ...]


@attrs.frozen
class Layout:
    """Where the devices stood in the document, so that a sentence about one can name its path.

    `lists` are the paths of the lists that hold devices, `firsts` the `Device.place` of each list's first entry.
    `has_ranks_beside` is True where a rank_id stands beside the list of its one device, not in the device's entry.
    It is a table of lists and not a path per device, since 65,536 paths weigh more than the devices.
    """

    lists: tuple[str, ...] = ()
    firsts: tuple[int, ...] = ()
    has_ranks_beside: bool = False

    def path(self, place: int, key: str = "") -> str:
        """Name the entry of the device at `place`, or a key of it; "" where no document was read."""
        index = bisect_right(self.firsts, place) - 1
        if index < 0:
            return ""

        entry = f"{self.lists[index]}[{place - self.firsts[index]}]"
        return f"{entry}.{key}" if key else entry

    def holder(self, place: int, key: str) -> str:
        """Name a key of the object whose list the device at `place` stands in: "server_list[1].server_id"."""
        entry = self.path(place)
        holder = entry.rpartition("[")[0].rpartition(".")[0]

        return f"{holder}.{key}" if holder else ""

    def rank_path(self, place: int) -> str:
        """Name the rank_id of the device at `place`."""
        return self.holder(place, "rank_id") if self.has_ranks_beside else self.path(place, "rank_id")


NO_LAYOUT: Final = Layout()


@attrs.frozen(kw_only=True)
class Draft:
    """What a document says, before it is known to be a table: the fields of `RankTable`, without what holds for it.

    It exists so that checks can look at what is wrong, and tell all of it at once.
    """

    servers: tuple[Server, ...]
    dialect: str = SERVER_LIST
    version: str = "1.0"
    idle_pods: tuple[str, ...] = ()
    super_pods: tuple[SuperPod, ...] = ()
    more: Mapping[str, object] = NOTHING_MORE
    notes: tuple[Finding, ...] = ()
    is_native: bool = False
    layout: Layout = NO_LAYOUT
    source: str = ""

    @property
    def devices(self) -> tuple[Device, ...]:
        """All devices by rank, as far as their ranks could be read."""
        return _by_rank(self.servers)

    def table(self) -> RankTable:
        """Give the table; RankTableFormatError where it is none."""
        fields = {field.name: getattr(self, field.name) for field in attrs.fields(Draft)}

        return RankTable(**fields)


@attrs.frozen(kw_only=True)
class RankTable:
    """A job's rank table.

    Holds: every rank from 0 to rank_size - 1 is there once, and so is every server_id, and on one server every device.
    `servers` are in the order of the document (group list: of their first rank). `version` is the document's own, and
    "" where it has none (group lists). `idle_pods` are the instances that have no device. `more` are the other
    keys at the top of the document, `notes` what is odd but works, `source` the name of the document.
    """

    servers: tuple[Server, ...]
    dialect: str = SERVER_LIST
    version: str = "1.0"
    idle_pods: tuple[str, ...] = ()
    super_pods: tuple[SuperPod, ...] = ()
    more: Mapping[str, object] = attrs.field(default=NOTHING_MORE, hash=False)
    notes: tuple[Finding, ...] = attrs.field(default=(), eq=False, repr=False)
    # True where HCCL reads the document as it stands, so that it is handed on byte for byte.
    is_native: bool = attrs.field(default=False, eq=False)
    layout: Layout = attrs.field(default=NO_LAYOUT, eq=False, repr=False)
    source: str = attrs.field(default="", eq=False)
    # All devices by rank. A field, since properties of slotted records cannot remember.
    devices: tuple[Device, ...] = attrs.field(init=False, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        """Refuse what is no table (RankTableFormatError with all that is wrong)."""
        object.__setattr__(self, "devices", _by_rank(self.servers))
        require_table(self)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is odd but works, as sentences."""
        return tuple(str(note) for note in self.notes)

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

        return next(server for server in self.servers if any(device is wanted for device in server.devices))


def _by_rank(servers: Iterable[Server]) -> tuple[Device, ...]:
    return tuple(sorted((device for server in servers for device in server.devices), key=attrgetter("rank_id")))

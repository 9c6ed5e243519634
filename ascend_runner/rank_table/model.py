"""A job's rank table in any dialect: servers, their devices, and the rank of each device. Independent of JSON."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from typing import Final

import attrs

from ascend_runner.problems import Problem, RankTableFormatError
from ascend_runner.rank_table.parts import NO_EXTRA_KEYS, NO_LAYOUT, Device, Dialect, Layout, Server, SuperPod
from ascend_runner.rank_table.soundness import find_errors
from ascend_runner.text import counted, format_numbers

# What a notebook shows of each device, and of each server of a larger table.
DEVICE_HEADS: Final = ("server", "pod", "rank", "device", "device_ip")
SERVER_HEADS: Final = ("server", "pods", "ranks", "devices")
MOST_LISTED: Final = 64  # devices with a row each


@attrs.frozen(kw_only=True)
class RankTable:
    """A job's rank table.

    Every rank from 0 to rank_size - 1 occurs once, and so does every server_id, and on one server every device_id.
    `servers` are in document order (in a group list: the order of their first rank). `version` is the document's own,
    "" where it has none (group lists). `idle_pods` are the instances without devices. `extra_keys` are the other keys
    at the top of the document, `notes` the warnings about it, `source` its name. `data` are its bytes, unpacked where
    `is_packed`; a table that was not read from a document has none.

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

    def _repr_html_(self) -> str:
        """Return the table for a notebook: a row for each device, or for each server if there are many devices."""
        from ascend_runner import html_table  # noqa: PLC0415  only notebooks show it

        title = f"{self.dialect.value}: {counted(self.server_count, 'server')}, {counted(self.rank_size, 'device')}"
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

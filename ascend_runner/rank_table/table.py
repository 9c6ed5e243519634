"""A rank table: `ParsedTable` as a document describes it, and `RankTable`, which is known to be sound."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from ascend_runner.problems import Problem, RankTableFormatError
from ascend_runner.rank_table import invariants
from ascend_runner.rank_table.model import (
    NO_EXTRA_KEYS,
    NO_LAYOUT,
    Device,
    Dialect,
    Layout,
    Server,
    SuperPod,
    by_rank,
)


@attrs.frozen(kw_only=True)
class ParsedTable:
    """The content of a completed document, sound or not: the fields of `RankTable`, and the errors found so far.

    Checks examine it so that one run reports everything that is wrong. `size` is that of the document in bytes,
    unpacked; `is_packed` is True where the document was packed.
    """

    servers: tuple[Server, ...]
    dialect: Dialect = Dialect.SERVER_LIST
    version: str = "1.0"
    idle_pods: tuple[str, ...] = ()
    super_pods: tuple[SuperPod, ...] = ()
    extra_keys: Mapping[str, object] = NO_EXTRA_KEYS
    notes: tuple[Problem, ...] = ()
    is_native: bool = False
    layout: Layout = NO_LAYOUT
    source: str = ""
    problems: tuple[Problem, ...] = ()
    size: int = 0
    is_packed: bool = False

    @property
    def devices(self) -> tuple[Device, ...]:
        """All devices by rank, as far as their ranks could be read."""
        return by_rank(self.servers)

    def table(self) -> RankTable:
        """Return the table.

        Raises:
            RankTableFormatError: The document is not a sound table.
        """
        fields = {field.name: getattr(self, field.name) for field in attrs.fields(RankTable) if field.init}

        return RankTable(**fields)


@attrs.frozen(kw_only=True)
class RankTable:
    """A job's rank table.

    Every rank from 0 to rank_size - 1 occurs once, and so does every server_id, and on one server every device_id.
    `servers` are in document order (in a group list: the order of their first rank). `version` is the document's own,
    "" where it has none (group lists). `idle_pods` are the instances without devices. `extra_keys` are the other keys
    at the top of the document, `notes` the warnings about it, `source` its name. `is_native` is True where HCCL reads
    the document as it is, so that it is passed on byte for byte.

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
    is_native: bool = attrs.field(default=False, eq=False)
    layout: Layout = attrs.field(default=NO_LAYOUT, eq=False, repr=False)
    source: str = attrs.field(default="", eq=False)
    # All devices by rank. A field, as a slotted class cannot cache a property.
    devices: tuple[Device, ...] = attrs.field(init=False, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        """Reject what is not a table."""
        problems = invariants.find_problems(self.servers, self.layout, self.source)
        if problems:
            raise RankTableFormatError(problems)

        object.__setattr__(self, "devices", by_rank(self.servers))

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

    def rank(self, rank_id: int) -> Device:
        """Return the device that a rank runs on.

        Raises:
            LookupError: The table has no such rank.
        """
        if not 0 <= rank_id < len(self.devices):
            raise LookupError(f"rank {rank_id} is out of range, expected 0 to {len(self.devices) - 1}")

        return self.devices[rank_id]

    def server(self, server_id: str) -> Server:
        """Return the server with this id.

        Raises:
            LookupError: The table has no such server.
        """
        for server in self.servers:
            if server.server_id == server_id:
                return server

        raise LookupError(f"no server has the server_id '{server_id}'")

    def server_of(self, rank_id: int) -> Server:
        """Return the server that a rank runs on.

        Raises:
            LookupError: The table has no such rank.
        """
        wanted = self.rank(rank_id)

        return next(server for server in self.servers if any(device is wanted for device in server.devices))

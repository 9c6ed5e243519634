"""Collects the problems of one table, and finds the paths of its servers and devices in the document."""

from __future__ import annotations

from typing import Union

import attrs

from ascend_runner.problems import Problem
from ascend_runner.rank_table import problems
from ascend_runner.rank_table.model import Device, Server
from ascend_runner.rank_table.table import ParsedTable, RankTable

Table = Union[ParsedTable, RankTable]


@attrs.define(eq=False, repr=False)
class Collector:
    """The problems found so far."""

    table: Table
    problems: list[Problem] = attrs.field(factory=list)

    def error(self, sentence: str, path: str, code: str) -> None:
        """Record what HCCL would reject."""
        self.problems.append(problems.error(sentence, source=self.table.source, path=path, code=code))

    def warning(self, sentence: str, path: str, code: str = "") -> None:
        """Record what is odd but works."""
        self.problems.append(problems.warning(sentence, source=self.table.source, path=path, code=code))

    def device_path(self, device: Device, key: str = "") -> str:
        """Return the path of a device's entry, or of a key in it."""
        return self.table.layout.path(device.index, key)

    def server_path(self, server: Server, key: str = "server_id") -> str:
        """Return the path of a key of a server, which must have a device."""
        return self.table.layout.holder(server.devices[0].index, key)

"""Collects findings about one table, and knows how to name the place of a server or device in its document."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from ascend_runner.rank_table.findings import Finding

if TYPE_CHECKING:
    from ascend_runner.rank_table.model import Device, Draft, RankTable, Server


@attrs.define
class Report:
    """What was found so far."""

    table: Draft | RankTable
    findings: list[Finding] = attrs.field(factory=list)

    def add(self, severity: str, sentence: str, path: str, code: str = "") -> None:
        """Note a finding about a place of the document."""
        finding = Finding(severity=severity, sentence=sentence, path=path, source=self.table.source, code=code)
        self.findings.append(finding)

    def add_of_device(self, severity: str, sentence: str, device: Device, key: str, code: str = "") -> None:
        """Note a finding about a key of a device."""
        self.add(severity, sentence, self.table.layout.path(device.place, key), code)

    def add_of_server(self, severity: str, sentence: str, server: Server, code: str = "") -> None:
        """Note a finding about a server, which must have a device."""
        self.add(severity, sentence, self.table.layout.holder(server.devices[0].place, "server_id"), code)

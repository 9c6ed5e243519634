"""Finds the peers that HCCL's and Open MPI's messages name: by rank, server, device or address.

The patterns follow hcomm's error tables and its troubleshooting guide (EI0002, EI0006, EI0013, EI0015, the heartbeat
report "Cluster Exception Location", the table LINK_ERROR_INFO), in the old and the new wording, and Open MPI's
help-mpi-btl-tcp.txt.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from ascend_runner.diagnosis.finding import Peer


def peers_in(lines: Iterable[str]) -> tuple[Peer, ...]:
    """Return the peers that the messages name, each once, taken from the most specific pattern that matches."""
    found: dict[int, dict[Peer, None]] = {}
    for line in lines:
        for position, form in enumerate(_FORMS):
            for match in form.finditer(line):
                found.setdefault(position, {}).update(dict.fromkeys(_peers_of(match)))

    return tuple(found[min(found)]) if found else ()


def _peers_of(match: re.Match[str]) -> Iterable[Peer]:
    """Build a peer for each rank or device that a message lists ("1,3,5,")."""
    fields = match.groupdict(default="")
    ranks = re.findall(r"\d+", fields.get("ranks", "")) or [""]
    devices = re.findall(r"\d+", fields.get("devices", "")) or [""]
    for rank in ranks:
        for device in devices:
            yield Peer(
                rank_id=int(rank) if rank else None,
                server_id=fields.get("server", ""),
                device_id=int(device) if device else None,
                device_ip=fields.get("ip", ""),
            )


_SERVER: Final = r"(?P<server>[^\s\]\[/,()]{1,64})"

# Most specific first: HCCL's heartbeat identifies the lost peer; a failed connection has two ends; a wait may be one
# link in a chain of waits.
_FORMS: Final = tuple(
    re.compile(pattern)
    for pattern in (
        rf"Cluster Exception Location\[IP/ID\]:\[{_SERVER}/(?P<devices>\d{{1,4}})\]",
        rf"serverId\[{_SERVER}\], deviceId\[(?P<devices>\d{{1,4}})\], Heartbeat Lost",
        r'unconnected ranks: "?\[(?P<ranks>[\d, ]{1,400})\]',
        r"Failed to connect agent\[(?P<ranks>[\d, ]{1,400})\]",
        rf"remoteUserrank\[(?P<ranks>\d{{1,6}})\]-remoteIpAddr\[{_SERVER}/(?P<devices>\d{{1,4}})\]",
        rf"fails to connect to dstRank \(server {_SERVER}, device ID (?P<devices>[\d, ]{{1,60}})\)",
        rf"connect destRank\[{_SERVER}/(?P<devices>\d{{1,4}})\]",
        r"\|\s{1,8}(?P<ip>[0-9A-Fa-f.:]{2,45})\((?P<ranks>\d{1,6})\)\s{1,8}\|\s{1,8}\d{1,6}\s{1,8}\|.{1,200}time ?out",
        rf"Peer information: server {_SERVER}, device ID (?P<devices>\d{{1,4}})",
        # Not a part of 4294967295, which is -1: no rank.
        r"(?:remote rank|Waiting peer rank|Remote rank):?\s?\[?(?P<ranks>\d{1,6})(?!\d)\]?",
        r"^ {2}Peer host: +(?P<server>[\w.-]{1,64})\s*$",
        r"Check whether node (?P<server>[0-9A-Fa-f.:]{7,45}) reports an error",
    )
)

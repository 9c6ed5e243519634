"""Parses what HCCL's own heartbeats report in `run/plog`: a rank that is lost or stuck. Pure.

HCCL connects neighboring ranks for this, and passes each event on to all ranks (hccl, heartbeat.cc). It prints an event
once, long before its error follows after HCCL_EXEC_TIMEOUT. A rank has the id SERVER_ID/DEVICE_ID of the rank table.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import attrs

from ascend_runner.diagnosis import root_cause
from ascend_runner.diagnosis.root_cause import NodePlace, Place
from ascend_runner.rank_table import codec
from ascend_runner.text import rank_list


class Status(enum.Enum):
    """What has become of a rank. Other events, such as ERROR CQE, may pass without a failure."""

    LOST = "lost (no heartbeat for 30 s)"
    STUCK = "stuck (its process or its device makes no progress)"


@attrs.frozen
class PeerEvent:
    """A rank that HCCL reports, by the rank that has noticed it."""

    place: Place
    status: Status
    informer: Place
    at: str  # local time, as in the log: such times compare like the moments


_UID: Final = r"\[([^\]\s]{1,128})/(\d{1,4})\]"
# The form of today's HCCL, and the one of CANN 8.0; the documentation has some spaces elsewhere. A program's own lines,
# which may quote such a line, do not begin like this.
_FORM: Final = re.compile(
    r"\[[A-Z]{4,7}\] ?HCCL\(\d+,.{0,64}?\): ?(\d{4}-\d\d-\d\d-\d\d:\d\d:\d\d)\S{0,16} ?\[heartbeat\.cc:\d+\].{0,64}?"
    rf"(?:\[HeartbeatAbnormal\] ?local|\[HCCL_TRACE\]) ?rank ?{_UID} ?[:\uff1a] ?(?:crimer )?rank ?{_UID} ?"
    rf"status ?\[(LOST|STUCK)\] ?by (?:informer )?rank ?{_UID}"
)


def events_in(lines: Iterable[str]) -> list[PeerEvent]:
    """Return the events in lines of a plog, in their order."""
    found = []
    for line in lines:
        match = _FORM.match(line)
        if match:
            at, _server, _device, server, device, status, informer, by = match.groups()
            found.append(PeerEvent(Place(server, int(device)), Status[status], Place(informer, int(by)), at))
    return found


def sentences(
    events: Sequence[PeerEvent], own: Mapping[tuple[str, int], int], table: tuple[bytes, bytes] | None
) -> list[str]:
    """Describe events, one sentence for all ranks of a node with one status.

    `own` are this node's ranks by server and device. They count only without a rank table, of which `table` has what
    the ranks read, and what the platform has written.
    """
    ranks = {Place(*place): rank_id for place, rank_id in own.items()}
    known: Sequence[NodePlace] = ()
    if table:
        ranks = {place: rank_id for rank_id, place in root_cause.places(codec.loads(table[0])).items()}
        known = root_cause.nodes(codec.loads(table[1]))
    groups: dict[tuple[Status, str], list[PeerEvent]] = {}
    for event in events:
        rank_id = ranks.get(event.place)
        node = next((node for node in known if rank_id in node.rank_ids), None)
        pod = f"pod {node.pod_name}, " if node and node.pod_name else ""
        where = f"node {node.number} ({pod}{node.server_id})" if node else f"server {event.place.server_id}"
        groups.setdefault((event.status, where), []).append(event)
    return [_sentence(group, where, ranks) for (_status, where), group in groups.items()]


def nodes_with_lost_ranks(events: Iterable[PeerEvent], table: tuple[bytes, bytes] | None) -> tuple[int, ...]:
    """Return the numbers of the nodes with a lost rank, none without a rank table; `table` as for `sentences`."""
    if table is None:
        return ()
    ranks = {place: rank_id for rank_id, place in root_cause.places(codec.loads(table[0])).items()}
    lost = {ranks.get(event.place) for event in events if event.status is Status.LOST}
    nodes = root_cause.nodes(codec.loads(table[1]))
    return tuple(node.number for node in nodes if not lost.isdisjoint(node.rank_ids))


def _sentence(events: Sequence[PeerEvent], where: str, ranks: Mapping[Place, int]) -> str:
    known = {ranks[event.place] for event in events if event.place in ranks}
    devices = sorted({event.place.device_id for event in events if event.place not in ranks})
    names = [*([rank_list(known)] if known else []), *(f"device {device}" for device in devices)]
    verb = "is" if len(known) + len(devices) == 1 else "are"
    informer = events[0].informer
    by = f"rank {ranks[informer]}" if informer in ranks else f"device {informer.device_id} of {informer.server_id}"
    return f"HCCL reports that {', '.join(names)} on {where} {verb} {events[0].status.value}, by {by}"

"""Finds the nodes and ranks that the messages of other nodes name."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from ascend_runner.diagnosis.finding import Peer
from ascend_runner.diagnosis.root_cause import located
from ascend_runner.merge.model import Complaint, Job, Node


@attrs.frozen(kw_only=True)
class Mention:
    """A message on one node that names another node, and possibly one of its ranks."""

    by: Node
    complaint: Complaint
    node: Node
    rank_id: int | None


@attrs.frozen
class Mentions:
    """The mentions of all nodes of a job, in their order."""

    every: tuple[Mention, ...]

    def of(self, node: Node) -> list[Mention]:
        """Return the mentions that name a node."""
        return [one for one in self.every if one.node is node]

    def that_name(self, node: Node) -> list[Node]:
        """Return the nodes whose messages name a node."""
        return list({one.by.number: one.by for one in self.of(node)}.values())

    def named(self) -> list[Node]:
        """Return the nodes that are named."""
        return list({one.node.number: one.node for one in self.every}.values())

    def ends(self) -> list[Node]:
        """Return the nodes that are named but name no other: the ends of chains of nodes that wait for each other."""
        waiting = {one.by.number for one in self.every}
        return [node for node in self.named() if node.number not in waiting]

    def rank_of(self, node: Node) -> int | None:
        """Return the rank of a node that most messages name."""
        named = [one.rank_id for one in self.of(node) if one.rank_id is not None]
        return max(sorted(set(named)), key=named.count, default=None)


def find(job: Job) -> Mentions:
    """Find the mentions of a job."""
    holders = {rank_id: node for node in job.nodes for rank_id in node.rank_ids}
    servers: dict[str, list[Node]] = {}
    for rank_id, place in job.places.items():
        node = holders.get(rank_id)
        if node and node not in servers.setdefault(place.server_id, []):
            servers[place.server_id].append(node)
    ranks: dict[Peer, int | None] = {}  # many ranks name the same peer
    found = []
    for node in job.nodes:
        for complaint in node.complaints:
            if complaint.peer not in ranks:
                ranks[complaint.peer] = _rank_of(complaint.peer, job)
            peer_rank = ranks[complaint.peer]
            named = holders.get(peer_rank) if peer_rank is not None else _node_of(complaint.peer.server_id, servers)
            if named and named is not node:
                found.append(Mention(by=node, complaint=complaint, node=named, rank_id=peer_rank))
    return Mentions(tuple(found))


def _rank_of(peer: Peer, job: Job) -> int | None:
    if peer.device_ip in job.addresses:
        return job.addresses[peer.device_ip]
    return located(peer, job.places).rank_id


def _node_of(server_id: str, servers: Mapping[str, list[Node]]) -> Node | None:
    """Return the node of a server that has only one node, or None."""
    nodes = servers.get(server_id, [])
    return nodes[0] if len(nodes) == 1 else None

"""A rank table and a node's variables describe one job: where they contradict each other, it is an error.

Takes the table as plain facts and gives the sentence of the error, or nothing; without a table, what is missing.
"""

from __future__ import annotations

from ascend_runner.annotations import TYPE_CHECKING, NamedTuple

from .node import LOCALHOST

if TYPE_CHECKING:
    from .node import Node


class TableFacts(NamedTuple):
    """What a rank table says of this node. Nodes are pods where the table has pods, else servers (`unit` says which).

    `position` is this node's place in the order of ranks, `devices` the number of its cards. `server_ids` are those of
    all servers, rank 0's first, and `first_address` is where that one is reached.
    """

    unit: str
    nodes: int
    position: int
    devices: int
    server_id: str
    server_ids: tuple[str, ...]
    first_address: str
    first_pod_name: str = ""


def contradiction(node: Node, table: TableFacts) -> str:
    """Give the sentence of the error; empty where both agree, or where nobody but the table says anything."""
    sources = node.sources
    if "nnodes" in sources and node.nnodes not in {table.nodes, len(table.server_ids)}:  # two pods may share a server
        return f"{sources['nnodes']} says {node.nnodes} nodes, but the rank table holds {table.nodes} {table.unit}s"
    if node.devices_per_node is not None and node.devices_per_node != table.devices:
        return (
            f"{sources['devices_per_node']} says {node.devices_per_node} devices on each node, but the rank table gives"
            f" {table.devices} to this one, on server {table.server_id!r}"
        )
    if sources.get("node_rank") == "--node-rank" and node.node_rank != table.position:
        return f"--node-rank is {node.node_rank}, but in the rank table this node is number {table.position}"
    # A server_id may be another of the node's addresses, or none (MindCluster writes a pod's UID). So an address that
    # is not in the table says nothing, but another server's says that these are not our devices.
    if node.address != table.server_id and node.address in table.server_ids:
        return (
            f"{sources['address']} says {node.address}, but the rank table has this node's devices on server"
            f" {table.server_id!r}"
        )

    return ""


def with_table(node: Node, table: TableFacts) -> Node:
    """Give the node the number that it has in the table; the ranks meet where the table puts rank 0.

    An address for node 0 that was told by name (a flag, MASTER_ADDR, a platform's own) stays.
    """
    node = node._replace(node_rank=table.position, nnodes=table.nodes, doubt="")
    if "master_addr" in node.sources:
        return node
    if table.nodes == 1:
        return node._replace(master_addr=LOCALHOST)

    # A host's name starts with its pod's. Every node must come to the same answer, so nothing of this node counts.
    of_first_pod = tuple(host for host in node.hosts if host.partition(".")[0] == table.first_pod_name)
    # Names in an order of their own are all there is; but addresses that the table knows, too, it has put in order.
    in_their_order = node.hosts if set(table.server_ids).isdisjoint(node.hosts) else ()
    return node._replace(master_addr=(*of_first_pod, *in_their_order, table.first_address)[0])


def without_table(node: Node) -> str:
    """Give the sentence of the error where a node's variables are not enough to start without a rank table."""
    if node.doubt or node.master_addr:
        return node.doubt

    return (
        f"there are {node.nnodes} nodes ({node.sources.get('nnodes', '--nnodes')}), but nothing says where node 0 is:"
        " expected --master-addr or MASTER_ADDR"
    )


def is_address(text: str) -> bool:
    """Whether a server_id is an IP address, as far as its form tells."""
    return ":" in text or (text.count(".") == 3 and text.replace(".", "").isdigit())  # noqa: PLR2004  an IPv4 has four

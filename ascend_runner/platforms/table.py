"""Where platforms put a job's rank table, and the facts about the node that must not contradict it.

Takes the table as plain facts and returns the sentence of an error, or "".
"""

from __future__ import annotations

import os.path
from collections.abc import Callable, Mapping
from typing import Final

import attrs

from ascend_runner.errors import RankTableError
from ascend_runner.platforms.node import LOCALHOST, OPTIONS, Node
from ascend_runner.text import counted

VARIABLES: Final = ("RANK_TABLE_FILE_V_1_0", "RANK_TABLE_FILE")
# ModelArts and CCE, then MindCluster.
USUAL_PLACES: Final = ("/user/config/jobstart_hccl.json", "/user/serverid/devindex/config/hccl.json")


@attrs.frozen(kw_only=True, eq=False, repr=False)
class TableFacts:
    """The facts of a rank table about this node. Nodes are pods if the table has pods, else servers (see `unit`).

    `position` is this node's place in the order of ranks, `devices` the number of its devices. `server_ids` has the one
    of rank 0 first, and `first_address` is the address of that server.
    """

    unit: str
    nodes: int
    position: int
    devices: int
    server_id: str
    server_ids: tuple[str, ...]
    first_address: str
    first_pod_name: str


def announced_table(environ: Mapping[str, str], is_folder: Callable[[str], bool]) -> str:
    """Return the path at which the platform announces a rank table that may not exist yet, or "" if there is none."""
    named = next(filter(None, map(environ.get, VARIABLES)), "")
    return named or next((place for place in USUAL_PLACES if is_folder(os.path.dirname(place))), "")


def find_table(named: str | None, environ: Mapping[str, str], is_folder: Callable[[str], bool]) -> str:
    """Return the path of the rank table: the one that the user has `named`, else the one that the platform announces.

    Raises:
        RankTableError: There is neither.
    """
    place = named or announced_table(environ, is_folder)
    if not place:
        raise RankTableError(
            f"no rank table found: --rank-table, {VARIABLES[0]} and {VARIABLES[1]} are not set, and neither"
            f" {' nor '.join(map(os.path.dirname, USUAL_PLACES))} exists; use --nproc-per-node N to start N processes"
            " without one, such as --nproc-per-node 1"
        )
    return place


def contradiction(node: Node, table: TableFacts) -> str:
    """Return the sentence of the error, or "" if both agree, or if only the table has the facts."""
    sources = node.sources
    number = _contradicting_number(node, table)
    if number:
        return number
    if node.devices_per_node not in {None, table.devices}:
        return _other_number_of_devices(node, table)
    if sources.get("node_rank") == "--node-rank" and node.node_rank != table.position and not _missing(node, table):
        return f"--node-rank is {node.node_rank}, but the rank table gives this node rank {table.position}"
    # A server_id may be another address of the node, or none at all (MindCluster writes a pod's UID). So an address
    # that is not in the table proves nothing, but another server's proves that these are not our devices.
    if node.address != table.server_id and node.address in table.server_ids:
        return (
            f"{sources['address']} is {node.address}, but the rank table has this node's devices on server"
            f" {table.server_id!r}"
        )

    return ""


def _missing(node: Node, table: TableFacts) -> int:
    """Return how many nodes the rank table lacks of those that were announced; negative if it has more."""
    if "nnodes" not in node.sources or node.nnodes == len(table.server_ids):  # two pods may share a server
        return 0
    return node.nnodes - table.nodes


def _contradicting_number(node: Node, table: TableFacts) -> str:
    """Return the sentence of the error if a rank table has too few or too many nodes."""
    missing, has = _missing(node, table), f"but the rank table has {counted(table.nodes, table.unit)}"
    if node.min_nodes is not None and table.nodes < node.min_nodes:
        return f"--min-nodes is {node.min_nodes}, {has}"
    if not missing or (missing > 0 and node.min_nodes is not None):
        return ""
    smaller = f", or --min-nodes {table.nodes} if the job may start on fewer nodes" if missing > 0 else ""
    return (
        f"{node.sources['nnodes']} is {node.nnodes}, {has}; if the table is right, use --nnodes {table.nodes}{smaller}"
    )


def _other_number_of_devices(node: Node, table: TableFacts) -> str:
    source, number = node.sources["devices_per_node"], node.devices_per_node or 0
    sentence = (
        f"{source} is {number}, but the rank table has {counted(table.devices, 'device')} for this node"
        f" (server {table.server_id!r})"
    )
    if source != OPTIONS["devices_per_node"]:
        return sentence
    return (
        f"{sentence}; remove {source} to start the ranks of the table, or --rank-table to start"
        f" {counted(number, 'rank')} without one"
    )


def with_table(node: Node, table: TableFacts) -> Node:
    """Return the node with its number in the table; rank 0 of the table is the rendezvous.

    An address of node 0 from an option, MASTER_ADDR or a platform's variable of that meaning stays.
    """
    announced = node.node_rank if "node_rank" in node.sources else None
    missing = max(0, _missing(node, table))
    hosts = () if missing else node.hosts  # the hosts include those that are missing
    node = attrs.evolve(
        node,
        node_rank=table.position,
        nnodes=table.nodes,
        ambiguity="",
        announced_rank=announced,
        missing=missing,
    )
    if "master_addr" in node.sources:
        return node
    if table.nodes == 1:
        return attrs.evolve(node, master_addr=LOCALHOST)

    # A host's name starts with its pod's. Every node must find the same address, so this node's own is not used.
    of_first_pod = tuple(host for host in node.hosts if host.partition(".")[0] == table.first_pod_name)
    # Host names are in the platform's order; but if they are addresses of the table, its order counts.
    in_their_order = hosts if set(table.server_ids).isdisjoint(hosts) else ()
    return attrs.evolve(node, master_addr=(*of_first_pod, *in_their_order, table.first_address)[0])


def problem_without_table(node: Node) -> str:
    """Return the reason why a node cannot start without a rank table, or "" if it can."""
    if node.ambiguity or node.master_addr:
        return node.ambiguity

    return (
        f"cannot tell the address of node 0 of {node.nnodes} nodes ({node.sources.get('nnodes', '--nnodes')}): set"
        " --master-addr or MASTER_ADDR"
    )


def is_address(text: str) -> bool:
    """Whether a server_id looks like an IP address."""
    return ":" in text or (text.count(".") == 3 and text.replace(".", "").isdigit())  # noqa: PLR2004  an IPv4 has four

"""Finds the ranks of this node. It never guesses: if no entry of a rank table matches for certain, that is an error."""

from __future__ import annotations

import os.path
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import attrs

from ascend_runner.engines import node_0
from ascend_runner.errors import NodeNotFoundError, RankTableError, SettingsError
from ascend_runner.plan.context import PlanContext
from ascend_runner.platforms import detect, host_list
from ascend_runner.platforms import table as platform_table
from ascend_runner.platforms.host_list import Hosts
from ascend_runner.platforms.node import Node
from ascend_runner.platforms.table import TableFacts
from ascend_runner.platforms.variables import MACHINE_ADDRESSES, POD_ADDRESSES
from ascend_runner.platforms.volcano import INDICES
from ascend_runner.rank_table import Device, RankTable, Server
from ascend_runner.text import abbreviated, counted, is_whole_number

CURRENT_ADDRESS: Final = "MA_CURRENT_HOST_IP"  # the server_id of this node on ModelArts
ADDRESS_VARIABLES: Final = (CURRENT_ADDRESS, *MACHINE_ADDRESSES, *POD_ADDRESSES)
WAY_OUT: Final = "use --pod-name, --server-id, or --nnodes and --node-rank to identify this node"


@attrs.frozen(kw_only=True)
class NodeShare:
    """This node's part of a job: its ranks in local order, their server and pod, its place among the nodes."""

    rank_ids: tuple[int, ...]
    rank_size: int
    server_id: str = ""
    pod_name: str = ""
    node: Node = attrs.field(factory=Node)


def find_node(context: PlanContext, engine: str = "") -> Node:
    """Find this node's place in its job by options, variables and --hosts, and for an `engine` by host files as well.

    Raises:
        SettingsError: An option, a variable or a host file cannot be used.
    """
    environ = context.environ
    settings = context.settings
    overrides = settings.overrides
    if settings.hosts and settings.node_rank is not None and settings.nnodes is None:
        overrides = attrs.evolve(overrides, nnodes=len(settings.hosts))
    node = detect.find_node(environ, overrides)
    hosts, source = context.settings.hosts or (), host_list.OPTION
    if not hosts and engine in node_0.ENGINES and context.settings.nnodes != 1:
        hosts, source = _of_host_file(context, engine)
    if not hosts:
        return node

    node = host_list.with_hosts(node, hosts, source, lambda: _own_names(context))
    if engine not in node_0.ENGINES:
        if len({*node.slots}) > 1:
            raise SettingsError(f"{source} gives hosts different numbers of devices, which requires a rank table")
        return node
    if "node_rank" not in node.sources:
        # A launcher outside the list, or a task that the list does not name; its index above 0 is not node 0's.
        index = next(filter(None, map(environ.get, INDICES)), "0")
        rank = int(index) if is_whole_number(index) and int(index) < node.nnodes else 0
        node = attrs.evolve(node, node_rank=rank, ambiguity="")
    return node


def _of_host_file(context: PlanContext, engine: str) -> tuple[Hosts, str]:
    """Return the hosts of the first host file that there is, and its path."""
    for name in node_0.host_files(engine, context.environ):
        path = os.path.join(context.cwd, name)
        hosts = host_list.decode(context.read_text(path), path)
        if hosts:
            return hosts, path
    return (), ""


def _own_names(context: PlanContext) -> Iterator[str]:
    yield from filter(None, (context.environ.get("HOSTNAME"), context.host_name))
    yield from filter(None, map(context.environ.get, ADDRESS_VARIABLES))
    yield from context.own_addresses()


def without_table(nproc: int, node: Node, host_name: str) -> NodeShare:
    """Return this node's share of a job without a rank table, with `nproc` ranks on each node.

    Raises:
        SettingsError: The number of this node or the address of node 0 is unknown.
    """
    problem = platform_table.problem_without_table(node)
    if problem:
        raise SettingsError(problem)

    return NodeShare(rank_ids=node.rank_ids(nproc), rank_size=nproc * node.nnodes, server_id=host_name, node=node)


def waiting(node: Node, context: PlanContext) -> NodeShare:
    """Return this node's share of a job whose ranks are not known yet; it has a name if its number is unknown."""
    settings, environ = context.settings, context.environ
    names = (settings.pod_name, settings.server_id, *map(environ.get, detect.POD_NAMES), context.host_name)
    name = "" if node.is_numbered else next(filter(None, names))
    return NodeShare(rank_ids=(), rank_size=0, server_id=name, node=node)


def find_share(table: RankTable, context: PlanContext) -> NodeShare:
    """Find this node's devices in a table that has devices, without the node's place (see `agreed`).

    The user decides with --pod-name, --server-id, or --nnodes and --node-rank. Else, if the table has pods, the pod's
    name does, because two pods may share a server; else an address.

    Raises:
        NodeNotFoundError: No entry matches, or the matching entry has no device.
    """
    settings = context.settings
    if settings.pod_name:
        return _share_of_pod(table, {"--pod-name": settings.pod_name}, context)
    if settings.server_id:
        return _share_of_named_server(table, settings.server_id)
    nodes, nnodes = len(table.pod_names) or len(table.servers_by_rank), settings.nnodes
    # A smaller table renumbers its nodes.
    is_smaller = settings.min_nodes is not None and nnodes is not None and nodes < nnodes
    if nnodes is not None and settings.node_rank is not None and not is_smaller:
        return _share_of_number(table, nnodes, settings.node_rank)
    if table.pod_names:
        return _share_of_pod(table, _names_of_pod(context), context)
    return _share_of_server(table, context)


def agreed(share: NodeShare, table: RankTable, node: Node) -> NodeShare:
    """Add the node's place to a share of a table.

    Raises:
        RankTableError: The table and the node's variables contradict each other.
    """
    facts = _facts(share, table)
    contradiction = platform_table.contradiction(node, facts)
    if contradiction:
        raise RankTableError(contradiction)

    return attrs.evolve(share, node=platform_table.with_table(node, facts))


def _facts(share: NodeShare, table: RankTable) -> TableFacts:
    pods, servers = table.pod_names, table.servers_by_rank
    server_ids = tuple(server.server_id for server in servers)
    return TableFacts(
        unit="pod" if pods else "server",
        nodes=len(pods) + len(table.idle_pods) if pods else table.server_count,
        position=pods.index(share.pod_name) if pods else server_ids.index(share.server_id),
        devices=len(share.rank_ids),
        server_id=share.server_id,
        server_ids=server_ids,
        first_address=_address_of(servers[0]),
        first_pod_name=pods[0] if pods else "",
    )


def _share_of_number(table: RankTable, nnodes: int, number: int) -> NodeShare:
    """Find the devices of the node with a number; pods count as nodes if their number fits, else servers do."""
    servers, pods = table.servers_by_rank, table.pod_names
    if len(pods) == nnodes > number:
        server = next(server for server in servers if pods[number] in server.pod_names)
        return _share(table, server.devices_of(pods[number]), server_id=server.server_id, pod_name=pods[number])
    if not pods and len(servers) == nnodes > number:
        return _share(table, servers[number].devices, server_id=servers[number].server_id)

    nodes = counted(len(pods), "pod") if pods else counted(len(servers), "server")
    raise NodeNotFoundError(
        f"this node is not in the rank table: --nnodes is {nnodes} and --node-rank is {number}, but the rank table has"
        f" {nodes} with devices; correct both options, or use --pod-name or --server-id instead"
    )


def _names_of_pod(context: PlanContext) -> dict[str, str]:
    names = {variable: name for variable in detect.POD_NAMES if (name := context.environ.get(variable))}
    return {**names, "host name": context.host_name}


def _share_of_pod(table: RankTable, names: Mapping[str, str], context: PlanContext) -> NodeShare:
    """Find the devices of the pod with one of some names, or of the only one unless the user has named it."""
    pods = {pod_name: server for server in table.servers for pod_name in server.pod_names}
    instances = (*pods, *table.idle_pods)
    own = next((name for name in names.values() if name in instances), None)
    if own is None and len(instances) == 1 and "--pod-name" not in names:
        _check_current_address(table, context)
        own = instances[0]
    if own is None:
        raise NodeNotFoundError(
            f"this node is not in the rank table: no pod_name matches {_with_origins(names)}; the table has"
            f" {_quoted(instances) or 'no pods'}; {WAY_OUT}"
        )
    if own not in pods:
        raise NodeNotFoundError(f"this node has no ranks: pod {own!r} has no device in the rank table")

    server = pods[own]
    return _share(table, server.devices_of(own), server_id=server.server_id, pod_name=own)


def _share_of_named_server(table: RankTable, name: str) -> NodeShare:
    server = _by_name(table.servers).get(name)
    if server is None:
        raise _no_server(table, {"--server-id": name})
    if len(server.pod_names) > 1:
        raise NodeNotFoundError(
            f"server {name!r} has several pods in the rank table, {_quoted(server.pod_names)}: use --pod-name"
        )
    return _share_of_whole(table, server)


def _check_current_address(table: RankTable, context: PlanContext) -> None:
    """Refuse the only pod of a table if no server has the address that the platform gives this node."""
    current = context.environ.get(CURRENT_ADDRESS)
    if current and current not in _by_name(table.servers) and _has_addresses(table):
        raise _no_server(table, {CURRENT_ADDRESS: current})


def _share_of_server(table: RankTable, context: PlanContext) -> NodeShare:
    servers = _by_name(table.servers)
    current = context.environ.get(CURRENT_ADDRESS)
    if table.server_count == 1 and (not current or current in servers or not _has_addresses(table)):
        return _share_of_whole(table, table.servers[0])

    names = {variable: value for variable in ADDRESS_VARIABLES if (value := context.environ.get(variable))}
    own = next((name for name in names.values() if name in servers), None)
    if own is None:
        addresses = context.own_addresses()
        own = next((address for address in (*addresses, context.host_name) if address in servers), None)
        names.update({"own address": " ".join(addresses) or "none", "host name": context.host_name})
    if own is None:
        raise _no_server(table, names)
    return _share_of_whole(table, servers[own])


def _no_server(table: RankTable, names: Mapping[str, str]) -> NodeNotFoundError:
    return NodeNotFoundError(
        f"this node is not in the rank table: no server_id matches {_with_origins(names)}; the table has"
        f" {_quoted(server.server_id for server in table.servers)}; {WAY_OUT}"
    )


def _share_of_whole(table: RankTable, server: Server) -> NodeShare:
    if not server.devices:
        raise NodeNotFoundError(f"this node has no ranks: server {server.server_id!r} has no device in the rank table")

    pod_name = server.devices[0].pod_name
    return _share(table, server.devices, server_id=server.server_id, pod_name=pod_name)


def _has_addresses(table: RankTable) -> bool:
    """Whether a table identifies its servers by addresses; MindCluster also writes a pod's UID."""
    return all(platform_table.is_address(server.server_id) for server in table.servers)


def _by_name(servers: Sequence[Server]) -> dict[str, Server]:
    """Index servers by server_id, and by every other address that is unique.

    MindCluster may use a pod's UID as server_id; two pods on one machine then share its host_ip.
    """
    known: dict[str, Server] = {}
    shared: set[str] = set()
    for server in servers:
        for address in server.addresses:
            if known.setdefault(address, server) is not server:
                shared.add(address)
    for address in shared:
        del known[address]
    known.update((server.server_id, server) for server in servers)

    return known


def _address_of(server: Server) -> str:
    """Return the address at which other nodes reach a server: its server_id if that is an address, else the last one.

    The last one is the pod's own (container_ip, pod_ip), which on the host network is also the machine's.
    """
    is_address = platform_table.is_address(server.server_id)
    return server.server_id if is_address else (server.server_id, *server.addresses)[-1]


def _share(table: RankTable, devices: Iterable[Device], *, server_id: str, pod_name: str = "") -> NodeShare:
    rank_ids = tuple(device.rank_id for device in devices)
    return NodeShare(rank_ids=rank_ids, rank_size=table.rank_size, server_id=server_id, pod_name=pod_name)


def _with_origins(names: Mapping[str, str]) -> str:
    return " or ".join(f"{name!r} ({origin})" for origin, name in names.items())


def _quoted(names: Iterable[str]) -> str:
    return abbreviated(list(map(repr, names)))

"""Which part of a rank table belongs to this node. Never a silent guess: no certain match is an error."""

from __future__ import annotations

from ascend_runner.annotations import TYPE_CHECKING, Final, NamedTuple
from ascend_runner.errors import NodeNotFoundError, RankTableError, SettingsError
from ascend_runner.platforms.node import Node

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ascend_runner.platforms.agree import TableFacts
    from ascend_runner.rank_table import Device, RankTable, Server

POD_NAME_VARIABLES: Final = ("BATCH_TASK_CURRENT_INSTANCE", "MA_CURRENT_INSTANCE_NAME")
ADDRESS_VARIABLES: Final = ("MA_CURRENT_HOST_IP", "MA_CURRENT_IP", "HOST_IP", "POD_IP", "XDL_IP")
NAMES_SHOWN: Final = 8  # of what the table holds, in an error: enough to see the pattern, few enough to read


class Host(NamedTuple):
    """What this machine says of itself. `addresses` is a function, since asking takes longer than most need to wait."""

    name: str
    addresses: Callable[[], Sequence[str]]


class NodeShare(NamedTuple):
    """This node's part of a job: the ranks it starts, in local order, where they run, and its place among the nodes."""

    rank_ids: tuple[int, ...]
    rank_size: int
    server_id: str = ""
    pod_name: str = ""
    node: Node = Node()


def without_table(nproc: int, node: Node, host: Host) -> NodeShare:
    """Give the share of a node of a job that has `nproc` ranks on each node, and no rank table for them.

    Errors: SettingsError where it is not certain which node this is, or where node 0 is.
    """
    if node.doubt or not node.master_addr:
        from ascend_runner.platforms import agree  # only here and with a table

        raise SettingsError(agree.without_table(node))

    return NodeShare(node.rank_ids(nproc), nproc * node.nnodes, server_id=host.name, node=node)


def find_share(table: RankTable, environ: Mapping[str, str], host: Host) -> NodeShare:
    """Find the devices of this node in a table that has devices. Of the node's place it says nothing (see `agreed`).

    By pod name where the table has pods: two pods on one server start their own devices each. By address otherwise.
    Errors: NodeNotFoundError, naming what was looked for and what the table holds.
    """
    has_pods = any(device.pod_name for device in table.devices)
    return _share_of_pod(table, environ, host) if has_pods else _share_of_server(table, environ, host)


def agreed(share: NodeShare, table: RankTable, node: Node) -> NodeShare:
    """Add the node's place to a share of a table. Errors: RankTableError where the two contradict each other."""
    from ascend_runner.platforms import agree  # only with a table

    facts = _facts(share, table)
    contradiction = agree.contradiction(node, facts)
    if contradiction:
        raise RankTableError(contradiction)

    return share._replace(node=agree.with_table(node, facts))


def _facts(share: NodeShare, table: RankTable) -> TableFacts:
    from ascend_runner.platforms.agree import TableFacts

    pods = tuple(dict.fromkeys(device.pod_name for device in table.devices)) if share.pod_name else ()
    servers = sorted(
        (server for server in table.servers if server.devices), key=lambda server: server.devices[0].rank_id
    )
    server_ids = [server.server_id for server in servers]
    return TableFacts(
        unit="pod" if pods else "server",
        nodes=len(pods) + len(table.idle_pods) if pods else table.server_count,
        position=pods.index(share.pod_name) if pods else server_ids.index(share.server_id),
        devices=len(share.rank_ids),
        server_id=share.server_id,
        server_ids=tuple(server_ids),
        first_address=_address_of(servers[0]),
        first_pod_name=pods[0] if pods else "",
    )


def _share_of_pod(table: RankTable, environ: Mapping[str, str], host: Host) -> NodeShare:
    pods = {pod_name: server for server in table.servers for pod_name in server.pod_names}
    names = {variable: environ[variable] for variable in POD_NAME_VARIABLES if environ.get(variable)}
    names["host name"] = host.name
    instances = (*pods, *table.idle_pods)
    own = instances[0] if len(instances) == 1 else next((name for name in names.values() if name in instances), None)
    if own is None:
        raise NodeNotFoundError(
            f"this node is not in the rank table: looked for a pod_name equal to {_told(names)}, the table holds"
            f" {_listed(instances)}"
        )
    if own not in pods:
        raise NodeNotFoundError(f"this node has nothing to start: pod {own!r} has no device in the rank table")

    server = pods[own]
    return _share(table, server.devices_of(own), server_id=server.server_id, pod_name=own)


def _share_of_server(table: RankTable, environ: Mapping[str, str], host: Host) -> NodeShare:
    if table.server_count == 1:
        server = table.servers[0]
        return _share(table, server.devices, server_id=server.server_id)

    servers = _by_name(table.servers)
    names = {variable: environ[variable] for variable in ADDRESS_VARIABLES if environ.get(variable)}
    own = next((name for name in names.values() if name in servers), None)
    if own is None:
        addresses = host.addresses()
        own = next((address for address in (*addresses, host.name) if address in servers), None)
        names.update({"own address": " ".join(addresses) or "none", "host name": host.name})
    if own is None:
        raise NodeNotFoundError(
            f"this node is not in the rank table: looked for a server_id equal to {_told(names)}, the table holds"
            f" {_listed([server.server_id for server in table.servers])}; MA_CURRENT_HOST_IP can name this node's"
            " server_id"
        )
    server = servers[own]
    if not server.devices:
        raise NodeNotFoundError(
            f"this node has nothing to start: server {server.server_id!r} has no device in the rank table"
        )

    return _share(table, server.devices, server_id=server.server_id)


def _by_name(servers: Sequence[Server]) -> dict[str, Server]:
    """Give servers by their server_id, and by those other addresses that only one of them has.

    MindCluster may write a pod's UID as server_id; two pods on one machine then share its host_ip.
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
    """Tell where other nodes reach a server: where its server_id is no address, the last that the table gives.

    That is a pod's own (container_ip, pod_ip), which is its machine's too where it uses the machine's network.
    """
    from ascend_runner.platforms import agree  # only with a table

    return server.server_id if agree.is_address(server.server_id) else (server.server_id, *server.addresses)[-1]


def _share(table: RankTable, devices: Iterable[Device], *, server_id: str, pod_name: str = "") -> NodeShare:
    rank_ids = tuple(device.rank_id for device in devices)
    return NodeShare(rank_ids, table.rank_size, server_id=server_id, pod_name=pod_name)


def _told(names: Mapping[str, str]) -> str:
    return ", ".join(f"{name!r} ({origin})" for origin, name in names.items())


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:NAMES_SHOWN])
    more = len(names) - NAMES_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown

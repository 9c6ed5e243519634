"""Which part of a rank table belongs to this node. Never a silent guess: no certain match is an error."""

from __future__ import annotations

from ascend_runner.annotations import TYPE_CHECKING, Final, NamedTuple
from ascend_runner.errors import NodeNotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ascend_runner.rank_table import Device, RankTable

POD_NAME_VARIABLES: Final = ("BATCH_TASK_CURRENT_INSTANCE", "MA_CURRENT_INSTANCE_NAME")
ADDRESS_VARIABLES: Final = ("MA_CURRENT_HOST_IP", "MA_CURRENT_IP", "HOST_IP", "POD_IP")
NAMES_SHOWN: Final = 8  # of what the table holds, in an error: enough to see the pattern, few enough to read


class Host(NamedTuple):
    """What this machine says of itself. `addresses` is a function, since asking takes longer than most need to wait."""

    name: str
    addresses: Callable[[], Sequence[str]]


class NodeShare(NamedTuple):
    """This node's part of a job: the ranks it starts, in local order, and where they run."""

    rank_ids: tuple[int, ...]
    rank_size: int
    server_id: str = ""
    pod_name: str = ""
    master_addr: str = "127.0.0.1"


def without_table(nproc: int, host: Host) -> NodeShare:
    """Give the share of a job that is this node alone."""
    return NodeShare(tuple(range(nproc)), nproc, server_id=host.name)


def find_share(table: RankTable, environ: Mapping[str, str], host: Host) -> NodeShare:
    """Find the devices of this node in a table.

    By pod name where the table has pods: two pods on one server start their own devices each. By address otherwise.
    Errors: NodeNotFoundError, naming what was looked for and what the table holds.
    """
    if not table.devices:
        # A job on CPUs still gets a table. Each node runs the command once, and no rank table is handed on.
        return without_table(1, host)

    has_pods = any(device.pod_name for device in table.devices)
    return _share_of_pod(table, environ, host) if has_pods else _share_of_server(table, environ, host)


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

    servers = {server.server_id: server for server in table.servers}
    names = {variable: environ[variable] for variable in ADDRESS_VARIABLES if environ.get(variable)}
    own = next((name for name in names.values() if name in servers), None)
    if own is None:
        addresses = host.addresses()
        own = next((address for address in (*addresses, host.name) if address in servers), None)
        names.update({"own address": " ".join(addresses) or "none", "host name": host.name})
    if own is None:
        raise NodeNotFoundError(
            f"this node is not in the rank table: looked for a server_id equal to {_told(names)}, the table holds"
            f" {_listed(tuple(servers))}; MA_CURRENT_HOST_IP can name this node's server_id"
        )
    if not servers[own].devices:
        raise NodeNotFoundError(f"this node has nothing to start: server {own!r} has no device in the rank table")

    return _share(table, servers[own].devices, server_id=own)


def _share(table: RankTable, devices: Iterable[Device], *, server_id: str, pod_name: str = "") -> NodeShare:
    rank_ids = tuple(device.rank_id for device in devices)
    is_alone = len(rank_ids) == table.rank_size  # not so for two pods of one server: each has a 127.0.0.1 of its own
    return NodeShare(
        rank_ids=rank_ids,
        rank_size=table.rank_size,
        server_id=server_id,
        pod_name=pod_name,
        master_addr="127.0.0.1" if is_alone else table.server_of(0).server_id,
    )


def _told(names: Mapping[str, str]) -> str:
    return ", ".join(f"{name!r} ({origin})" for origin, name in names.items())


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:NAMES_SHOWN])
    more = len(names) - NAMES_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown

"""The network around the job: the ports of this node, and the names of the other nodes.

Sources: HCCL's reference of environment variables (its ports, EI0019), proc(5) for /proc/net/tcp.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from typing import Final

import attrs

from ascend_runner.check.context import CheckContext, Findings
from ascend_runner.host import bounded
from ascend_runner.host.host import Host
from ascend_runner.host.open_files import name_of, open_files
from ascend_runner.platforms.variables import hccl_ports
from ascend_runner.problems import Problem, error, warning
from ascend_runner.text import abbreviated, counted

LISTEN: Final = "0A"  # a socket's state in /proc/net/tcp
INODE: Final = 9  # the column of its inode
HCCL: Final = "HCCL"


def ports(context: CheckContext) -> Findings:
    """Report processes that use the ports that the ranks will need: node 0's MASTER_PORT, and HCCL's with NPUs."""
    needed = _needed_ports(context)
    used = {found.port: found for found in _sockets(context.host) if found.port in needed}
    pids = _pids({found.inode for found in used.values()}, context.host)
    for port, found in sorted(used.items()):
        holder = f"process {name_of(context.host, pids[found.inode])}" if found.inode in pids else "a process"
        yield _port_problem(found, needed[port], holder)
    if needed and not used:
        numbers = sorted(port for port, owner in needed.items() if owner == HCCL)
        free = [f"{numbers[0]}-{numbers[-1]} (HCCL)"] if numbers else []
        free += [f"{port} ({owner})" for port, owner in needed.items() if owner != HCCL]
        yield f"free: {', '.join(free)}"


@attrs.frozen(order=True, kw_only=True)
class _Socket:
    is_listening: bool
    port: int
    inode: str


def _needed_ports(context: CheckContext) -> dict[int, str]:
    """Return the ports that the ranks of this node will listen on, with their users."""
    node, plan = context.prepared.node, context.prepared.plan
    needed: dict[int, str] = {}
    if context.npus and not context.environ.get("HCCL_HOST_SOCKET_PORT_RANGE"):
        needed.update(dict.fromkeys(hccl_ports(context.environ), HCCL))
    is_used_by_launcher = plan is not None and bool(plan.ranks) and plan.is_passed_through
    if node and node.node_rank == 0 and not is_used_by_launcher:
        needed[node.master_port] = "MASTER_PORT"
    return needed


def _port_problem(found: _Socket, user: str, holder: str) -> Problem:
    if not found.is_listening:
        return warning(
            f"port {found.port} ({user}) is in use by a connection of {holder}",
            "if this persists, reserve the port with sysctl net.ipv4.ip_local_reserved_ports",
        )
    sentence = f"port {found.port} ({user}) is in use: {holder} listens on it"
    if user == HCCL:
        return error(sentence, "kill it if it belongs to an earlier job; HCCL would report EI0019")
    # The port is taken as it is: not every framework listens on it.
    return warning(sentence, "kill it if it belongs to an earlier job, or use another MASTER_PORT on all nodes")


def _sockets(host: Host) -> list[_Socket]:
    """Read the local TCP ports, listening sockets last. Sockets without an inode only wait for their last packets."""
    rows = [line.split() for name in ("tcp", "tcp6") for line in host.read_lines(f"/proc/net/{name}")[1:]]
    return sorted(
        _Socket(is_listening=row[3] == LISTEN, port=int(row[1].rpartition(":")[2], 16), inode=row[INODE])
        for row in rows
        if len(row) > INODE and row[INODE] != "0"
    )


def _pids(inodes: set[str], host: Host) -> dict[str, int]:
    targets = {f"socket:[{inode}]": inode for inode in inodes}
    if not targets:
        return {}
    return {targets[target]: pid for pid, target in open_files(host) if target in targets}


def names(context: CheckContext) -> Findings:
    """Report whether the names of the other nodes can be resolved; nothing if no other node is named."""
    node = context.prepared.node
    if node is None or node.nnodes == 1:
        return
    hosts = list(dict.fromkeys(filter(None, (node.master_addr, *node.hosts))))
    if hosts:
        answers = bounded.call_each(hosts, _is_resolvable, context.patience)
        yield from findings_of_names(hosts, answers, context.patience)


def findings_of_names(hosts: Sequence[str], answers: Mapping[str, bool], patience: float) -> Findings:
    """Report on the answers of a name server; hosts that are missing were not answered within `patience` seconds."""
    nodes = counted(len(hosts), "node")
    unknown = [host for host in hosts if answers.get(host) is False]
    silent = [host for host in hosts if host not in answers]
    if unknown:
        yield error(
            f"cannot resolve {len(unknown)} of {nodes}: {abbreviated(unknown)}",
            "make sure that their pods are running and that the job has a headless service (Volcano: the svc plugin)",
        )
    if silent:
        yield error(
            f"the name server did not respond within {patience:g} s for {len(silent)} of {nodes}:"
            f" {abbreviated(silent)}",
            "check the name servers in /etc/resolv.conf",
        )
    if not unknown and not silent:
        yield f"{counted(len(hosts), 'name')} resolved"


def _is_resolvable(host: str) -> bool:
    try:
        return bool(socket.getaddrinfo(host, None))
    except (OSError, UnicodeError):  # UnicodeError: a name with an empty or overlong part
        return False

"""The addresses of this machine and of other nodes, and ports of this machine."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Container, Iterable
from typing import Final

import attrs

from ascend_runner.errors import SettingsError, reason
from ascend_runner.node.host import Host, name_of, open_files

RESOLVE_LIMIT: Final = 60  # seconds; a pod's name may become known later than this node starts


def own_addresses() -> list[str]:
    """List this machine's IP addresses, except loopback addresses."""
    import psutil  # noqa: PLC0415  25 ms, and most nodes are found in their rank table without it

    families = {socket.AF_INET, socket.AF_INET6}
    found = [address for addresses in psutil.net_if_addrs().values() for address in addresses]
    plain = [address.address.partition("%")[0] for address in found if address.family in families]
    return [address for address in plain if not address.startswith("127.") and address != "::1"]


def reserve_port(ports: Iterable[int]) -> tuple[int, socket.socket] | None:
    """Reserve the first of some ports that nothing on this machine uses and no other runner has reserved.

    What reserves it is an abstract Unix socket (unix(7)) with its number in the name: like the port, it exists once in
    a network namespace, and it ends with this process. A bound TCP socket would keep every server without SO_REUSEADDR
    from binding the port. Returns None if there is no such port, or if this process may not bind any.
    """
    for port in ports:
        try:
            reservation = socket.socket(socket.AF_UNIX)
        except OSError:
            return None
        try:
            reservation.bind(f"\0ascend-runner-port-{port}")
            _bind_once(port)
        except OSError as error:
            reservation.close()
            if error.errno != errno.EADDRINUSE:
                return None
        else:
            return port, reservation
    return None


def _bind_once(port: int) -> None:
    """Bind a port at every address, and release it: it was never connected, so that nothing of it is left.

    Raises:
        OSError: Something uses the port, or it may not be bound.
    """
    is_dual = socket.has_dualstack_ipv6()
    with socket.socket(socket.AF_INET6 if is_dual else socket.AF_INET) as tried:
        if is_dual:
            tried.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        tried.bind(("", port))


def temporary_ports(host: Host) -> range:
    """Return the ports that the kernel gives to outgoing connections (ip(7)); none if that is unknown."""
    found = [int(word) for word in host.read_text("/proc/sys/net/ipv4/ip_local_port_range").split() if word.isdigit()]
    return range(found[0], found[1] + 1) if len(found) == 2 else range(0)  # noqa: PLR2004  the first and the last


LISTEN: Final = "0A"  # a socket's state in /proc/net/tcp
INODE: Final = 9  # the column of its inode


@attrs.frozen(kw_only=True)
class PortUser:
    """A process, named as far as it may be seen, and the TCP port that it uses."""

    port: int
    process: str
    is_listening: bool  # else the port is that of a connection


def port_users(host: Host, ports: Container[int]) -> list[PortUser]:
    """Return the processes that use some TCP ports; for each port one, if possible one that listens on it."""
    rows = [line.split() for name in ("tcp", "tcp6") for line in host.read_lines(f"/proc/net/{name}")[1:]]
    # A socket without an inode only waits for its last packets. Listening sockets come last.
    sockets = sorted(
        (row[3] == LISTEN, int(row[1].rpartition(":")[2], 16), row[INODE])
        for row in rows
        if len(row) > INODE and row[INODE] != "0"
    )
    used = {port: (f"socket:[{inode}]", is_listening) for is_listening, port, inode in sockets if port in ports}
    targets = {target for target, _is_listening in used.values()}
    pids = {target: pid for pid, target in open_files(host) if target in targets} if targets else {}
    return [
        PortUser(
            port=port,
            process=f"process {name_of(host, pids[target])}" if target in pids else "a process",
            is_listening=is_listening,
        )
        for port, (target, is_listening) in sorted(used.items())
    ]


def find_address(name: str) -> str:
    """Look up the address of a host, an IPv4 address if it has one.

    Raises:
        SettingsError: The name cannot be a host name.
        OSError: The name cannot be resolved (yet).
    """
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except UnicodeError:
        raise SettingsError(f"invalid host name {name!r}; use another --master-addr") from None
    # MindSpore accepts an IPv6 address only together with MS_WORKER_IP.
    return str(min(found, key=lambda one: one[0] != socket.AF_INET)[4][0])


def await_address(name: str, *, pause: Callable[[float], None], announce: Callable[[str], None]) -> str:
    """Look up the address of a host until it is known, for at most RESOLVE_LIMIT seconds.

    `pause(seconds)` blocks and may raise to end the wait; `announce` takes one sentence if there is a wait.

    Raises:
        SettingsError: The name cannot be a host name, or was not resolved in time.
    """
    failure = ""
    for attempt in range(RESOLVE_LIMIT):
        try:
            return find_address(name)
        except OSError as error:
            failure = reason(error)
        if not attempt:
            announce(f"cannot resolve host {name!r} yet, retrying for up to {RESOLVE_LIMIT} s: {failure}")
        pause(1.0)

    raise SettingsError(f"cannot resolve host {name!r} after {RESOLVE_LIMIT} s ({failure}); use another --master-addr")

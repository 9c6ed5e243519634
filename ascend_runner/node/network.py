"""The addresses of this machine and of other nodes, and ports of this machine."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Iterable
from typing import Final

from ascend_runner.errors import SettingsError, reason

RESOLVE_LIMIT: Final = 60  # seconds; a pod's name may become known later than this node starts


def own_addresses() -> list[str]:
    """List this machine's IP addresses, except loopback addresses."""
    import psutil  # noqa: PLC0415  25 ms, and most nodes are found in their rank table without it

    families = {socket.AF_INET, socket.AF_INET6}
    found = [address for addresses in psutil.net_if_addrs().values() for address in addresses]
    plain = [address.address.partition("%")[0] for address in found if address.family in families]
    return [address for address in plain if not address.startswith("127.") and address != "::1"]


def hold_port(ports: Iterable[int]) -> socket.socket | None:
    """Bind the first of some ports that nothing on this machine uses, so that no other runner chooses it.

    A server may still listen on it, as all of them set SO_REUSEADDR (socket(7)). Whether a port is free is found out
    before the option is set: with it, two runners could hold the same one. Returns None if none of them is free, or if
    this process may not bind any.
    """
    is_dual = socket.has_dualstack_ipv6()
    for port in ports:
        try:
            held = socket.socket(socket.AF_INET6 if is_dual else socket.AF_INET)
        except OSError:
            return None
        try:
            if is_dual:
                held.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            held.bind(("", port))
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        except OSError as error:
            held.close()
            if error.errno != errno.EADDRINUSE:
                return None
        else:
            return held
    return None


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

"""Typed readers of an environment. The only module that formats the error for an invalid value of a variable.

An empty variable counts as not set.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from ascend_runner.errors import SettingsError
from ascend_runner.platforms.node import NOTHING, Overrides
from ascend_runner.text import is_whole_number

MOST: Final = 65536  # most nodes, devices and ports alike: a typo must not exhaust memory
HIGHEST_PORT: Final = 65535
HCCL_BASE_PORT: Final = 60000  # the first of HCCL's host ports, unless HCCL_IF_BASE_PORT moves them
HCCL_PORTS: Final = 32  # 16 before CANN 8.5
NPU_PORT: Final = 16666  # HCCL's port on the devices
# Variables of all platforms with an address of this node: of its machine, and of its pod.
MACHINE_ADDRESSES: Final = ("MA_CURRENT_IP", "HOST_IP")
POD_ADDRESSES: Final = ("POD_IP", "XDL_IP")


class Variables:
    """Reads facts, and records in `sources` which variable gave each. The first name that is set is used.

    A fact that the user has set is not read: the variable behind it may be broken.
    """

    def __init__(self, environ: Mapping[str, str], overrides: Overrides = NOTHING) -> None:
        self.sources = dict(overrides.sources)
        self._environ = environ
        self._overrides = overrides

    def text(self, fact: str, names: Iterable[str]) -> str:
        """Read a text; empty if no name is set."""
        name = next(filter(self._environ.get, names), None)
        if name is None:
            return ""

        self.sources[fact] = name
        return self._environ[name].strip()

    def whole_number(self, fact: str, names: Iterable[str], *, default: int, at_least: int = 0) -> int:
        """Read a number.

        Raises:
            SettingsError: The variable holds something else.
        """
        override: int | None = getattr(self._overrides, fact, None)
        if override is not None:
            return override
        text = self.text(fact, names)
        return whole_number(text, self.sources[fact], at_least=at_least) if text else default

    def master_addr(self, names: Iterable[str]) -> str:
        """Read the address of node 0: torch's variable, which users set too, `names`, or another framework's."""
        if self._overrides.master_addr is not None:
            return self._overrides.master_addr
        return self.text("master_addr", ("MASTER_ADDR", *names, "MS_SCHED_HOST", "CM_CHIEF_IP"))

    def master_port(self, names: Iterable[str], *, default: int) -> int:
        """Read the port of node 0 in the same way. `check_port` judges it.

        Raises:
            SettingsError: The variable does not hold a number.
        """
        if self._overrides.master_port is not None:
            return self._overrides.master_port
        text = self.text("master_port", ("MASTER_PORT", *names, "MS_SCHED_PORT", "CM_CHIEF_PORT"))
        if not text:
            return default
        if not is_whole_number(text) or int(text) > MOST:
            raise _no_port(text, self.sources["master_port"])
        return int(text)

    def hosts(self, names: Iterable[str]) -> tuple[str, ...]:
        """Read host names or addresses, separated by commas, in the order of the nodes."""
        return tuple(host.strip() for host in self.text("hosts", names).split(",") if host.strip())


def whole_number(text: str, name: str, *, at_least: int = 0) -> int:
    """Read the number in the variable `name`.

    Raises:
        SettingsError: It is not a number, or out of range.
    """
    if not is_whole_number(text) or not at_least <= int(text) <= MOST:
        raise SettingsError(f"invalid value {text!r} for {name}: expected a whole number from {at_least} to {MOST}")

    return int(text)


def number_of(environ: Mapping[str, str], name: str, default: int = 0) -> int:
    """Return the number in a variable, or the default if the variable is not set or holds something else."""
    text = environ.get(name, "")
    return int(text) if is_whole_number(text) else default


def check_port(port: int, name: str, environ: Mapping[str, str]) -> None:
    """Check a port of node 0: with one of HCCL's own, HCCL would fail with EI0019 or EI0020.

    Raises:
        SettingsError: It is not a port, or one of HCCL's.
    """
    if not 1 <= port <= HIGHEST_PORT:
        raise _no_port(str(port), name)

    own = hccl_ports(environ)
    if port in own or port == NPU_PORT:
        raise SettingsError(
            f"port {port} ({name}) is used by HCCL: choose a port other than {own[0]} to {own[-1]} and {NPU_PORT}"
        )


def _no_port(text: str, name: str) -> SettingsError:
    return SettingsError(f"invalid value {text!r} for {name}: expected a port from 1 to {HIGHEST_PORT}")


def hccl_ports(environ: Mapping[str, str]) -> range:
    """Return the ports of a host that HCCL uses."""
    base = number_of(environ, "HCCL_IF_BASE_PORT", HCCL_BASE_PORT)
    return range(base, base + HCCL_PORTS)

"""A node's place in its job, and the readers of the variables that describe it.

An empty variable counts as not set.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import attrs

from ascend_runner.errors import SettingsError
from ascend_runner.text import is_whole_number

LOCALHOST: Final = "127.0.0.1"
MASTER_PORT: Final = 29500  # torch's default; not one of HCCL's ports
FREE_PORT: Final = "the first free port"  # the source of a port that was chosen because the default is in use
ALONE: Final = "or --nnodes 1 to use this node alone"  # the remedy that every ambiguity offers


@attrs.frozen(kw_only=True)
class Node:
    """The place of a node in its job, as far as variables and options give it.

    `master_addr` is the address of node 0 ("": unknown), `hosts` are all nodes in the order of their ranks (empty:
    unknown), with the devices of each in `slots` (empty: `devices_per_node` each), and `address` is this node's own, as
    its platform calls it. `sources` gives the option or variable of each fact, `detected_by` the variables by which the
    platform was detected; `linger` and `workload_manager` are as in `PlatformSpec`. `ambiguity` is a sentence if
    variables hint at other nodes without being conclusive: an error, unless a rank table or the user decides.
    `announced_rank` is the rank by options or variables where a rank table has given it another. A rank table may have
    `min_nodes` to `nnodes` nodes (None: exactly `nnodes`); then `nnodes` becomes the number in the table, and `missing`
    is the number of nodes that are not in it.
    """

    platform: str = "no platform detected"
    detected_by: tuple[str, ...] = ()
    linger: float = 0.0
    workload_manager: str = ""
    node_rank: int = 0
    nnodes: int = 1
    master_addr: str = ""
    master_port: int = MASTER_PORT
    hosts: tuple[str, ...] = ()
    slots: tuple[int, ...] = ()
    devices_per_node: int | None = None
    address: str = ""
    sources: Mapping[str, str] = {}
    ambiguity: str = ""
    announced_rank: int | None = None
    min_nodes: int | None = None
    missing: int = 0

    @property
    def why(self) -> str:
        """One sentence: the platform, the variables that detect it, and the source of each fact."""
        seen = f" (detected by {' and '.join(self.detected_by)})" if self.detected_by else ""
        place = f"node rank {self.node_rank} of {self.nnodes}{self._from('node_rank', 'nnodes')}"
        master = f"node 0 at {self.master_addr or 'an unknown address'}{self._from('master_addr')}"
        port = f"port {self.master_port}{self._from('master_port')}"
        return f"{self.platform}{seen}: {place}, {master}, {port}"

    @property
    def has_own_port(self) -> bool:
        """Whether a single node uses a port other than the engines' default."""
        return self.sources.get("master_port") in {"--master-port", FREE_PORT}

    @property
    def file_number(self) -> int | None:
        """The number of this node in file names, None for the only node. It does not follow a rank table's numbers."""
        if self.nnodes + self.missing == 1:
            return None
        return self.node_rank if self.announced_rank is None else self.announced_rank

    @property
    def is_numbered(self) -> bool:
        """Whether the user or the platform gives this node's number, so that its files can be named."""
        return "nnodes" in self.sources and (self.nnodes == 1 or "node_rank" in self.sources)

    def rank_ids(self, nproc: int) -> tuple[int, ...]:
        """Return this node's ranks in a job without a rank table: `nproc` on every node, in the order of the nodes."""
        return tuple(range(self.node_rank * nproc, (self.node_rank + 1) * nproc))

    def _from(self, *facts: str) -> str:
        names = dict.fromkeys(self.sources[fact] for fact in facts if fact in self.sources)
        return f" ({', '.join(names)})" if names else ""


# The option of each fact.
OPTIONS: Final[Mapping[str, str]] = {
    "nnodes": "--nnodes",
    "min_nodes": "--min-nodes",
    "node_rank": "--node-rank",
    "master_addr": "--master-addr",
    "master_port": "--master-port",
    "devices_per_node": "--nproc-per-node",
}


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Overrides:
    """Facts of a node, named as in `Node`; None: not set."""

    nnodes: int | None = None
    min_nodes: int | None = None
    node_rank: int | None = None
    master_addr: str | None = None
    master_port: int | None = None
    devices_per_node: int | None = None

    @property
    def facts(self) -> Mapping[str, Any]:
        """The facts that are set, each with the type that it has in `Node`."""
        return {fact: value for fact, value in attrs.asdict(self, recurse=False).items() if value is not None}

    @property
    def sources(self) -> Mapping[str, str]:
        """The option that set each fact."""
        return {fact: OPTIONS[fact] for fact in self.facts}

    @property
    def is_complete(self) -> bool:
        """Whether no platform needs to be detected, so that stale variables of one can do no harm."""
        return self.nnodes == 1 or None not in {self.nnodes, self.node_rank, self.master_addr}


NOTHING: Final = Overrides()


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

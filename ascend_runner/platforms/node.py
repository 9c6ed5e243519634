"""A node's place in its job, and the parts of it that options override."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

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

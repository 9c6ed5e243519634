"""What the user has set about this node, instead of the platform."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

# The option of each fact.
OPTIONS: Final[Mapping[str, str]] = {
    "nnodes": "--nnodes",
    "node_rank": "--node-rank",
    "master_addr": "--master-addr",
    "master_port": "--master-port",
    "devices_per_node": "--nproc-per-node",
}


@attrs.frozen(kw_only=True)
class Overrides:
    """Facts of a node, named as in `Node`; None: not set."""

    nnodes: int | None = None
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

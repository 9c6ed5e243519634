"""Launch contexts to start from, and what changes in an environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from ascend_runner.frameworks.env_patch import LaunchContext
from ascend_runner.platforms.node import Node

TABLE = "/log/rank_table/jobstart_hccl.json"
NODE = Node(node_rank=1, nnodes=2, master_addr="10.0.0.1", master_port=29500)


def context(
    framework: str, environ: Mapping[str, str] | None = None, *, nproc: int = 2, node: Node = NODE, **facts: Any
) -> LaunchContext:
    """Return a node with `nproc` ranks, the second of two without a table; `facts` are other fields of the context."""
    found = LaunchContext(
        framework=framework,
        node=node,
        rank_ids=node.rank_ids(nproc),
        rank_size=nproc * node.nnodes,
        environ=environ or {},
    )
    return attrs.evolve(found, **facts)


def changes(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return the variables that were set or changed, and those that were unset."""
    return (
        {name: value for name, value in after.items() if before.get(name) != value},
        sorted(name for name in before if name not in after),
    )

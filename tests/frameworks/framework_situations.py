"""Situations to start from, and what changes in an environment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ascend_runner.frameworks.situation import Situation
from ascend_runner.platforms.node import Node

if TYPE_CHECKING:
    from collections.abc import Mapping

TABLE = "/log/rank_table/jobstart_hccl.json"
NODE = Node(node_rank=1, nnodes=2, master_addr="10.0.0.1", master_port=29500)


def situation(environ: Mapping[str, str] | None = None, *, node: Node = NODE, nproc: int = 2) -> Situation:
    """Give two nodes of `nproc` ranks, without a table."""
    return Situation(node, node.rank_ids(nproc), nproc * node.nnodes, None, environ or {})


def changes(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Give what was set anew, and what was unset."""
    return (
        {name: value for name, value in after.items() if before.get(name) != value},
        sorted(name for name in before if name not in after),
    )

"""MindCluster's Ascend Operator, whose jobs are called acjob. Each framework gets variables of its own.

All count cards, not nodes: WORLD_SIZE, MS_WORKER_NUM and CM_WORKER_SIZE are those of the job, LOCAL_WORLD_SIZE,
MS_LOCAL_WORKER and CM_LOCAL_WORKER those of a node. RANK, MS_NODE_RANK and CM_RANK are the node's number.
Source: component/ascend-operator of Ascend/mind-cluster (pkg/controllers/v1/env.go).
"""

from __future__ import annotations

from ascend_runner.annotations import TYPE_CHECKING, Final
from ascend_runner.errors import SettingsError

from .contract import Contract
from .variables import whole_number

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .node import Node


def _contract(total: str, local: str, node_rank: str) -> Contract:
    """Describe one framework's three variables; the rest is the same for all."""

    def _count_nodes(node: Node, environ: Mapping[str, str]) -> Node:
        if "nnodes" in node.sources:
            return node
        cards = whole_number(environ[total], total, at_least=1)
        cards_per_node = whole_number(environ[local], local)  # the platform's: the user may start fewer ranks
        nnodes, left_over = divmod(cards, cards_per_node or cards)
        if left_over or not nnodes:
            raise SettingsError(f"{total} is {cards}, expected a multiple of {local}, {cards_per_node}")
        return node._replace(nnodes=nnodes, sources={**node.sources, "nnodes": f"{total} and {local}"})

    return Contract(
        node_rank=(node_rank,),
        devices_per_node=(local,),
        address=("XDL_IP",),
        refine=_count_nodes,
    )


MINDSPORE: Final = _contract("MS_WORKER_NUM", "MS_LOCAL_WORKER", "MS_NODE_RANK")
TENSORFLOW: Final = _contract("CM_WORKER_SIZE", "CM_LOCAL_WORKER", "CM_RANK")
PYTORCH: Final = _contract("WORLD_SIZE", "LOCAL_WORLD_SIZE", "RANK")
# LOCAL_RANK is a list, such as 0,1,2,3: no other platform does that, so it is witness enough by itself.
PYTORCH_BY_LIST: Final = PYTORCH._replace(is_certain=lambda environ: "," in environ["LOCAL_RANK"])

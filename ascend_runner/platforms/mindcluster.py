"""MindCluster's Ascend Operator, whose jobs are called acjob. Each framework gets variables of its own.

They count devices, not nodes: WORLD_SIZE, MS_WORKER_NUM and CM_WORKER_SIZE are those of the job, LOCAL_WORLD_SIZE,
MS_LOCAL_WORKER and CM_LOCAL_WORKER those of a node. RANK, MS_NODE_RANK and CM_RANK are the node's number.
Source: component/ascend-operator of Ascend/mind-cluster (pkg/controllers/v1/env.go).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from ascend_runner.errors import SettingsError
from ascend_runner.platforms.node import Node
from ascend_runner.platforms.spec import PlatformSpec
from ascend_runner.platforms.variables import whole_number

# Seconds. The operator does not reschedule a job whose pods all fail within a few seconds (Service Plane Faults in
# docs/en/scheduling/usage/resumable_training of Ascend/mind-cluster).
LINGER: Final = 30.0


def _spec(detected_by: tuple[str, ...], total: str, local: str, node_rank: str) -> PlatformSpec:
    """Describe one framework's three variables; the rest is the same for all."""

    def count_nodes(node: Node, environ: Mapping[str, str]) -> Node:
        if "nnodes" in node.sources:
            return node
        devices = whole_number(environ[total], total, at_least=1)
        per_node = whole_number(environ[local], local)  # the platform's number: the user may start fewer ranks
        nnodes, left_over = divmod(devices, per_node or devices)
        if left_over or not nnodes:
            raise SettingsError(f"{total} ({devices}) is not a multiple of {local} ({per_node})")
        return attrs.evolve(node, nnodes=nnodes, sources={**node.sources, "nnodes": f"{total} and {local}"})

    return PlatformSpec(
        name="MindCluster",
        detected_by=detected_by,
        linger=LINGER,
        node_rank=(node_rank,),
        devices_per_node=(local,),
        address=("XDL_IP",),
        refine=count_nodes,
        job_ids={"MINDX_TASK_ID": str},
    )


def _of_framework(total: str, local: str, node_rank: str) -> PlatformSpec:
    return _spec((total, local, node_rank), total, local, node_rank)


def _of_torch(*evidence: str) -> PlatformSpec:
    """Describe PyTorch's variables, which other platforms use as well: more evidence is needed."""
    shared = ("LOCAL_WORLD_SIZE", "WORLD_SIZE", "RANK")
    return _spec((*evidence, *shared), "WORLD_SIZE", "LOCAL_WORLD_SIZE", "RANK")


MINDSPORE: Final = _of_framework("MS_WORKER_NUM", "MS_LOCAL_WORKER", "MS_NODE_RANK")
TENSORFLOW: Final = _of_framework("CM_WORKER_SIZE", "CM_LOCAL_WORKER", "CM_RANK")
PYTORCH: Final = _of_torch("MINDX_TASK_ID")
PYTORCH_BY_ADDRESS: Final = _of_torch("MINDX_SERVER_IP")
# LOCAL_RANK is a list, such as 0,1,2,3: no other platform does that, so no more evidence is needed.
PYTORCH_BY_LIST: Final = attrs.evolve(
    _of_torch("LOCAL_RANK"), is_confirmed=lambda environ: "," in environ["LOCAL_RANK"]
)

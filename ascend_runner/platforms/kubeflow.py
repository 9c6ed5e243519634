"""Kubeflow's Trainer v2 (PET_*, which are torchrun's own) and the older PyTorchJob.

A PyTorchJob sets nothing but MASTER_ADDR, MASTER_PORT, WORLD_SIZE and RANK, counted in replicas; torchrun sets the same
counted in processes. What tells them apart is the pod's own name, <job>-master-0 or <job>-worker-<n>: the one that
MASTER_ADDR and RANK imply. Sources: kubeflow/trainer, and pkg/controller.v1/pytorch/envvar.go of training-operator.
"""

from __future__ import annotations

from ascend_runner.annotations import TYPE_CHECKING, Final

from .contract import Contract
from .variables import is_whole_number, whole_number

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .node import Node

NPROC: Final = "PET_NPROC_PER_NODE"
COUNTED_BY_TORCHRUN: Final = frozenset({"auto", "cpu", "gpu"})  # words that torchrun takes in place of a number
MASTER_POD: Final = "-master-0"


def _count_devices(node: Node, environ: Mapping[str, str]) -> Node:
    nproc = environ.get(NPROC, "")
    if not nproc or nproc in COUNTED_BY_TORCHRUN or "devices_per_node" in node.sources:
        return node
    devices = whole_number(nproc, NPROC, at_least=1)

    return node._replace(devices_per_node=devices, sources={**node.sources, "devices_per_node": NPROC})


def _is_own_pod(environ: Mapping[str, str]) -> bool:
    rank, master = environ["RANK"], environ["MASTER_ADDR"].partition(".")[0]
    if not is_whole_number(rank) or not master.endswith(MASTER_POD):
        return False
    own = master if rank == "0" else f"{master[: -len(MASTER_POD)]}-worker-{int(rank) - 1}"

    return environ["HOSTNAME"] == own


TRAINER: Final = Contract(
    nnodes=("PET_NNODES",),
    node_rank=("PET_NODE_RANK",),
    master_addr=("PET_MASTER_ADDR",),
    master_port=("PET_MASTER_PORT",),
    refine=_count_devices,
)
PYTORCH_JOB: Final = Contract(nnodes=("WORLD_SIZE",), node_rank=("RANK",), is_certain=_is_own_pod)

"""Kubeflow's Trainer v2 (PET_*, which are torchrun's own) and the older PyTorchJob.

A PyTorchJob sets nothing but MASTER_ADDR, MASTER_PORT, WORLD_SIZE and RANK, counted in replicas; torchrun sets the same
counted in processes. The pod's own name tells them apart: it must be <job>-master-0 or <job>-worker-<n>, as MASTER_ADDR
and RANK imply. Sources: kubeflow/trainer, and pkg/controller.v1/pytorch/envvar.go of training-operator.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from ascend_runner.platforms.node import Node
from ascend_runner.platforms.spec import PlatformSpec, counts_other_nodes
from ascend_runner.platforms.variables import whole_number
from ascend_runner.text import is_whole_number

NPROC: Final = "PET_NPROC_PER_NODE"
COUNTED_BY_TORCHRUN: Final = frozenset({"auto", "cpu", "gpu"})  # words that torchrun accepts instead of a number
MASTER_POD: Final = "-master-0"


def _count_devices(node: Node, environ: Mapping[str, str]) -> Node:
    nproc = environ.get(NPROC, "")
    if not nproc or nproc in COUNTED_BY_TORCHRUN or "devices_per_node" in node.sources:
        return node
    devices = whole_number(nproc, NPROC, at_least=1)

    return attrs.evolve(node, devices_per_node=devices, sources={**node.sources, "devices_per_node": NPROC})


def _is_own_pod(environ: Mapping[str, str]) -> bool:
    rank, master = environ["RANK"], environ["MASTER_ADDR"].partition(".")[0]
    if not is_whole_number(rank) or not master.endswith(MASTER_POD):
        return False
    own = master if rank == "0" else f"{master[: -len(MASTER_POD)]}-worker-{int(rank) - 1}"

    return environ["HOSTNAME"] == own


def is_single(environ: Mapping[str, str]) -> bool:
    """Whether this is the only pod of a PyTorchJob, which counts one process per pod."""
    return environ.get("WORLD_SIZE") == "1" and PYTORCH_JOB.is_detected(environ)


TRAINER: Final = PlatformSpec(
    name="Kubeflow Trainer",
    detected_by=("PET_NNODES", "PET_NODE_RANK"),
    nnodes=("PET_NNODES",),
    node_rank=("PET_NODE_RANK",),
    master_addr=("PET_MASTER_ADDR",),
    master_port=("PET_MASTER_PORT",),
    refine=_count_devices,
    ambiguity=counts_other_nodes("PET_NNODES"),
)
PYTORCH_JOB: Final = PlatformSpec(
    name="Kubeflow PyTorchJob",
    detected_by=("HOSTNAME", "MASTER_ADDR", "WORLD_SIZE", "RANK"),
    is_confirmed=_is_own_pod,
    nnodes=("WORLD_SIZE",),
    node_rank=("RANK",),
)

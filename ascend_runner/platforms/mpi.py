"""mpirun, if it started this process once per node (Open MPI 4 and 5; MPICH's and Intel's Hydra).

Several processes per node are detected by `already_started`. MPI gives numbers, but no addresses; inside a Slurm job
Slurm has the addresses. MPI's own variables come first, because mpirun passes those of the calling shell to every node:
SLURM_NODEID is then the same everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from ascend_runner.platforms import slurm
from ascend_runner.platforms.node import Node
from ascend_runner.platforms.spec import PlatformSpec


def _refine(node: Node, environ: Mapping[str, str]) -> Node:
    """Take the hosts from the surrounding Slurm step or job, if it has as many nodes."""
    for name in filter(environ.get, (slurm.STEP_NODES, slurm.JOB_NODES)):
        hosts = slurm.hosts_of(environ[name], name)
        if len(hosts) == node.nnodes:
            return attrs.evolve(node, hosts=hosts, sources={**node.sources, "hosts": name})

    return node


def _spec(name: str, size: str, rank: str) -> PlatformSpec:
    return PlatformSpec(
        name=name,
        workload_manager="",
        detected_by=(size, rank),
        # A job of one process says nothing about other nodes: `mpirun -np 1` may run on each of them.
        is_confirmed=lambda environ: environ[size] != "1",
        nnodes=(size,),
        node_rank=(rank,),
        refine=_refine,
    )


OPEN_MPI: Final = _spec("Open MPI", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK")
HYDRA: Final = _spec("Hydra (MPICH, Intel MPI)", "PMI_SIZE", "PMI_RANK")

"""mpirun, where it started this process once per node (Open MPI 4 and 5; MPICH's and Intel's Hydra).

Several processes per node are none of this file's business: see `single`. MPI tells numbers, but no addresses; inside a
Slurm job the addresses are Slurm's. Its own variables come first, since mpirun hands those of the shell that called it
to every node: SLURM_NODEID is then the same everywhere.
"""

from __future__ import annotations

from ascend_runner.annotations import TYPE_CHECKING, Final

from . import slurm
from .contract import Contract

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .node import Node


def _refine(node: Node, environ: Mapping[str, str]) -> Node:
    """Take the hosts from the Slurm step or job around, where it has as many nodes."""
    for name in filter(environ.get, (slurm.STEP_NODES, slurm.JOB_NODES)):
        hosts = slurm.hosts_of(environ[name], name)
        if len(hosts) == node.nnodes:
            return node._replace(hosts=hosts, sources={**node.sources, "hosts": name})

    return node


def _contract(size: str, rank: str) -> Contract:
    # A job of one process says nothing about other nodes: mpirun -np 1 may have been called on each.
    return Contract(nnodes=(size,), node_rank=(rank,), is_certain=lambda environ: environ[size] != "1", refine=_refine)


OPEN_MPI: Final = _contract("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK")
HYDRA: Final = _contract("PMI_SIZE", "PMI_RANK")

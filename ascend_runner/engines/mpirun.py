"""mpirun for Horovod, started on node 0, which starts the other nodes itself.

The arguments are Open MPI's, as in the task-training guide. By the same guide a command that contains mpirun, even
inside bash -c, stays as it is; it finds the hosts through the variables that Open MPI 4 and 5 and Hydra read.
"""

from __future__ import annotations

from typing import Final

import attrs

from ascend_runner.engines.handover import Engine, Handover, HostFile, Request, host_lines, hosts_of, unchanged
from ascend_runner.platforms import task_training

ARGUMENTS: Final = (
    *("-bind-to", "none"),
    *("-map-by", "slot"),
    *("-x", "NCCL_DEBUG=INFO"),
    *("-x", "LD_LIBRARY_PATH"),
    *("-x", "PATH"),
    *("-mca", "pml", "ob1"),
    *("-mca", "btl", "^openib"),
)
NAME: Final = "mpirun"
OPEN_MPI_4: Final = "OMPI_MCA_orte_default_hostfile"
OPEN_MPI_5: Final = "PRTE_MCA_prte_default_hostfile"
HYDRA: Final = "HYDRA_HOST_FILE"


def rewrite(request: Request) -> Handover:
    """Write `mpirun ARGUMENTS COMMAND`, and the files that list the hosts unless a variable names one already."""
    hosts = hosts_of(request, NAME)
    variables: dict[str, str] = {}
    files: list[HostFile] = []
    if len(hosts) > 1 and not request.environ.get(OPEN_MPI_4) and not request.environ.get(OPEN_MPI_5):
        variables.update({OPEN_MPI_4: request.host_files.open_mpi, OPEN_MPI_5: request.host_files.open_mpi})
        files.append(HostFile(request.host_files.open_mpi, host_lines(request, " slots=")))
    if len(hosts) > 1 and not request.environ.get(HYDRA):
        variables[HYDRA] = request.host_files.mpich
        files.append(HostFile(request.host_files.mpich, host_lines(request, ":")))
        if task_training.is_platform_of(request.node) and not request.environ.get("HYDRA_IFACE"):
            variables["HYDRA_IFACE"] = task_training.HYDRA_INTERFACE

    if any("mpirun" in word for word in request.argv):
        return attrs.evolve(unchanged(request, "it calls mpirun itself"), variables=variables, files=tuple(files))
    processes = ("-np", str(request.node.nnodes * request.nproc))
    argv = ("mpirun", "--allow-run-as-root", *processes, *ARGUMENTS, *request.argv)
    return Handover(argv=argv, note="handed over to mpirun", variables=variables, files=tuple(files))


MPIRUN: Final = Engine(NAME, rewrite)

"""mpirun for Horovod, started on node 0, which reaches the other nodes by itself.

The arguments are Open MPI's, as the task-training guide gives them. By the same guide a command that contains mpirun,
be it inside of bash -c, stays as it is; it finds the hosts by the variables that Open MPI 4 and 5 and Hydra read.
"""

from __future__ import annotations

from ascend_runner.annotations import Final
from ascend_runner.platforms.find import TASK_TRAINING

from .handover import Handover, HostFile, Request, host_lines, hosts_of

ARGUMENTS: Final = (
    *("-bind-to", "none"),
    *("-map-by", "slot"),
    *("-x", "NCCL_DEBUG=INFO"),
    *("-x", "LD_LIBRARY_PATH"),
    *("-x", "PATH"),
    *("-mca", "pml", "ob1"),
    *("-mca", "btl", "^openib"),
)
OPEN_MPI_4: Final = "OMPI_MCA_orte_default_hostfile"
OPEN_MPI_5: Final = "PRTE_MCA_prte_default_hostfile"
HYDRA: Final = "HYDRA_HOST_FILE"


def mpirun(request: Request) -> Handover:
    """Write `mpirun ARGUMENTS COMMAND`, and the files that list the hosts where no variable names one yet."""
    hosts = hosts_of(request, "mpirun")
    variables: dict[str, str] = {}
    files: list[HostFile] = []
    if len(hosts) > 1 and not request.environ.get(OPEN_MPI_4) and not request.environ.get(OPEN_MPI_5):
        variables.update({OPEN_MPI_4: request.host_files.open_mpi, OPEN_MPI_5: request.host_files.open_mpi})
        files.append(HostFile(request.host_files.open_mpi, host_lines(request, " slots=")))
    if len(hosts) > 1 and not request.environ.get(HYDRA):
        variables[HYDRA] = request.host_files.mpich
        files.append(HostFile(request.host_files.mpich, host_lines(request, ":")))
        if request.node.platform == TASK_TRAINING and not request.environ.get("HYDRA_IFACE"):
            variables["HYDRA_IFACE"] = "eth0"

    if any("mpirun" in word for word in request.argv):
        note = "the command is left as it is: it calls mpirun itself"
        return Handover(request.argv, note, variables, tuple(files))
    processes = ("-np", str(request.node.nnodes * request.nproc))
    argv = ("mpirun", "--allow-run-as-root", *processes, *ARGUMENTS, *request.argv)
    return Handover(argv, "handed over to mpirun", variables, tuple(files))

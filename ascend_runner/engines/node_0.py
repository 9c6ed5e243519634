"""mpirun (for Horovod) and DeepSpeed's launcher: started on node 0, each starts the other nodes itself.

They read their hosts from files. By the task-training guide a command that contains mpirun, even inside bash -c, or
that calls deepspeed stays as it is; the arguments of mpirun are the guide's, for Open MPI.
"""

from __future__ import annotations

from typing import Final

import attrs

from ascend_runner.engines.command import DEEPSPEED_MODULE, calls, python_command, refuse_python_options
from ascend_runner.engines.handover import Handover, HostFiles, Request, unchanged, unchanged_program
from ascend_runner.errors import SettingsError
from ascend_runner.platforms import task_training

MPIRUN_ARGUMENTS: Final = (
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


def rewrite_for_mpirun(request: Request) -> Handover:
    """Write `mpirun ARGUMENTS COMMAND`, and the files that list the hosts unless a variable names one already."""
    hosts = _hosts(request, "mpirun")
    variables: dict[str, str] = {}
    files: dict[str, bytes] = {}
    if len(hosts) > 1 and not request.environ.get(OPEN_MPI_4) and not request.environ.get(OPEN_MPI_5):
        variables.update({OPEN_MPI_4: request.host_files.open_mpi, OPEN_MPI_5: request.host_files.open_mpi})
        files[request.host_files.open_mpi] = _host_lines(request, " slots=")
    if len(hosts) > 1 and not request.environ.get(HYDRA):
        variables[HYDRA] = request.host_files.mpich
        files[request.host_files.mpich] = _host_lines(request, ":")
        if task_training.is_platform_of(request.node) and not request.environ.get("HYDRA_IFACE"):
            variables["HYDRA_IFACE"] = task_training.HYDRA_INTERFACE

    if any("mpirun" in word for word in request.argv):
        return attrs.evolve(unchanged(request, "it calls mpirun itself"), variables=variables, files=files)
    processes = ("-np", str(request.node.nnodes * request.nproc))
    argv = ("mpirun", "--allow-run-as-root", *processes, *MPIRUN_ARGUMENTS, *request.argv)
    return Handover(argv=argv, note="handed over to mpirun", variables=variables, files=files)


def rewrite_for_deepspeed(request: Request) -> Handover:
    """Write `deepspeed [--hostfile=PATH] SCRIPT ...`, and the file that lists the hosts."""
    path = request.host_files.deepspeed
    is_several = len(_hosts(request, "deepspeed")) > 1
    files = {path: _host_lines(request, " slots=")} if is_several else {}
    hostfile = (f"--hostfile={path}",) if is_several and path != HostFiles().deepspeed else ()
    command = python_command(request.argv)
    if calls(request.argv, "deepspeed", DEEPSPEED_MODULE):
        own = len(request.argv) - len(command.arguments) if command else 1  # the words of the engine itself
        argv = (*request.argv[:own], *hostfile, *request.argv[own:])
        return attrs.evolve(unchanged(request, "it calls deepspeed itself"), argv=argv, files=files)
    if command is None:
        return unchanged_program(request)
    refuse_python_options(command, "DeepSpeed")
    engine = (command.interpreter, "-m", DEEPSPEED_MODULE) if "/" in command.interpreter else ("deepspeed",)
    # Without a list of hosts DeepSpeed would use all visible devices.
    here = () if is_several else (f"--num_gpus={request.nproc}",)
    module = ("--module",) if command.is_module else ()

    argv = (*engine, *hostfile, *here, *module, command.target, *command.arguments)
    return Handover(argv=argv, note="handed over to deepspeed", files=files)


def _hosts(request: Request, engine: str) -> tuple[str, ...]:
    """Return the hosts for an engine that reaches the other nodes itself.

    Raises:
        SettingsError: this is not node 0, or the hosts are unknown.
    """
    node = request.node
    if node.node_rank > 0:
        raise SettingsError(
            f"--launcher {engine} starts the other nodes itself: start ascend-runner on node 0 only (this is node"
            f" {node.node_rank})"
        )
    if node.nnodes > 1 and not node.hosts:
        raise SettingsError(
            f"--launcher {engine} requires the names of all {node.nnodes} hosts, but no variable lists them"
        )

    return node.hosts


def _host_lines(request: Request, separator: str) -> bytes:
    """Write the hosts, one per line: `host slots=4` or `host:4`."""
    return "".join(f"{host}{separator}{request.nproc}\n" for host in request.node.hosts).encode()

"""mpirun and horovodrun (for Horovod), and DeepSpeed's launcher: started on node 0, each starts the other nodes itself.

mpirun and DeepSpeed read their hosts from files, which a platform may have written. By the task-training guide a
command that contains mpirun, even inside bash -c, or that calls deepspeed stays as it is; the arguments of mpirun are
the guide's, for Open MPI. On the other nodes a process waits until node 0 has ended.
"""

from __future__ import annotations

import itertools
import os.path
from collections.abc import Mapping, Sequence
from typing import Final

import attrs

from ascend_runner.engines.command import (
    DEEPSPEED_MODULE,
    calls,
    engine_command,
    is_python,
    python_command,
    refuse_python_options,
)
from ascend_runner.engines.local import Handover, Request, unchanged, unchanged_program
from ascend_runner.errors import SettingsError
from ascend_runner.platforms import huawei, places
from ascend_runner.platforms.node import Node

ENGINES: Final = frozenset({"mpirun", "mpiexec", "horovodrun", "deepspeed"})
MPIRUN_ARGUMENTS: Final = (  # of Open MPI; MPICH passes all variables, and accepts none of these
    *("-bind-to", "none"),
    *("-map-by", "slot"),
    *("-x", "NCCL_DEBUG=INFO"),
    *("-x", "LD_LIBRARY_PATH"),
    *("-x", "PATH"),
    *("-mca", "pml", "ob1"),
    *("-mca", "btl", "^openib"),
)
OPEN_MPI: Final = ("OMPI_MCA_orte_default_hostfile", "PRTE_MCA_prte_default_hostfile")  # versions 4 and 5
HYDRA: Final = "HYDRA_HOST_FILE"
OPEN_MPI_FILE: Final = "/etc/mpi/hostfile"
MPICH_FILE: Final = "/etc/mpi/mpich_hostfile"
DEEPSPEED_FILE: Final = "/job/hostfile"
OWN_HOSTS: Final = ("-H", "-hostfile", "--host")  # how options that name hosts begin; horovodrun refuses two of them

ON_THIS_NODE: Final = frozenset({"localhost", "--no_ssh"})  # words of commands that start processes on their node only
WAITING: Final = "node 0 starts the processes of this node, which waits for node 0 to end"
PAUSE: Final = 5  # seconds
# The report changes when node 0 ends, and has a status from then on, which a verdict below it replaces. A report that
# has not changed since this node started may be from an earlier run.
WAIT: Final = """before=$(cat "$1" 2>/dev/null)
echo "waiting for an exit status in $1"
while sleep "$2"; do
  now=$(cat "$1" 2>/dev/null)
  status=$(printf '%s\\n' "$now" | sed -n 's/^ "\\(exit_verdict\\|status\\)": \\([0-9][0-9]*\\),$/\\2/p' | tail -n 1)
  if [ "$now" != "$before" ] && [ -n "$status" ]; then
    echo "node 0 has ended with exit status $status"
    exit "$status"
  fi
done"""


def host_files(engine: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the paths of the host files that a platform may have written; the engine's own come first."""
    mpi = (*(environ[name] for name in (*OPEN_MPI, HYDRA) if environ.get(name)), OPEN_MPI_FILE, MPICH_FILE)
    return (DEEPSPEED_FILE, *mpi) if engine == "deepspeed" else (*mpi, DEEPSPEED_FILE)


def must_wait(engine: str, argv: Sequence[str], node: Node) -> bool:
    """Whether a command that is an engine must not run on this node, because node 0 of a list of hosts starts it."""
    return node.node_rank > 0 and reaches_others(engine, argv, node)


def reaches_others(engine: str, argv: Sequence[str], node: Node) -> bool:
    """Whether an engine starts the processes of several nodes, by a command that is the engine or is handed to it."""
    words = {word.partition(":")[0] for word in engine_command(argv)}  # localhost:4
    return engine in ENGINES and len(node.hosts) > 1 and ON_THIS_NODE.isdisjoint(words)


def wait(report: str, *, pause: int = PAUSE) -> Handover:
    """Wait until the report of node 0 says that it has ended, and end with its exit status."""
    return Handover(
        argv=("/bin/sh", "-c", WAIT, "wait-for-node-0", report, str(pause)),
        note=WAITING,
        is_waiting=True,
    )


def with_hosts(engine: str, request: Request) -> Handover:
    """Leave a command that is an engine as it is, and let the engine know the hosts that it does not find by itself.

    The user's own hosts in the command come first. An engine that takes hosts only by an option gets none in the line
    of a shell.
    """
    node, handover = request.node, Handover(argv=request.argv, note="")
    source = node.sources.get("hosts", "the platform")
    if _finds(engine, source, request.environ) or not reaches_others(engine, request.argv, node):
        return handover
    if engine in {"mpirun", "mpiexec"}:
        variables, files = _hosts_of_mpi(request)
        return attrs.evolve(handover, variables=variables, files=files, note=_given(engine, source, files))

    words = engine_command(request.argv)
    if _names_hosts(words):
        return handover
    begin = len(request.argv) - len(words)
    lacks = f"{engine} does not get the hosts of {source}, because"
    if request.argv[begin:] != words:
        return attrs.evolve(handover, warning=f"{lacks} a shell starts it: run it without the shell")
    if not all(_slots(request)):
        why = "no variable gives the number of devices of each: use --hosts HOST:N,HOST:N"
        return attrs.evolve(handover, warning=f"{lacks} {why}")
    rewrite = rewrite_for_deepspeed if engine == "deepspeed" else _rewrite_for_horovodrun
    given = rewrite(attrs.evolve(request, argv=words))
    argv = (*request.argv[:begin], *given.argv)
    return attrs.evolve(given, argv=argv, note=_given(engine, source, given.files))


def _finds(engine: str, path: str, environ: Mapping[str, str]) -> bool:
    """Whether an engine reads a host file without an option. horovodrun reads none."""
    named = [DEEPSPEED_FILE] if engine == "deepspeed" else [*map(environ.get, (*OPEN_MPI, HYDRA))]
    return engine != "horovodrun" and path in named


def _given(engine: str, source: str, files: Mapping[str, bytes]) -> str:
    return f"{engine} gets the hosts of {source}{' in ' if files else ''}{', '.join(files)}"


def _names_hosts(command: Sequence[str]) -> bool:
    """Whether the options of DeepSpeed or horovodrun, which precede the script, name hosts."""
    options = itertools.takewhile(
        lambda word: not (is_python(word) or word.endswith(".py")), command[_own_words(command) :]
    )
    return any(word.startswith(OWN_HOSTS) for word in options)


def _rewrite_for_horovodrun(request: Request) -> Handover:
    """Write `horovodrun -H HOST:SLOTS,... ARGUMENTS`."""
    own = _own_words(request.argv)
    hosts = ",".join(f"{host}:{count}" for host, count in zip(request.node.hosts, _slots(request)))
    return Handover(argv=(*request.argv[:own], "-H", hosts, *request.argv[own:]), note="")


def _own_words(argv: Sequence[str]) -> int:
    """Count the words of an engine itself: its name, or Python and its module."""
    command = python_command(argv)
    return len(argv) - len(command.arguments) if command else 1


def _slots(request: Request) -> tuple[int, ...]:
    """Return the number of processes on each host, 0 if it is unknown."""
    return request.node.slots or (request.nproc,) * len(request.node.hosts)


def rewrite_for_mpirun(request: Request) -> Handover:
    """Write `mpirun ARGUMENTS COMMAND`, the variables that name the host files, and the files that are missing."""
    node = request.node
    _check_hosts(request, "mpirun")
    if node.node_rank > 0:
        return wait(request.report_of_node_0)
    variables, files = _hosts_of_mpi(request) if len(node.hosts) > 1 else ({}, {})
    if any("mpirun" in word for word in request.argv):
        return attrs.evolve(unchanged(request, "it calls mpirun itself"), variables=variables, files=files)
    processes = ("-np", str(sum(node.slots) or node.nnodes * request.nproc))
    is_mpich = request.environ.get(HYDRA) and not any(map(request.environ.get, OPEN_MPI))
    own = processes if is_mpich else ("--allow-run-as-root", *processes, *MPIRUN_ARGUMENTS)
    argv = ("mpirun", *own, *request.argv)
    return Handover(argv=argv, note="running the command with mpirun", variables=variables, files=files)


def _hosts_of_mpi(request: Request) -> tuple[dict[str, str], dict[str, bytes]]:
    """Return the variables with the paths of Open MPI's and MPICH's host files, and the files that are missing."""
    named = next(filter(None, map(request.environ.get, OPEN_MPI)), "")
    path, files = _host_file(request, named or OPEN_MPI_FILE, " slots=")
    variables = {name: path for name in OPEN_MPI if request.environ.get(name) != path}
    path, content = _host_file(request, request.environ.get(HYDRA) or MPICH_FILE, ":")
    variables.update({HYDRA: path} if request.environ.get(HYDRA) != path else {})
    if _is_documented(request) and not request.environ.get("HYDRA_IFACE"):
        variables["HYDRA_IFACE"] = huawei.HYDRA_INTERFACE
    return variables, {**files, **content}


def rewrite_for_deepspeed(request: Request) -> Handover:
    """Write `deepspeed [--hostfile=PATH] SCRIPT ...`, and the file that lists the hosts if there is none."""
    _check_hosts(request, "deepspeed")
    if request.node.node_rank > 0:
        return wait(request.report_of_node_0)
    is_several = len(request.node.hosts) > 1
    path, files = DEEPSPEED_FILE, dict[str, bytes]()
    if is_several:
        path, files = _host_file(request, DEEPSPEED_FILE, " slots=")
    hostfile = (f"--hostfile={path}",) if path != DEEPSPEED_FILE else ()
    command = python_command(request.argv)
    if calls(request.argv, "deepspeed", DEEPSPEED_MODULE):
        own = _own_words(request.argv)
        argv = (*request.argv[:own], *hostfile, *request.argv[own:])
        return attrs.evolve(unchanged(request, "it calls deepspeed itself"), argv=argv, files=files)
    if command is None:
        return unchanged_program(request)
    refuse_python_options(command, "DeepSpeed")
    engine = (command.interpreter, "-m", DEEPSPEED_MODULE) if "/" in command.interpreter else ("deepspeed",)
    # Without a list of hosts DeepSpeed would use all visible devices.
    here = () if is_several else (f"--num_gpus={request.nproc}",)
    port = (f"--master_port={request.node.master_port}",) if request.node.has_own_port else ()
    module = ("--module",) if command.is_module else ()

    argv = (*engine, *hostfile, *here, *port, *module, command.target, *command.arguments)
    return Handover(argv=argv, note="running the command with deepspeed", files=files)


def _check_hosts(request: Request, engine: str) -> None:
    if request.node.nnodes > 1 and not request.node.hosts:
        raise SettingsError(
            f"--launcher {engine} requires the names of all {request.node.nnodes} hosts, but neither a variable nor"
            " a host file lists them: set --hosts"
        )


def _host_file(request: Request, usual: str, separator: str) -> tuple[str, dict[str, bytes]]:
    """Return the path of a file of hosts, and its content by its path if it must be written.

    A file that exists is left alone. If it is missing, or if the options differ from the platform, another file is
    written below the log directory: in the usual place a later job would take it for the platform's.
    """
    node = request.node
    # Without a number mpirun starts a process per core of a host.
    lines = [
        f"{host}{separator}{count}\n" if count else f"{host}\n" for host, count in zip(node.hosts, _slots(request))
    ]
    content = "".join(lines).encode()
    by_option = (node.sources.get("hosts"), node.sources.get("devices_per_node"))
    is_contradicted = by_option[0] == places.OPTION or by_option[1] == "--nproc-per-node"
    if request.read_text(usual) and not is_contradicted:
        return usual, {}
    own = os.path.join(request.log_dir, os.path.basename(usual))
    return own, {own: content}


def _is_documented(request: Request) -> bool:
    """Whether the task-training platform has written the file of hosts, or its variables describe this node."""
    if request.environ.get(HYDRA, MPICH_FILE) != MPICH_FILE:
        return False
    return bool(request.read_text(MPICH_FILE)) or huawei.is_platform_of(request.node)

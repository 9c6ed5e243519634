"""The records of handing a command over to another engine: what is asked, what is run in its place."""

from __future__ import annotations

from ascend_runner.annotations import TYPE_CHECKING, Callable, NamedTuple
from ascend_runner.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ascend_runner.platforms.node import Node


def _unresolved(name: str) -> str:
    return name


class HostFiles(NamedTuple):
    """Where the engines look for the list of hosts."""

    open_mpi: str = "/etc/mpi/hostfile"
    mpich: str = "/etc/mpi/mpich_hostfile"
    deepspeed: str = "/job/hostfile"


class Request(NamedTuple):
    """A command to be run by another engine, which starts `nproc` processes on each node.

    `log_dir` is a folder for an engine that writes logs of its own. `resolve` makes an address of a host's name.
    """

    argv: tuple[str, ...]
    node: Node
    nproc: int
    environ: Mapping[str, str]
    log_dir: str
    host_files: HostFiles = HostFiles()
    resolve: Callable[[str], str] = _unresolved


class HostFile(NamedTuple):
    """A list of hosts that an engine reads: to be written before it starts, atomically."""

    path: str
    content: bytes


class Handover(NamedTuple):
    """What is run in a command's place, once on this node, and the sentence what was done to it."""

    argv: tuple[str, ...]
    note: str
    variables: Mapping[str, str] = {}
    files: tuple[HostFile, ...] = ()


def untouched(request: Request, reason: str) -> Handover:
    """Leave a command as it is."""
    return Handover(request.argv, f"the command is left as it is: {reason}")


def hosts_of(request: Request, engine: str) -> tuple[str, ...]:
    """Give the hosts that an engine is to reach by itself. Errors: SettingsError where it would be started twice."""
    node = request.node
    if node.node_rank > 0:
        raise SettingsError(
            f"--launcher {engine} reaches the other nodes by itself, expected ascend-runner on node 0 only: this is"
            f" node {node.node_rank}"
        )
    if node.nnodes > 1 and not node.hosts:
        raise SettingsError(f"--launcher {engine} needs the names of {node.nnodes} hosts, and no variable tells them")

    return node.hosts


def host_lines(request: Request, separator: str) -> bytes:
    """Write the hosts, one a line: `host slots=4` or `host:4`."""
    return "".join(f"{host}{separator}{request.nproc}\n" for host in request.node.hosts).encode()

"""The records of this room: what an engine is asked to run, and what is run instead of the command."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs

from ascend_runner.errors import SettingsError
from ascend_runner.platforms.node import Node


@attrs.frozen(kw_only=True)
class HostFiles:
    """Where the engines look for the list of hosts."""

    open_mpi: str = "/etc/mpi/hostfile"
    mpich: str = "/etc/mpi/mpich_hostfile"
    deepspeed: str = "/job/hostfile"


@attrs.frozen(kw_only=True)
class Request:
    """A command for an engine, which is to start `nproc` processes on each node.

    `log_dir` is the folder for logs of the engine's own. `resolve` turns a host name into an address.
    """

    argv: tuple[str, ...]
    node: Node
    nproc: int
    environ: Mapping[str, str]
    log_dir: str
    host_files: HostFiles = HostFiles()
    resolve: Callable[[str], str] = str


@attrs.frozen
class HostFile:
    """A list of hosts that an engine reads; it must be written before the engine starts."""

    path: str
    content: bytes


@attrs.frozen(kw_only=True)
class Handover:
    """What is run instead of the command, once on this node. `note` says what was changed."""

    argv: tuple[str, ...]
    note: str
    variables: Mapping[str, str] = {}
    files: tuple[HostFile, ...] = ()


@attrs.frozen(eq=False, repr=False)
class Engine:
    """An engine: its name, as `--launcher` takes it, and how it rewrites a command.

    `rewrite` raises SettingsError if the engine cannot run the command.
    """

    name: str
    rewrite: Callable[[Request], Handover]


def unchanged(request: Request, reason: str) -> Handover:
    """Leave a command as it is."""
    return Handover(argv=request.argv, note=f"the command is unchanged: {reason}")


def unchanged_program(request: Request) -> Handover:
    """Leave a command as it is because it does not run a Python script or module."""
    return unchanged(request, "it does not run a Python script or module")


def hosts_of(request: Request, engine: str) -> tuple[str, ...]:
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


def host_lines(request: Request, separator: str) -> bytes:
    """Write the hosts, one per line: `host slots=4` or `host:4`."""
    return "".join(f"{host}{separator}{request.nproc}\n" for host in request.node.hosts).encode()

"""The records of this room: what an engine is asked to run, and what is run instead of the command."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs

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


@attrs.frozen(kw_only=True)
class Handover:
    """What is run instead of the command, once on this node, after `files` (content by path) were written.

    `note` says what was changed.
    """

    argv: tuple[str, ...]
    note: str
    variables: Mapping[str, str] = {}
    files: Mapping[str, bytes] = {}


def unchanged(request: Request, reason: str) -> Handover:
    """Leave a command as it is."""
    return Handover(argv=request.argv, note=f"the command is unchanged: {reason}")


def unchanged_program(request: Request) -> Handover:
    """Leave a command as it is because it does not run a Python script or module."""
    return unchanged(request, "it does not run a Python script or module")

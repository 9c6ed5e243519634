"""The records of this package: a request to an engine, and the command line that replaces the user's."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs

from ascend_runner.platforms.node import Node


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Request:
    """A command for an engine, which is to start `nproc` processes on each node.

    `log_dir` is the directory for files of the engine's own, and `report_of_node_0` the file that says how node 0 has
    ended. The host files are those that the user wants to be written. `resolve` turns a host name into an address, and
    `read_text` reads a file ("": there is none).
    """

    argv: tuple[str, ...]
    node: Node
    nproc: int
    environ: Mapping[str, str]
    log_dir: str
    report_of_node_0: str
    read_text: Callable[[str], str]
    mpi_hostfile: str | None = None
    mpich_hostfile: str | None = None
    deepspeed_hostfile: str | None = None
    resolve: Callable[[str], str] = str


@attrs.frozen(kw_only=True)
class Handover:
    """The command that replaces the user's, run once on this node, after `files` (content by path) were written.

    `note` says what was changed. With `is_waiting`, it only waits for another node and produces no output.
    """

    argv: tuple[str, ...]
    note: str
    variables: Mapping[str, str] = {}
    files: Mapping[str, bytes] = {}
    is_waiting: bool = False


def unchanged(request: Request, reason: str) -> Handover:
    """Leave a command as it is."""
    return Handover(argv=request.argv, note=f"running the command unchanged: {reason}")


def unchanged_program(request: Request) -> Handover:
    """Leave a command as it is because it does not run a Python script or module."""
    return unchanged(request, "it does not run a Python script or module")

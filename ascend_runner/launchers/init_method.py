"""Scripts that start their own processes and are told where to meet: --init_method, --rank, --world_size.

Rank and world size count nodes here, and stand before the user's own arguments. Source: ModelArts' guide to PyTorch
boot commands.
"""

from __future__ import annotations

from .command import python_command
from .handover import Handover, Request, untouched


def init_method(request: Request) -> Handover:
    """Write `python SCRIPT --init_method tcp://HOST:PORT [--rank N --world_size N] ...`."""
    command = python_command(request.argv)
    if command is None:
        return untouched(request, f"it starts with {request.argv[0]!r}, not with python and a script")
    node = request.node
    if node.nnodes == 1 == request.nproc:
        return untouched(request, "one process meets nobody")

    # On one node the guide names the host as well, where there is a name.
    host = node.hosts[0] if node.nnodes == 1 and node.hosts else node.master_addr
    meeting = ["--init_method", f"tcp://{f'[{host}]' if ':' in host else host}:{node.master_port}"]
    if node.nnodes > 1:
        meeting += ["--rank", str(node.node_rank), "--world_size", str(node.nnodes)]
    target = command._replace(arguments=(*meeting, *command.arguments))

    return Handover(
        (command.interpreter, *command.options, *target.words), "the script is told where its processes meet"
    )

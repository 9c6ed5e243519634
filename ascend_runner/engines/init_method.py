"""Scripts that start their own processes and take the meeting point as arguments: --init_method, --rank, --world_size.

Rank and world size count nodes here, and precede the user's own arguments. Source: ModelArts' guide to PyTorch boot
commands.
"""

from __future__ import annotations

from typing import Final

import attrs

from ascend_runner.engines.command import python_command
from ascend_runner.engines.handover import Engine, Handover, Request, unchanged, unchanged_program


def rewrite(request: Request) -> Handover:
    """Write `python SCRIPT --init_method tcp://HOST:PORT [--rank N --world_size N] ...`."""
    command = python_command(request.argv)
    if command is None:
        return unchanged_program(request)
    node = request.node
    if node.nnodes == 1 == request.nproc:
        return unchanged(request, "a single process needs no rendezvous")

    # On one node the guide names the host as well, if it has a name.
    host = node.hosts[0] if node.nnodes == 1 and node.hosts else node.master_addr
    meeting = ["--init_method", f"tcp://{f'[{host}]' if ':' in host else host}:{node.master_port}"]
    if node.nnodes > 1:
        meeting += ["--rank", str(node.node_rank), "--world_size", str(node.nnodes)]
    given = {word.partition("=")[0].replace("-", "_") for word in command.arguments if word.startswith("--")}
    pairs = zip(meeting[::2], meeting[1::2])
    added = [word for option, value in pairs if option.replace("-", "_") not in given for word in (option, value)]
    if not added:
        return unchanged(request, "it has the meeting point among its arguments")
    target = attrs.evolve(command, arguments=(*added, *command.arguments))

    return Handover(
        argv=(command.interpreter, *command.options, *target.words),
        note="added the rendezvous address to the script's arguments",
    )


INIT_METHOD: Final = Engine("init-method", rewrite)

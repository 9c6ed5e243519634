"""MindSpore's msrun, once per node. Source: MindSpore's tutorial on msrun, and its process_entity.

It returns at once unless told to join, sees whether the scheduler is its own to start by an address of this node, and
takes `python` and `python3` only for the interpreter: any other word it would give to python as the script.
"""

from __future__ import annotations

import os.path

from ascend_runner.annotations import Final

from .command import calls, python_command
from .conda import PATH
from .handover import Handover, Request, untouched

MODULE: Final = "mindspore.parallel.cluster.run"  # what the program msrun is


def msrun(request: Request) -> Handover:
    """Write `msrun ARGUMENTS python SCRIPT ...`."""
    if calls(request.argv, "msrun", MODULE):
        return untouched(request, "it calls msrun itself")
    command = python_command(request.argv)
    if command is None:
        return untouched(request, f"it starts with {request.argv[0]!r}, not with python and a script")

    node = request.node
    folder, name = os.path.dirname(command.interpreter), os.path.basename(command.interpreter)
    arguments = (
        f"--worker_num={node.nnodes * request.nproc}",
        f"--local_worker_num={request.nproc}",
        f"--master_addr={request.resolve(node.master_addr)}",
        f"--master_port={node.master_port}",
        f"--node_rank={node.node_rank}",
        f"--log_dir={request.log_dir}",
        "--join=True",
    )
    engine = (command.interpreter, "-m", MODULE) if folder else ("msrun",)
    python = "python" if name == "python" else "python3"
    path = f"{folder}:{request.environ.get('PATH', PATH)}"

    return Handover(
        (*engine, *arguments, python, *command.options, *command.words),
        "handed over to msrun",
        {"PATH": path} if folder else {},
    )

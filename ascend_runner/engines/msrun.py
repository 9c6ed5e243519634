"""MindSpore's msrun, once per node. Source: MindSpore's tutorial on msrun, and its process_entity.

It returns at once without --join, starts the scheduler if --master_addr is an address of this node, and accepts only
`python` and `python3` as the interpreter: any other word it passes to python as the script.
"""

from __future__ import annotations

import os.path

from ascend_runner.engines.command import MSRUN_MODULE, calls, python_command
from ascend_runner.engines.conda import PATH
from ascend_runner.engines.handover import Handover, Request, unchanged, unchanged_program


def rewrite(request: Request) -> Handover:
    """Write `msrun ARGUMENTS python SCRIPT ...`."""
    if calls(request.argv, "msrun", MSRUN_MODULE):
        return unchanged(request, "it calls msrun itself")
    command = python_command(request.argv)
    if command is None:
        return unchanged_program(request)

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
    engine = (command.interpreter, "-m", MSRUN_MODULE) if folder else ("msrun",)
    python = "python" if name == "python" else "python3"
    path = f"{folder}:{request.environ.get('PATH', PATH)}"

    return Handover(
        argv=(*engine, *arguments, python, *command.options, *command.words),
        note="running the command with msrun",
        variables={"PATH": path} if folder else {},
    )

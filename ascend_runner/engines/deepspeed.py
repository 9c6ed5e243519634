"""DeepSpeed's launcher, started on node 0, which starts the other nodes itself.

It reads its hosts from /job/hostfile. A command that calls deepspeed stays as it is (the task-training guide); the
script or module of a Python command is handed over.
"""

from __future__ import annotations

from typing import Final

import attrs

from ascend_runner.engines.command import calls, python_command, refuse_python_options
from ascend_runner.engines.handover import (
    Engine,
    Handover,
    HostFile,
    HostFiles,
    Request,
    host_lines,
    hosts_of,
    unchanged,
    unchanged_program,
)

NAME: Final = "deepspeed"
MODULE: Final = "deepspeed.launcher.runner"  # what the program deepspeed runs


def rewrite(request: Request) -> Handover:
    """Write `deepspeed [--hostfile=PATH] SCRIPT ...`, and the file that lists the hosts."""
    path = request.host_files.deepspeed
    is_several = len(hosts_of(request, NAME)) > 1
    files = (HostFile(path, host_lines(request, " slots=")),) if is_several else ()
    hostfile = (f"--hostfile={path}",) if is_several and path != HostFiles().deepspeed else ()
    command = python_command(request.argv)
    if calls(request.argv, NAME, MODULE):
        own = len(request.argv) - len(command.arguments) if command else 1  # the words of the engine itself
        argv = (*request.argv[:own], *hostfile, *request.argv[own:])
        return attrs.evolve(unchanged(request, "it calls deepspeed itself"), argv=argv, files=files)
    if command is None:
        return unchanged_program(request)
    refuse_python_options(command, "DeepSpeed")
    engine = (command.interpreter, "-m", MODULE) if "/" in command.interpreter else (NAME,)
    # Without a list of hosts DeepSpeed would use all visible devices.
    here = () if is_several else (f"--num_gpus={request.nproc}",)
    module = ("--module",) if command.is_module else ()

    argv = (*engine, *hostfile, *here, *module, command.target, *command.arguments)
    return Handover(argv=argv, note="handed over to deepspeed", files=files)


DEEPSPEED: Final = Engine(NAME, rewrite)

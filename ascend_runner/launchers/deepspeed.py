"""DeepSpeed's launcher, started on node 0, which reaches the other nodes by itself.

It reads its hosts from /job/hostfile. A command that calls deepspeed stays as it is (the task-training guide); of a
plain Python command the script is handed over.
"""

from __future__ import annotations

from ascend_runner.annotations import Final
from ascend_runner.errors import SettingsError

from .command import calls, python_command
from .handover import Handover, HostFile, HostFiles, Request, host_lines, hosts_of, untouched

ENGINE: Final = "deepspeed"
MODULE: Final = "deepspeed.launcher.runner"  # what the program deepspeed is


def deepspeed(request: Request) -> Handover:
    """Write `deepspeed [--hostfile=PATH] SCRIPT ...`, and the file that lists the hosts."""
    path = request.host_files.deepspeed
    is_several = len(hosts_of(request, ENGINE)) > 1
    files = (HostFile(path, host_lines(request, " slots=")),) if is_several else ()
    hostfile = (f"--hostfile={path}",) if is_several and path != HostFiles().deepspeed else ()
    command = python_command(request.argv)
    if calls(request.argv, ENGINE, MODULE):
        note = "the command is left as it is: it calls deepspeed itself"
        own = len(request.argv) - len(command.arguments) if command else 1  # the words that are the engine itself
        return Handover((*request.argv[:own], *hostfile, *request.argv[own:]), note, files=files)
    if command is None:
        return untouched(request, f"it starts with {request.argv[0]!r}, not with python and a script")
    if {*command.options} - {"-u"}:
        raise SettingsError(
            f"the command has options for Python, {' '.join(command.options)}, expected none but -u: DeepSpeed starts"
            " the script with options of its own"
        )
    engine = (command.interpreter, "-m", MODULE) if "/" in command.interpreter else (ENGINE,)
    # Without a list of hosts DeepSpeed would take all the devices that it sees.
    here = () if is_several else (f"--num_gpus={request.nproc}",)
    module = ("--module",) if command.is_module else ()

    argv = (*engine, *hostfile, *here, *module, command.target, *command.arguments)
    return Handover(argv, "handed over to deepspeed", files=files)

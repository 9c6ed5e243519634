"""torchrun and the older torch.distributed.launch, with the arguments that the Octopus and task-training guides give.

A command that calls one of them itself, or that is no plain Python command, stays as it is. By the task-training guide
a command that merely contains torch.distributed.launch does, too; of torchrun it says nothing.
"""

from __future__ import annotations

from ascend_runner.annotations import Final
from ascend_runner.errors import SettingsError
from ascend_runner.platforms.find import TASK_TRAINING
from ascend_runner.platforms.node import LOCALHOST

from .command import PythonCommand, calls, python_command
from .handover import Handover, Request, untouched

LAUNCH: Final = "torch.distributed.launch"
MODULE: Final = "torch.distributed.run"  # what the program torchrun is


def torchrun(request: Request) -> Handover:
    """Write `torchrun ARGUMENTS SCRIPT ...`."""
    command = _plain(request)
    if isinstance(command, Handover):
        return command
    if _is_alone(request):
        return _alone(command)

    # A Python named by its path must run, not the one that a torchrun from PATH belongs to.
    engine = (command.interpreter, "-m", MODULE) if "/" in command.interpreter else ("torchrun",)
    return Handover((*engine, *_arguments(request), *command.words), "handed over to torchrun")


def launch(request: Request) -> Handover:
    """Write `python -m torch.distributed.launch ARGUMENTS SCRIPT ...`."""
    command = _plain(request)
    if isinstance(command, Handover):
        return command
    if _is_alone(request):
        return _alone(command)

    is_unbuffered = request.node.nnodes > 1 and request.node.platform != TASK_TRAINING
    engine = (command.interpreter, *(("-u",) if is_unbuffered else ()), "-m", LAUNCH)
    return Handover((*engine, *_arguments(request), *command.words), f"handed over to {LAUNCH}")


def _plain(request: Request) -> PythonCommand | Handover:
    """Give the Python command to be handed over, or the reason why it stays."""
    if any(LAUNCH in word for word in request.argv):
        return untouched(request, f"it calls {LAUNCH} itself")
    if calls(request.argv, "torchrun", MODULE):
        return untouched(request, "it calls torchrun itself")
    command = python_command(request.argv)
    if command is None:
        return untouched(request, f"it starts with {request.argv[0]!r}, not with python and a script")
    if {*command.options} - {"-u"}:
        raise SettingsError(
            f"the command has options for Python, {' '.join(command.options)}, expected none but -u: torch starts the"
            " script with options of its own"
        )

    return command


def _is_alone(request: Request) -> bool:
    return request.node.nnodes == 1 == request.nproc and request.node.platform != TASK_TRAINING


def _alone(command: PythonCommand) -> Handover:
    return Handover((command.interpreter, "-u", *command.words), "one process needs no engine")


def _arguments(request: Request) -> tuple[str, ...]:
    """Give the engine's arguments: on one node the number of processes, else also who is who and where node 0 is.

    The task-training platform always gives all of them, and calls node 0 localhost on node 0 itself.
    """
    node = request.node
    nproc = f"--nproc_per_node={request.nproc}"
    port = f"--master_port={node.master_port}"
    if node.platform != TASK_TRAINING and node.nnodes == 1:
        return (nproc, port) if node.sources.get("master_port") == "--master-port" else (nproc,)

    is_named_here = node.platform == TASK_TRAINING and (node.node_rank == 0 or node.master_addr == LOCALHOST)
    master_addr = "localhost" if is_named_here else node.master_addr
    return (nproc, f"--nnodes={node.nnodes}", f"--node_rank={node.node_rank}", f"--master_addr={master_addr}", port)

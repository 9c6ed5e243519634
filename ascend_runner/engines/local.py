"""The engines that start the ranks of one node each: torchrun and its kin, and MindSpore's msrun. Pure.

Without --join, msrun returns at once. It starts the scheduler if --master_addr is an address of this node, and accepts
only `python` and `python3` as the interpreter: any other word it passes to python as the script.

The arguments follow the Octopus and task-training guides, and ModelArts' guide to PyTorch boot commands.

A command that calls one of them itself, or that does not run a Python script or module, stays as it is. By the task-
training guide this applies to any command that contains torch.distributed.launch; it does not mention torchrun.
"""

from __future__ import annotations

import hashlib
import os.path
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import attrs

from ascend_runner.engines.command import (
    LAUNCH_MODULE,
    LLAMA_FACTORY,
    MSRUN_MODULE,
    PATH,
    TORCHRUN_MODULE,
    PythonCommand,
    calls,
    engine_in,
    is_python,
    options_of,
    python_command,
    refuse_python_options,
)
from ascend_runner.platforms import huawei
from ascend_runner.platforms.node import LOCALHOST, Node

# What Ray needs on NPUs, unless the user sets it. Every actor sees all NPUs of its node. vLLM-Ascend's Ray executor,
# ROLL and MindSpeed-RL choose one themselves, verl by `get_accelerator_ids()`; a rank that saw only its own NPU could
# not reach those of the others (run_vllm_multi_node.sh of ModelArts; roll/platforms/npu.py;
# configs/envs/runtime_env.yaml of MindSpeed-RL; ray/_private/accelerators/npu.py).
RAY_VARIABLES: Final[Mapping[str, str]] = {"RAY_EXPERIMENTAL_NOSET_ASCEND_RT_VISIBLE_DEVICES": "1"}
LONGEST: Final = (
    30  # bytes of the base directory: a path of a socket has at most 107 (unix(7)), and Ray needs most of them
)
RAY_NODE: Final = os.path.join(os.path.dirname(__file__), "ray_node.py")  # a script, which the runner does not import


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Request:
    """A command for an engine, which is to start `nproc` processes on each node.

    `log_dir` is the directory for files of the engine's own, and `report_of_node_0` the file that says how node 0 has
    ended. `resolve` turns a host name into an address, and `read_text` reads a file ("": there is none). `job` is the
    name of the job, the same on all nodes; so is `cluster`, which tells it from others of its name. `run` tells its
    runs apart, and `timeout` is the time for all nodes to join, in seconds.
    """

    argv: tuple[str, ...]
    node: Node
    nproc: int
    environ: Mapping[str, str]
    log_dir: str
    report_of_node_0: str
    read_text: Callable[[str], str]
    resolve: Callable[[str], str] = str
    job: str = ""
    cluster: str = ""
    run: str = ""
    timeout: float = 0.0


@attrs.frozen(kw_only=True)
class Handover:
    """The command that replaces the user's, run once on this node, after `files` (content by path) were written.

    `note` says what was changed, and `warning` what the engine lacks ("": nothing). With `is_waiting`, it only waits
    for another node and produces no output; with `is_silent`, it produces no output, but works. `scratch` is a
    directory that it uses and that is removed when the job has ended ("": none).
    """

    argv: tuple[str, ...]
    note: str
    warning: str = ""
    variables: Mapping[str, str] = {}
    files: Mapping[str, bytes] = {}
    is_waiting: bool = False
    is_silent: bool = False
    scratch: str = ""


def unchanged(request: Request, reason: str) -> Handover:
    """Leave a command as it is."""
    return Handover(argv=request.argv, note=f"running the command unchanged: {reason}")


def unchanged_program(request: Request) -> Handover:
    """Leave a command as it is because it does not run a Python script or module."""
    return unchanged(request, "it does not run a Python script or module")


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


def rewrite_for_ray(request: Request) -> Handover:
    """Write `python ray_node.py ARGUMENTS COMMAND`: a node of a Ray cluster, and on node 0 the command once."""
    if engine_in(request.argv) == "ray":
        return unchanged(request, "it calls ray itself")
    node = request.node
    identity = "\n".join((request.log_dir, str(node.node_rank), request.run))
    base = request.environ.get("TMPDIR", "")
    if not base.startswith("/") or not base.isascii() or len(base) > LONGEST:  # Ray accepts none of these
        base = "/tmp"  # noqa: S108
    scratch = os.path.join(base, f"ascend-ray-{hashlib.sha256(identity.encode()).hexdigest()[:8]}")
    own_logs = [f"node-{node.node_rank}"] if node.nnodes > 1 else []
    host = f"[{node.master_addr}]" if ":" in node.master_addr else node.master_addr
    arguments = (
        f"--job={request.job}",
        f"--cluster={request.cluster}",
        f"--address={host}:{node.master_port}",
        f"--scratch={scratch}",
        f"--logs={os.path.join(request.log_dir, *own_logs)}",
        f"--node={node.node_rank}",
        f"--nodes={node.nnodes}",
        f"--npus={request.nproc}",
        f"--timeout={request.timeout:g}",
    )
    return Handover(
        argv=(next(filter(is_python, request.argv), "python3"), "-u", RAY_NODE, *arguments, "--", *request.argv),
        note="joining node 0's Ray cluster" if node.node_rank else "running the command on a Ray cluster of its own",
        variables={name: value for name, value in RAY_VARIABLES.items() if name not in request.environ},
        is_silent=node.node_rank > 0,
        scratch=scratch,
    )


def give_place(request: Request) -> Handover:
    """Leave a command that starts torchrun itself as it is, with the variables for the arguments of its torchrun.

    Variables of the user's stay. Without them LLaMA-Factory starts a process per device (llamafactory/launcher.py), and
    ms-swift a single one (swift/cli/main.py).
    """
    node, nproc, environ = request.node, request.nproc, request.environ
    switch = {"FORCE_TORCHRUN": "1"} if engine_in(request.argv) == LLAMA_FACTORY else {}
    place = {"NNODES": str(node.nnodes), "NODE_RANK": str(node.node_rank), "MASTER_ADDR": node.master_addr}
    variables = {
        **(switch if node.nnodes * nproc > 1 else {}),
        **({"NPROC_PER_NODE": str(nproc)} if nproc > 1 else {}),
        **(place if node.nnodes > 1 else {}),
        **({"MASTER_PORT": str(node.master_port)} if node.nnodes > 1 or node.has_own_port else {}),
    }
    given = {name: value for name, value in variables.items() if not environ.get(name)}
    words = "".join(f" {name}={value}" for name, value in given.items())
    return Handover(
        argv=request.argv,
        variables=given,
        note=f"running the command once, because it starts torchrun itself{', with' if words else ''}{words}",
    )


def rewrite_for_torchrun(request: Request) -> Handover:
    """Write `torchrun ARGUMENTS SCRIPT ...`."""
    command = _to_hand_over(request)
    if isinstance(command, Handover):
        return command

    # A Python given by its path is used, not the one that the torchrun in PATH belongs to.
    engine = (command.interpreter, "-m", TORCHRUN_MODULE) if "/" in command.interpreter else ("torchrun",)
    return Handover(argv=(*engine, *_arguments(request), *command.words), note="running the command with torchrun")


def rewrite_for_launch(request: Request) -> Handover:
    """Write `python -m torch.distributed.launch ARGUMENTS SCRIPT ...`."""
    command = _to_hand_over(request)
    if isinstance(command, Handover):
        return command

    is_unbuffered = request.node.nnodes > 1 and not huawei.is_platform_of(request.node)
    engine = (command.interpreter, *(("-u",) if is_unbuffered else ()), "-m", LAUNCH_MODULE)
    return Handover(
        argv=(*engine, *_arguments(request), *command.words), note=f"running the command with {LAUNCH_MODULE}"
    )


def rewrite_for_init_method(request: Request) -> Handover:
    """Write `python SCRIPT --init_method tcp://HOST:PORT [--rank N --world_size N] ...`.

    Rank and world size count nodes here, and precede the user's own arguments.
    """
    command = python_command(request.argv)
    if command is None:
        return unchanged_program(request)
    node = request.node
    if node.nnodes == 1 == request.nproc:
        return unchanged(request, "a single process needs no rendezvous")

    given = options_of(command.arguments)
    added = [word for option in _meeting(node).items() if option[0].replace("_", "-") not in given for word in option]
    if not added:
        return unchanged(request, "its arguments already contain the rendezvous address")
    target = attrs.evolve(command, arguments=(*added, *command.arguments))

    return Handover(
        argv=(command.interpreter, *command.options, *target.words),
        note="adding the rendezvous address to the script's arguments",
    )


def starts_its_processes(argv: Sequence[str], node: Node) -> bool:
    """Whether a command is a boot command of ModelArts' guide to PyTorch, whose script runs once on each node.

    Its arguments have the rendezvous address, with any port, and on several nodes their number and this node's rank.
    """
    command = python_command(argv)
    if command is None or not node.hosts:
        return False
    given = options_of(command.arguments)
    return all(
        _without_port(given.get(option.replace("_", "-"), "")) == _without_port(value)
        for option, value in _meeting(node).items()
    )


def _meeting(node: Node) -> dict[str, str]:
    # On one node the guide names the host as well, if it has a name.
    host = node.hosts[0] if node.nnodes == 1 and node.hosts else node.master_addr
    address = {"--init_method": f"tcp://{f'[{host}]' if ':' in host else host}:{node.master_port}"}
    nodes = {"--rank": str(node.node_rank), "--world_size": str(node.nnodes)}
    return {**address, **nodes} if node.nnodes > 1 else address


def _without_port(value: str) -> str:
    return value.rpartition(":")[0] or value


def _to_hand_over(request: Request) -> PythonCommand | Handover:
    """Return the Python command to hand over, or the handover to no engine."""
    if any(LAUNCH_MODULE in word for word in request.argv):
        return unchanged(request, f"it calls {LAUNCH_MODULE} itself")
    if calls(request.argv, "torchrun", TORCHRUN_MODULE):
        return unchanged(request, "it calls torchrun itself")
    command = python_command(request.argv)
    if command is None:
        return unchanged_program(request)
    refuse_python_options(command, "torch")
    if request.node.nnodes == 1 == request.nproc and not huawei.is_platform_of(request.node):
        return Handover(
            argv=(command.interpreter, "-u", *command.words),
            note="running the command directly: a single process needs no launcher",
        )

    return command


def _arguments(request: Request) -> tuple[str, ...]:
    """Return the engine's arguments: on one node the number of processes, else also the nodes and the rendezvous.

    The task-training platform always passes all of them, and calls node 0 localhost on node 0 itself.
    """
    node = request.node
    nproc = f"--nproc_per_node={request.nproc}"
    port = f"--master_port={node.master_port}"
    if not huawei.is_platform_of(node) and node.nnodes == 1:
        return (nproc, port) if node.has_own_port else (nproc,)

    is_localhost = huawei.is_platform_of(node) and (node.node_rank == 0 or node.master_addr == LOCALHOST)
    master_addr = "localhost" if is_localhost else node.master_addr
    return (nproc, f"--nnodes={node.nnodes}", f"--node_rank={node.node_rank}", f"--master_addr={master_addr}", port)

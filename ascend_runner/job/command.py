"""Checks of the command and its options: whether it runs once, its conda environment, program and directories."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

import attrs

from ascend_runner import programs
from ascend_runner.engines import command, local, node_0
from ascend_runner.engines.command import engine_in, file_of, names_other_nodes
from ascend_runner.engines.registry import BY_VARIABLES, DIRECT
from ascend_runner.errors import CommandError, SettingsError
from ascend_runner.frameworks import env_patch
from ascend_runner.frameworks.registry import AUTO
from ascend_runner.node import bounded, disks, executables
from ascend_runner.plan import ranks
from ascend_runner.plan.ranks import PlanContext
from ascend_runner.plan.spec import JobSpec
from ascend_runner.platforms import detect, kubernetes, tf_config
from ascend_runner.platforms import places as platform_table
from ascend_runner.platforms.detect import SingleProcess
from ascend_runner.platforms.node import Node
from ascend_runner.platforms.registry import PLATFORMS
from ascend_runner.record.facts import role
from ascend_runner.settings import command_line
from ascend_runner.settings.model import Settings

# Variables with the number of devices of a node.
COUNTS: Final = tuple(dict.fromkeys(name for spec in PLATFORMS for name in spec.devices_per_node))
DISK_LIMIT: Final = 3.0  # seconds
NOT_YET: Final = "does not exist yet; the training has to create it"
RANKS_HERE: Final = "use --nproc-per-node N to start N ranks on this node"
WITHOUT_MPIRUN: Final = "use --nproc-per-node N to start N ranks without mpirun"
NO_RESTARTS: Final = (
    "--max-restarts requires a link between the nodes (--link auto), because ranks that are restarted on one node alone"
    " would wait forever for the others; or let the platform restart the whole job (Slurm: sbatch --requeue, Volcano:"
    " the policy RestartJob, MindCluster: fault-retry-times)"
)


def find_single(context: PlanContext) -> SingleProcess | None:
    """Return the reason why the command must run once, or None if this runner starts one process per device.

    Raises:
        SettingsError: The user has asked for n x n processes, or a variable is malformed.
    """
    settings, started = context.settings, None
    if not settings.overrides.is_complete:
        started = detect.find(context.environ, names_the_ranks=settings.names_the_ranks)
    if started or settings.launcher != DIRECT:
        return started
    return _engine(context.command, settings) or _script_per_node(context) or _without_devices(context)


def cluster(context: PlanContext) -> Mapping[str, str]:
    """Return the TF_CONFIG that lists of hosts give a command; empty for an engine, and if it is not TensorFlow's.

    In the directories of the task-training platform it is TensorFlow's unless the user names a framework or ranks.
    """
    settings = context.settings
    if settings.launcher != DIRECT or engine_in(context.command):
        return {}
    is_open = settings.framework == AUTO and not settings.names_the_ranks and not context.has_table
    return tf_config.of_hosts(
        context.environ,
        is_tensorflow=settings.framework == "tensorflow" and not context.has_table,
        has_layout=is_open and context.is_folder(platform_table.TASK_TRAINING_CODE),
    )


def own_launcher(context: PlanContext) -> tuple[str, str]:
    """Return the engine of a command without --launcher, and what has chosen it; ("direct", "") if there is none."""
    engine = engine_in(context.command)
    if engine in BY_VARIABLES:
        return engine, engine
    variable = _prepared_for_mpirun(context)
    return ("mpirun", f"{variable} is set ({WITHOUT_MPIRUN})") if variable else (DIRECT, "")


def _prepared_for_mpirun(context: PlanContext) -> str:
    """Return the variable that shows Horovod's mode of the task-training platform, "" in any other one.

    The platform puts mpirun before a command that lacks it. The user's own ranks, and a rank table, take precedence.
    """
    if context.settings.names_the_ranks or context.has_table:
        return ""
    named = {name: context.environ.get(name) for name in (*node_0.OPEN_MPI, node_0.HYDRA)}
    paths = {name: os.path.join(context.cwd, path) for name, path in named.items() if path}
    return next((name for name, path in paths.items() if context.read_text(path)), "")


def engine_of_all_nodes(context: PlanContext, node: Node | None) -> str:
    """Return the engine that starts the processes of all nodes of a job, "" if there is none."""
    launcher = context.settings.launcher
    engine = engine_in(context.command) if launcher == DIRECT else launcher
    return engine if node and node_0.reaches_others(engine, context.command, node) else ""


def refuse_own_logs(context: PlanContext) -> None:
    """Refuse to wait for the report of node 0 in a log directory that only this run has.

    Raises:
        SettingsError: The log directory is a new one for each run, hence for each node.
    """
    if context.newest_link:
        raise SettingsError(
            "this node waits for the report of node 0, which starts its processes, but each node has a log directory of"
            " its own: set --log-dir to a directory that all nodes share"
        )


def without_effect(context: PlanContext) -> Iterator[str]:
    """Yield a sentence about each option and placeholder that has no effect."""
    settings = context.settings
    yield from settings.without_effect()
    if not settings.stage and (placeholder := ranks.without_place(context.command)):
        yield placeholder
    if settings.bind and env_patch.binds_itself(context.environ):
        value = context.environ[env_patch.AFFINITY]
        yield f"--bind has no effect: {env_patch.AFFINITY} is {value!r}, with which torch_npu binds the ranks itself"


def refuse_restarts(settings: Settings, *, is_part: bool) -> None:
    """Refuse restarts if this node runs a part of the job.

    Raises:
        SettingsError: --max-restarts is set.
    """
    if is_part and settings.max_restarts:
        raise SettingsError(NO_RESTARTS)


def _engine(argv: tuple[str, ...], settings: Settings) -> SingleProcess | None:
    engine = engine_in(argv)
    if not engine or engine in BY_VARIABLES:
        return None
    if settings.rank_table is not None or (settings.nproc_per_node or 1) > 1:
        option = "--rank-table" if settings.rank_table is not None else f"--nproc-per-node {settings.nproc_per_node}"
        raise SettingsError(
            f"{engine} {role(engine)}, and {option} would start {engine} once per device: remove"
            f" {option} to run {engine} once, or remove {engine} and its options from the command"
        )

    why = f"{engine} {role(engine)}; running it once, unchanged"
    return SingleProcess(why=why, name=engine.replace(" ", "-"), hint="", is_part=names_other_nodes(argv))


def _script_per_node(context: PlanContext) -> SingleProcess | None:
    """Detect a boot command of ModelArts' guide to PyTorch, whose script would start all processes in each rank."""
    if context.settings.names_the_ranks or context.has_table:
        return None
    try:
        node = detect.find_node(context.environ, context.settings.overrides)
    except SettingsError:  # reported with the node's place
        return None
    if not local.starts_its_processes(context.command, node):
        return None
    return SingleProcess(
        why="--init_method names worker 0, so the script starts its processes itself; running it once, unchanged",
        hint=RANKS_HERE,
        is_part=False,
    )


def _without_devices(context: PlanContext) -> SingleProcess | None:
    """Detect that the platform gives this node no device, or a job or a task without a number of devices."""
    environ = context.environ
    if context.settings.names_the_ranks or platform_table.announced_table(environ, context.is_folder):
        return None
    none = next((name for name in COUNTS if environ.get(name) == "0"), "")
    if none:
        why = f"{none} is 0"
    elif any(map(environ.get, (*COUNTS, "MA_NUM_HOSTS"))):
        return None
    elif environ.get(tf_config.NAME):
        why = f"{tf_config.NAME} gives this node a task, and no variable gives its number of devices"
    elif kubernetes.is_single_volcano_job(environ) or kubernetes.is_single_pytorch_job(environ):
        job = "Volcano job" if kubernetes.is_single_volcano_job(environ) else "PyTorchJob"
        why = f"this is the only pod of a {job}, and no variable gives its number of devices"
    elif kubernetes.is_single_volcano_job(environ, has_layout=context.is_folder(platform_table.TASK_TRAINING_CODE)):
        why = f"{platform_table.TASK_TRAINING_CODE} exists, and no variable gives other nodes or a number of devices"
    else:
        return None
    return SingleProcess(
        why=f"{why}; running the command once, unchanged",
        hint=RANKS_HERE,
        is_part=False,
    )


def enter_conda(context: PlanContext) -> PlanContext:
    """Return the context with the variables of the conda environment that applies to a command.

    Raises:
        SettingsError: The environment that --conda-env or the image names does not exist.
    """
    environ, named = context.environ, context.settings.conda_env
    found = command.find(context.command[0], environ, named, is_folder=context.is_folder)
    if found is None:
        return context
    if not os.path.exists(found.python):  # another Python would run the command instead
        option, value = ("--conda-env", named) if named else (command.DEFAULT, environ[command.DEFAULT])
        raise SettingsError(f"conda environment not found: {value!r} ({option}): {found.python!r} does not exist")

    return attrs.evolve(context, environ={**environ, **found.variables})


def find_program(name: str, context: PlanContext) -> str:
    """Find the program of a command that is not a relative path.

    Raises:
        CommandError: The program is not found or not executable.
    """
    return _find_executable(name, context.cwd, context.environ.get("PATH", os.defpath))


def find_engine(name: str, context: PlanContext) -> str:
    """Find the program of an engine.

    Raises:
        CommandError: The program is not found or not executable.
    """
    try:
        return find_program(name, context)
    except CommandError as error:
        raise CommandError(
            f"{error}; it starts the ranks: install it, or select its environment with --conda-env",
            exit_status=error.exit_status,
        ) from error


def check_workdir(workdir: str) -> None:
    """Check the working directory that all processes share.

    Raises:
        SettingsError: It does not exist.
    """
    if not os.path.isdir(workdir):
        raise SettingsError(f"working directory not found: {workdir!r} (--workdir)")


def check_checkpoint_dir(path: str, note: Callable[[str], None]) -> None:
    """Check the value of --checkpoint-dir, "" without one.

    The training may create the directory, but it must be able to; `note` reports that it does not exist yet. If its
    disk does not respond, the search for checkpoints reports that.

    Raises:
        SettingsError: It is not a directory, and cannot become one.
    """
    found = bounded.on_disk(DISK_LIMIT, partial(_state_of_checkpoint_dir, path)) if path else ""
    if found == NOT_YET:
        note(f"--checkpoint-dir {path!r} {found}")
    elif found:
        raise SettingsError(f"--checkpoint-dir {path!r} {found}")


def _state_of_checkpoint_dir(path: str) -> str:
    """Return the end of a sentence on a directory that is unusable or does not exist yet, "" if it exists."""
    if os.path.isdir(path):
        return ""
    above = disks.nearest(path)
    if above == os.path.abspath(path):
        return "is not a directory"
    if above == os.sep:
        # A training that runs as root in a container would create it, and lose it with the container.
        return "does not exist, nor does any directory above it; create it first"
    if not os.path.isdir(above):
        return f"cannot be created: {above!r} is not a directory"
    return NOT_YET if os.access(above, os.W_OK | os.X_OK) else f"cannot be created: {above!r} is not writable"


def script_here(context: PlanContext) -> str:
    """Return the relative script that exists in the current directory where the default is another one, or ""."""
    if context.settings.workdir or not context.has_own_workdirs or not context.command:
        return ""
    word = relative_script(context.command)
    return word if word and os.path.isfile(os.path.join(context.cwd, word)) else ""


def check_script(job: JobSpec, here: str) -> None:
    """Check that a relative script which exists in the current directory exists where each process runs, too.

    Raises:
        SettingsError: It is missing in one of the working directories.
    """
    word = relative_script(job.processes[0].argv)
    if not word or not os.path.isfile(os.path.join(here, word)):
        return

    for process in job.processes:
        if not os.path.exists(os.path.join(process.cwd, word)):
            raise SettingsError(
                f"{word!r} is in {here}, but not in {process.cwd}, the working directory of {process.title}; use its"
                " full path or --workdir inherit"
            )


def check_program(job: JobSpec) -> None:
    """Check that a command which is a relative path exists in the working directory.

    Raises:
        CommandError: The program is not found or not executable.
    """
    first = job.processes[0]
    if executables.is_relative(first.executable):
        _find_executable(first.executable, first.cwd, "")


def _find_executable(name: str, cwd: str, search_path: str) -> str:
    try:
        return executables.find_executable(name, cwd=cwd, search_path=search_path)
    except CommandError as error:
        hint = command_line.suggestion_for_script(name) or programs.suggestion(name)
        raise CommandError(f"{error}{hint}", exit_status=error.exit_status) from error


def relative_script(argv: Sequence[str]) -> str:
    """Return the script or program that a command runs, if that is a relative path, or ""."""
    path = file_of(argv)
    return "" if os.path.isabs(path) else path

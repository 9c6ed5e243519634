"""Plans one process for this node: the command as it is, or another engine, which starts the ranks itself."""

from __future__ import annotations

import os.path

import attrs

from ascend_runner.engines import node_0
from ascend_runner.engines.handover import Handover, Request
from ascend_runner.engines.registry import DIRECT, ENGINES
from ascend_runner.errors import SettingsError
from ascend_runner.frameworks import conflicts, hccl
from ascend_runner.frameworks.env_patch import merge
from ascend_runner.plan.context import Command, PlanContext
from ascend_runner.plan.job import JobSpec
from ascend_runner.plan.ranks import launch_context, plan_job, plan_process, with_stdin
from ascend_runner.plan.this_node import NodeShare
from ascend_runner.platforms.already_started import SingleProcess
from ascend_runner.platforms.node import Node
from ascend_runner.settings.model import Settings
from ascend_runner.settings.options import WORKDIR_DEVICE, WORKDIR_INHERIT


def in_place(context: PlanContext) -> PlanContext:
    """Return the context of a job of one process, which runs in the current directory by default."""
    workdir = context.settings.workdir or WORKDIR_INHERIT
    return attrs.evolve(context, settings=attrs.evolve(context.settings, workdir=workdir))


def plan_single(command: Command, single: SingleProcess, context: PlanContext, node: Node | None) -> JobSpec:
    """Plan the command as one process in the environment as it is.

    This process is the whole part of the job on `node`; None: another launcher has started it beside others.
    """
    env = {**context.job_variable, "PYTHONUNBUFFERED": "1", **context.rank_environ}
    share = NodeShare(rank_ids=(), rank_size=single.rank_size, server_id=context.host_name, node=node or Node())
    if single.rank_id is None or single.local_rank is None:
        number = share.node.file_number
        name = single.name or (context.command_name if node else context.host_name)
        name = name if number is None else f"{name}-node-{number}"
        process = plan_process(command, env, context, name=name)
        if context.settings.stdin is not None:
            process = with_stdin(process)  # the only one there is
        job = plan_job(share, context, (), (process,))
    else:
        rank = plan_process(command, env, context, rank_id=single.rank_id, local_rank=single.local_rank)
        job = plan_job(share, context, (rank,))

    return attrs.evolve(job, is_passed_through=node is None)


def plan_waiting(single: SingleProcess, context: PlanContext, node: Node) -> JobSpec:
    """Plan a process that waits for node 0, instead of a command that starts everything from there."""
    argv = node_0.wait(_report_of_node_0(context)).argv
    return _waiting(plan_single(Command(argv[0], argv), single, context, node))


def _report_of_node_0(context: PlanContext) -> str:
    """Return the path of the report of node 0 if each node has one process (see `JobSpec.report_path`)."""
    return os.path.join(context.log_dir, f"{context.job_id}-report-node-0.json")


def _waiting(job: JobSpec) -> JobSpec:
    """Return the plan of a process that only waits for node 0, whose silence and failure have no meaning."""
    return attrs.evolve(job, hang_timeout=None, restarts=attrs.evolve(job.restarts, hold=0.0))


def hand_over(share: NodeShare, context: PlanContext) -> Handover:
    """Rewrite a command for the engine that --launcher names.

    Raises:
        SettingsError: The engine cannot run this command or this job.
    """
    settings = context.settings
    return ENGINES[settings.launcher](
        Request(
            argv=context.command,
            node=share.node,
            nproc=len(share.rank_ids),
            environ=context.environ,
            log_dir=os.path.join(context.log_dir, context.job_id, settings.launcher),
            report_of_node_0=_report_of_node_0(context),
            mpi_hostfile=settings.mpi_hostfile,
            mpich_hostfile=settings.mpich_hostfile,
            deepspeed_hostfile=settings.deepspeed_hostfile,
            resolve=context.resolve,
            read_text=context.read_text,
        ),
    )


def refuse_options_of_ranks(settings: Settings) -> None:
    """Refuse options that apply to single ranks if another engine starts the ranks.

    Raises:
        SettingsError: Such an option is set.
    """
    per_rank = {
        "--workdir device": settings.workdir == WORKDIR_DEVICE,
        "--isolate-devices": settings.isolate_devices,
        "--bind": bool(settings.bind),
        "--stdin": settings.stdin is not None,
    }
    given = [option for option, is_given in per_rank.items() if is_given]
    if given and settings.launcher != DIRECT:
        raise SettingsError(
            f"{' and '.join(given)} cannot be used with --launcher {settings.launcher}, which starts the ranks itself"
        )


def plan_handover(executable: str, engine: Handover, share: NodeShare, context: PlanContext) -> JobSpec:
    """Plan the one process of an engine; `executable` is the program that was found for it.

    It gets no rank table, because engines that start ranks also number them.

    Raises:
        SettingsError: The environment holds variables that must not be set together.
    """
    node, launcher = share.node, context.settings.launcher
    launched = launch_context(share, context)
    patch = merge([conflicts.resolve(launched), hccl.defaults(launched)], nproc=0)
    process = plan_process(
        Command(executable, engine.argv),
        {**patch.environment(context.rank_environ), **engine.variables, **context.job_variable},
        context,
        name=launcher if node.nnodes == 1 else f"{launcher}-node-{node.node_rank}",
    )
    job = plan_job(share, context, (), (process,))
    return attrs.evolve(
        _waiting(job) if engine.is_waiting else job,
        host_files={os.path.join(context.cwd, path): content for path, content in engine.files.items()},
        notes=patch.notes,
    )

"""Plans one process for this node: the command as it is, or another engine, which starts the ranks itself."""

from __future__ import annotations

import os.path

import attrs

from ascend_runner.engines import handover, registry
from ascend_runner.engines.handover import Handover
from ascend_runner.engines.registry import DIRECT
from ascend_runner.errors import SettingsError
from ascend_runner.frameworks import conflicts, hccl
from ascend_runner.frameworks.env_patch import merge
from ascend_runner.plan.builder import PlanBuilder, launch_context
from ascend_runner.plan.context import Command
from ascend_runner.plan.job import JobSpec
from ascend_runner.plan.this_node import NodeShare
from ascend_runner.platforms.already_started import SingleProcess
from ascend_runner.settings.model import Settings
from ascend_runner.settings.options import WORKDIR_DEVICE, WORKDIR_INHERIT


def in_place(settings: Settings) -> Settings:
    """Return the settings of a job of one process, which runs in the current folder by default."""
    return attrs.evolve(settings, workdir=settings.workdir or WORKDIR_INHERIT)


def plan_single(command: Command, single: SingleProcess, builder: PlanBuilder) -> JobSpec:
    """Plan the command as one process in the environment as it is: another launcher has prepared both."""
    context = builder.context
    env = {"JOB_ID": builder.job_id, "PYTHONUNBUFFERED": "1", **context.environ}
    share = NodeShare(rank_ids=(), rank_size=single.rank_size, server_id=context.host_name)
    if single.rank_id is None or single.local_rank is None:
        job = builder.job(share, (), (builder.auxiliary(command, env, name=single.name or context.host_name),))
    else:
        rank = builder.rank(command, env, rank_id=single.rank_id, local_rank=single.local_rank)
        job = builder.job(share, (rank,))

    return attrs.evolve(job, is_passed_through=True)


def hand_over(argv: tuple[str, ...], share: NodeShare, builder: PlanBuilder) -> Handover:
    """Rewrite a command for the engine that --launcher names.

    Raises:
        SettingsError: the engine cannot run this command or this job.
    """
    settings, context = builder.settings, builder.context
    defaults = handover.HostFiles()
    return registry.hand_over(
        settings.launcher,
        handover.Request(
            argv=argv,
            node=share.node,
            nproc=len(share.rank_ids),
            environ=context.environ,
            log_dir=os.path.join(builder.log_dir, builder.job_id, settings.launcher),
            host_files=handover.HostFiles(
                open_mpi=settings.mpi_hostfile or defaults.open_mpi,
                mpich=settings.mpich_hostfile or defaults.mpich,
                deepspeed=settings.deepspeed_hostfile or defaults.deepspeed,
            ),
            resolve=context.resolve,
        ),
    )


def refuse_options_of_ranks(settings: Settings) -> None:
    """Refuse options that apply to single ranks if another engine starts the ranks.

    Raises:
        SettingsError: such an option is set.
    """
    per_rank = {
        "--workdir device": settings.workdir == WORKDIR_DEVICE,
        "--isolate-devices": settings.isolate_devices,
        "--bind": bool(settings.bind),
    }
    given = [option for option, is_given in per_rank.items() if is_given]
    if given and settings.launcher != DIRECT:
        raise SettingsError(
            f"{' and '.join(given)} cannot be used with --launcher {settings.launcher}, which starts the ranks itself"
        )


def plan_handover(executable: str, engine: Handover, share: NodeShare, builder: PlanBuilder) -> JobSpec:
    """Plan the one process of an engine; `executable` is the program that was found for it.

    It gets no rank table, because engines that start ranks also number them.

    Raises:
        SettingsError: the environment holds variables that must not be set together.
    """
    settings, context, node = builder.settings, builder.context, share.node
    launched = launch_context(share, settings, context)
    patch = merge([conflicts.resolve(launched), hccl.defaults(launched)], nproc=0)
    environ = {name: value for name, value in context.environ.items() if name not in patch.unset}
    process = builder.auxiliary(
        Command(executable, engine.argv),
        {**environ, **patch.job, **engine.variables, "JOB_ID": builder.job_id},
        name=settings.launcher if node.nnodes == 1 else f"{settings.launcher}-node-{node.node_rank}",
    )
    return attrs.evolve(
        builder.job(share, (), (process,)),
        host_files=tuple(attrs.evolve(file, path=os.path.join(context.cwd, file.path)) for file in engine.files),
        notes=patch.notes,
        warnings=patch.warnings,
    )

"""Plans one process per device of this node, and the auxiliary process of a framework that needs one."""

from __future__ import annotations

import attrs

from ascend_runner.frameworks.registry import patch_environment
from ascend_runner.plan.builder import PlanBuilder, launch_context
from ascend_runner.plan.context import Command
from ascend_runner.plan.job import JobSpec, TableFile
from ascend_runner.plan.this_node import NodeShare


def plan_ranks(command: Command, share: NodeShare, builder: PlanBuilder, table: TableFile | None) -> JobSpec:
    """Plan this node's ranks; `table` is the rank table that they read, if any.

    Raises:
        SettingsError: the environment holds variables that must not be set together.
    """
    environ = builder.context.environ
    patch = patch_environment(launch_context(share, builder.settings, builder.context, table))
    own = {"JOB_ID": builder.job_id}

    ranks = tuple(
        builder.rank(
            command, {**patch.environment_of_rank(local_rank, environ), **own}, rank_id=rank_id, local_rank=local_rank
        )
        for local_rank, rank_id in enumerate(share.rank_ids)
    )
    auxiliary = tuple(
        builder.auxiliary(command, {**patch.environment_of_process(process, environ), **own}, name=process.name)
        for process in patch.processes
    )
    job = builder.job(share, ranks, auxiliary)
    return attrs.evolve(job, table=table, notes=patch.notes, warnings=patch.warnings)

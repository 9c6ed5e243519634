"""MindSpore's dynamic cluster: the ranks find each other through a scheduler, one more process without a device.

Sources: MindSpore's tutorial on dynamic clusters and its list of environment variables. With a rank table MindSpore
needs what HCCL needs, and nothing of this.
"""

from __future__ import annotations

from typing import Final

from ascend_runner.frameworks.context import LaunchContext
from ascend_runner.frameworks.env_patch import AuxiliaryProcess, EnvPatch

SCHEDULER: Final = "MS_SCHED"
WORKER: Final = "MS_WORKER"
# Variables of a rank, which the runner itself may have inherited; with them the scheduler would be one.
OF_A_RANK: Final = frozenset({"MS_NODE_ID", "RANK_ID", "RANK", "LOCAL_RANK", "DEVICE_ID", "ASCEND_DEVICE_ID"})


def cluster(context: LaunchContext) -> EnvPatch:
    """Make every rank a worker, and add the scheduler on its node.

    MS_SCHED_HOST must be an address. A numeric MS_NODE_ID becomes the rank.
    """
    job = {
        "MS_ROLE": WORKER,
        "MS_SCHED_HOST": context.resolve(context.node.master_addr),
        "MS_SCHED_PORT": str(context.node.master_port),
        "MS_WORKER_NUM": str(context.rank_size),
    }
    scheduler = AuxiliaryProcess(name="scheduler", variables={"MS_ROLE": SCHEDULER}, unset=OF_A_RANK)
    # MindCluster assigns a role to each of its pods, and its scheduler need not run on node 0.
    role = context.environ.get("MS_ROLE") or (SCHEDULER if context.node.node_rank == 0 else WORKER)

    return EnvPatch(
        job=job,
        ranks=tuple({"MS_NODE_ID": str(rank_id)} for rank_id in context.rank_ids),
        processes=(scheduler,) if role == SCHEDULER else (),
    )

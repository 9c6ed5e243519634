"""MindSpore's dynamic cluster: the ranks find each other at a scheduler, one more process that has no device.

Source: MindSpore's tutorial on dynamic clusters and its list of environment variables. With a rank table MindSpore
needs what HCCL needs, and nothing of this.
"""

from __future__ import annotations

from ascend_runner.annotations import TYPE_CHECKING, Final

from .situation import Changes, Process

if TYPE_CHECKING:
    from .situation import Situation

SCHEDULER: Final = "MS_SCHED"
WORKER: Final = "MS_WORKER"
# What would make a rank of the scheduler, if the runner itself was started with it.
WHO_IS_WHO: Final = frozenset({"MS_NODE_ID", "RANK_ID", "RANK", "LOCAL_RANK", "DEVICE_ID", "ASCEND_DEVICE_ID"})


def cluster(situation: Situation) -> Changes:
    """Make every rank a worker, and add the scheduler on the node where it belongs.

    MS_SCHED_HOST must be an address. A MS_NODE_ID that is a number becomes the rank.
    """
    job = {
        "MS_ROLE": WORKER,
        "MS_SCHED_HOST": situation.resolve(situation.node.master_addr),
        "MS_SCHED_PORT": str(situation.node.master_port),
        "MS_WORKER_NUM": str(situation.rank_size),
    }
    scheduler = Process("scheduler", {"MS_ROLE": SCHEDULER}, unset=WHO_IS_WHO)
    # MindCluster gives a role to each of its pods, and its scheduler need not be on the node that is number 0.
    role = situation.environ.get("MS_ROLE") or (SCHEDULER if situation.node.node_rank == 0 else WORKER)

    return Changes(
        job=job,
        ranks=tuple({"MS_NODE_ID": str(rank_id)} for rank_id in situation.rank_ids),
        processes=(scheduler,) if role == SCHEDULER else (),
    )

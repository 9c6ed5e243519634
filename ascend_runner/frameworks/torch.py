"""What torch's init_process_group reads by env://, and those who build on it.

RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT are torch's own; accelerate and transformers read these and
LOCAL_WORLD_SIZE. Lightning takes a process for one of several by GROUP_RANK beside them (its TorchElasticEnvironment,
which it asks before Slurm's), and scripts for ModelArts read NODE_RANK. TORCHELASTIC_* stay away (see `conflicts`).
"""

from __future__ import annotations

from ascend_runner.annotations import TYPE_CHECKING

from .situation import Changes

if TYPE_CHECKING:
    from .situation import Situation


def process_group(situation: Situation) -> Changes:
    """Say where rank 0 is met, and who is who."""
    node = situation.node
    return Changes(
        job={
            "MASTER_ADDR": node.master_addr,
            "MASTER_PORT": str(node.master_port),
            "WORLD_SIZE": str(situation.rank_size),
            "LOCAL_WORLD_SIZE": str(len(situation.rank_ids)),
            "NODE_RANK": str(node.node_rank),
            "GROUP_RANK": str(node.node_rank),
            "GROUP_WORLD_SIZE": str(node.nnodes),
        },
        ranks=tuple(
            {"RANK": str(rank_id), "LOCAL_RANK": str(local_rank)}
            for local_rank, rank_id in enumerate(situation.rank_ids)
        ),
    )

"""What torch's init_process_group reads with env://, and the libraries that build on it.

RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT are torch's own; accelerate and transformers read these and
LOCAL_WORLD_SIZE. Lightning detects a launched process by GROUP_RANK beside them (its TorchElasticEnvironment, which it
asks before Slurm's), and scripts for ModelArts read NODE_RANK. TORCHELASTIC_* must not be set (see `conflicts`).
"""

from __future__ import annotations

from ascend_runner.frameworks.context import LaunchContext
from ascend_runner.frameworks.env_patch import EnvPatch


def process_group(context: LaunchContext) -> EnvPatch:
    """Give the address of rank 0, and each rank its numbers."""
    node = context.node
    return EnvPatch(
        job={
            "MASTER_ADDR": node.master_addr,
            "MASTER_PORT": str(node.master_port),
            "WORLD_SIZE": str(context.rank_size),
            "LOCAL_WORLD_SIZE": str(context.nproc),
            "NODE_RANK": str(node.node_rank),
            "GROUP_RANK": str(node.node_rank),
            "GROUP_WORLD_SIZE": str(node.nnodes),
        },
        ranks=tuple(
            {"RANK": str(rank_id), "LOCAL_RANK": str(local_rank)} for local_rank, rank_id in enumerate(context.rank_ids)
        ),
    )

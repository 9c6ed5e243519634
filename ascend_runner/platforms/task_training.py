"""The task-training platform: WORLD_SIZE and RANK count nodes, SLOTS is the number of cards of each.

The variables alone could be torchrun's, where they count processes. SLOTS is what tells them apart.
Source: the platform's guide to run commands.
"""

from __future__ import annotations

from ascend_runner.annotations import Final

from .contract import Contract

PORT: Final = 2222  # what the platform itself gives to torch.distributed.launch

CONTRACT: Final = Contract(
    nnodes=("WORLD_SIZE",),
    node_rank=("RANK",),
    port=PORT,
    devices_per_node=("SLOTS",),
)

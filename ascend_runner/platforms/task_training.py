"""The task-training platform: WORLD_SIZE and RANK count nodes, SLOTS the devices of each.

WORLD_SIZE and RANK alone could be torchrun's, which count processes; SLOTS tells them apart.
Source: the platform's guide to run commands.
"""

from __future__ import annotations

from typing import Final

from ascend_runner.platforms.node import Node
from ascend_runner.platforms.spec import PlatformSpec

PORT: Final = 2222  # what the platform itself passes to torch.distributed.launch
HYDRA_INTERFACE: Final = "eth0"  # the network that its pods share

TASK_TRAINING: Final = PlatformSpec(
    name="task-training platform",
    detected_by=("SLOTS", "WORLD_SIZE", "RANK"),
    nnodes=("WORLD_SIZE",),
    node_rank=("RANK",),
    port=PORT,
    devices_per_node=("SLOTS",),
)


def is_platform_of(node: Node) -> bool:
    """Whether a node belongs to this platform, whose guide writes the commands of engines in its own way."""
    return node.platform == TASK_TRAINING.name

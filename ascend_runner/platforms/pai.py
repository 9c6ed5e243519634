"""Alibaba Cloud PAI DLC: WORLD_SIZE and RANK count nodes, NPROC_PER_NODE the cards of each.

Source: its page on built-in environment variables.
"""

from __future__ import annotations

from typing import Final

from ascend_runner.platforms.spec import PlatformSpec

PAI: Final = PlatformSpec(
    name="PAI DLC",
    detected_by=("NPROC_PER_NODE", "MASTER_ADDR", "WORLD_SIZE", "RANK"),
    nnodes=("WORLD_SIZE",),
    node_rank=("RANK",),
    devices_per_node=("NPROC_PER_NODE",),
)

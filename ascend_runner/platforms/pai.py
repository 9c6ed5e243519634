"""Alibaba Cloud PAI DLC: WORLD_SIZE and RANK count nodes, NPROC_PER_NODE is the number of cards of each.

Source: its page on built-in environment variables.
"""

from __future__ import annotations

from ascend_runner.annotations import Final

from .contract import Contract

CONTRACT: Final = Contract(
    nnodes=("WORLD_SIZE",),
    node_rank=("RANK",),
    devices_per_node=("NPROC_PER_NODE",),
)

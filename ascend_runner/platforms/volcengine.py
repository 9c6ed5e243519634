"""Volcengine's machine learning platform. Source: its page on environment variables."""

from __future__ import annotations

from typing import Final

from ascend_runner.platforms.spec import PlatformSpec, counts_other_nodes

VOLCENGINE: Final = PlatformSpec(
    name="Volcengine",
    detected_by=("MLP_WORKER_NUM", "MLP_ROLE_INDEX"),
    nnodes=("MLP_WORKER_NUM",),
    node_rank=("MLP_ROLE_INDEX",),
    hosts=("MLP_WORKER_ALL_HOSTS",),
    master_addr=("MLP_WORKER_0_HOST",),
    master_port=("MLP_WORKER_0_PORT",),
    devices_per_node=("MLP_WORKER_GPU",),
    ambiguity=counts_other_nodes("MLP_WORKER_NUM"),
)

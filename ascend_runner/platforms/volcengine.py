"""Volcengine's machine learning platform. Source: its page on environment variables."""

from __future__ import annotations

from ascend_runner.annotations import Final

from .contract import Contract

CONTRACT: Final = Contract(
    nnodes=("MLP_WORKER_NUM",),
    node_rank=("MLP_ROLE_INDEX",),
    hosts=("MLP_WORKER_ALL_HOSTS",),
    master_addr=("MLP_WORKER_0_HOST",),
    master_port=("MLP_WORKER_0_PORT",),
    devices_per_node=("MLP_WORKER_GPU",),
)

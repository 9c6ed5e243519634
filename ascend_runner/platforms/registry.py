"""The platforms, in the order in which they are tried: the first one detected is used.

Launchers of this process precede platforms of its container, and a platform with its own variables precedes one whose
variables it shares: ModelArts, Octopus and the task-training platform run on Volcano. Platforms that need no code are
defined here; each other platform has its own module.
"""

from __future__ import annotations

from typing import Final

from ascend_runner.platforms import huawei, kubernetes, schedulers, tf_config
from ascend_runner.platforms.spec import PlatformSpec, counts_other_nodes

# Source: Alibaba Cloud's page on the built-in environment variables of PAI DLC. WORLD_SIZE and RANK count nodes.
PAI: Final = PlatformSpec(
    name="PAI DLC",
    detected_by=("NPROC_PER_NODE", "MASTER_ADDR", "WORLD_SIZE", "RANK"),
    nnodes=("WORLD_SIZE",),
    node_rank=("RANK",),
    devices_per_node=("NPROC_PER_NODE",),
)
# Source: the page on environment variables of Volcengine's machine learning platform.
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

PLATFORMS: Final[tuple[PlatformSpec, ...]] = (
    schedulers.OPEN_MPI,
    schedulers.HYDRA,
    schedulers.SLURM,
    huawei.ACCELERATED,
    huawei.V2,
    huawei.V1,
    huawei.OCTOPUS,
    huawei.OCTOPUS_BY_DATASETS,
    huawei.MINDSPORE,
    huawei.TENSORFLOW,
    huawei.PYTORCH,
    huawei.PYTORCH_BY_ADDRESS,
    huawei.PYTORCH_BY_LIST,
    huawei.TASK_TRAINING,
    PAI,
    VOLCENGINE,
    kubernetes.TRAINER,
    tf_config.TF_CONFIG,
    kubernetes.PYTORCH,
    kubernetes.HOSTS,
    kubernetes.HOSTS_BY_OLD_INDEX,
    kubernetes.PYTORCH_JOB,
)

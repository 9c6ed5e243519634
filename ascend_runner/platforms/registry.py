"""The platforms, in the order in which they are tried: the first that is detected counts.

What started this very process comes before what started its container, and a platform with variables of its own before
one that shares them: ModelArts, Octopus and the task-training platform run on Volcano.
"""

from __future__ import annotations

from typing import Final

from ascend_runner.platforms import (
    kubeflow,
    mindcluster,
    modelarts,
    mpi,
    octopus,
    pai,
    slurm,
    task_training,
    tf_config,
    volcano,
    volcengine,
)
from ascend_runner.platforms.spec import PlatformSpec

PLATFORMS: Final[tuple[PlatformSpec, ...]] = (
    mpi.OPEN_MPI,
    mpi.HYDRA,
    slurm.SLURM,
    modelarts.ACCELERATED,
    modelarts.V2,
    modelarts.V1,
    octopus.BY_INDEX,
    octopus.BY_DATASETS,
    mindcluster.MINDSPORE,
    mindcluster.TENSORFLOW,
    mindcluster.PYTORCH,
    mindcluster.PYTORCH_BY_ADDRESS,
    mindcluster.PYTORCH_BY_LIST,
    task_training.TASK_TRAINING,
    pai.PAI,
    volcengine.VOLCENGINE,
    kubeflow.TRAINER,
    tf_config.TF_CONFIG,
    volcano.PYTORCH,
    volcano.HOSTS,
    volcano.HOSTS_BY_OLD_INDEX,
    kubeflow.PYTORCH_JOB,
)

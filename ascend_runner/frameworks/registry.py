"""The frameworks, and what the ranks of each find in their environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import attrs

from ascend_runner.frameworks import conflicts, hccl, mindspore, tensorflow, torch
from ascend_runner.frameworks.context import LaunchContext
from ascend_runner.frameworks.env_patch import EnvPatch, merge

Part = Callable[[LaunchContext], EnvPatch]

AUTO: Final = "auto"
NONE: Final = "none"

# The parts of each framework's environment; of two parts that set one variable the later one wins. `auto` gives
# MindSpore and TensorFlow their rank table, and torch its variables: none of them minds the others'.
FRAMEWORKS: Final[Mapping[str, tuple[Part, ...]]] = {
    AUTO: (hccl.ranks, hccl.table, torch.process_group, hccl.defaults),
    "mindspore": (hccl.ranks, hccl.table, hccl.defaults),
    "mindspore-cluster": (hccl.ranks, mindspore.cluster, hccl.defaults),
    "torch": (hccl.ranks, hccl.table, torch.process_group, hccl.defaults),
    "tensorflow": (tensorflow.cluster, hccl.defaults),
    NONE: (hccl.ranks, hccl.table),
}
NAMES: Final = tuple(FRAMEWORKS)

# `auto` stands for these frameworks if there is no rank table and the platform has set all of these variables.
PREPARED: Final = (
    ("tensorflow", ("CM_CHIEF_IP", "CM_WORKER_SIZE")),
    ("mindspore-cluster", ("MS_SCHED_HOST", "MS_WORKER_NUM")),
)


def patch_environment(context: LaunchContext) -> EnvPatch:
    """Decide the variables of every rank, and the processes beside them.

    Raises:
        SettingsError: variables or options contradict each other, or an address is missing.
    """
    context, notes = without_auto(context)
    patches = [conflicts.resolve(context), EnvPatch(notes=notes)]
    patches += [part(context) for part in FRAMEWORKS[context.framework]]

    return merge(patches, context.nproc)


def without_auto(context: LaunchContext) -> tuple[LaunchContext, tuple[str, ...]]:
    """Replace `auto` by the framework that the platform has prepared, if any, and say so."""
    if context.framework != AUTO or context.table_path:
        return context, ()
    for framework, names in PREPARED:
        if all(map(context.environ.get, names)):
            note = f"--framework auto selects {framework}, because {' and '.join(names)} are set"
            return attrs.evolve(context, framework=framework), (note,)

    return context, ()

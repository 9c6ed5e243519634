"""Decides what the ranks find in their environment: which framework is meant, and what it gets."""

from __future__ import annotations

from ascend_runner.annotations import TYPE_CHECKING, Final
from ascend_runner.lazy import load

from .situation import Changes, Situation, together

if TYPE_CHECKING:
    from collections.abc import Mapping

AUTO: Final = "auto"
NONE: Final = "none"

# What each framework gets, as functions of this room's files; of two that set one variable the later counts. `auto`
# serves MindSpore and TensorFlow by their rank table and torch by its variables: none of them minds the others'.
FRAMEWORKS: Final[Mapping[str, tuple[str, ...]]] = {
    #                     who is who      the table         how they meet              what helps
    AUTO: ("hccl.ranks", "hccl.table", "torch.process_group", "hccl.defaults"),
    "mindspore": ("hccl.ranks", "hccl.table", "hccl.defaults"),
    "mindspore-cluster": ("hccl.ranks", "mindspore.cluster", "hccl.defaults"),
    "torch": ("hccl.ranks", "hccl.table", "torch.process_group", "hccl.defaults"),
    "tensorflow": ("tensorflow.cluster", "hccl.defaults"),
    NONE: ("hccl.ranks", "hccl.table"),
}

# What `auto` means where a platform has prepared one framework's own way, and there is no rank table to go by.
PREPARED: Final = (
    ("tensorflow", ("CM_CHIEF_IP", "CM_WORKER_SIZE")),
    ("mindspore-cluster", ("MS_SCHED_HOST", "MS_WORKER_NUM")),
)

# How the variables begin that can be in conflict with `auto`.
SUBJECTS: Final = ("RANK", "WORLD_SIZE", "TORCHELASTIC_", "CM_", "MS_", "MINDSPORE_HCCL_", "HCCL_", "ASCEND_RT_")


def decide(framework: str, situation: Situation) -> Changes:
    """Decide the variables of every rank, and the processes beside them.

    Errors: SettingsError, one sentence, for what must not be set together.
    """
    meant, note = _meant(framework, situation)
    parts = [_settled(meant, situation), Changes(notes=note)]
    parts += [load(__package__, place)(situation) for place in FRAMEWORKS[meant]]

    return together(parts, len(situation.rank_ids))


def _meant(framework: str, situation: Situation) -> tuple[str, tuple[str, ...]]:
    if framework != AUTO or situation.table_path:
        return framework, ()
    for prepared, names in PREPARED:
        if all(map(situation.environ.get, names)):
            return prepared, (f"--framework auto is {prepared} here, since {' and '.join(names)} are set",)

    return framework, ()


def _settled(framework: str, situation: Situation) -> Changes:
    if framework == AUTO and not situation.isolate_devices and not any(map(_is_subject, situation.environ)):
        return Changes()
    from . import conflicts  # a table of rows, none of which holds otherwise: the time to start

    return conflicts.settle(framework, situation)


def _is_subject(name: str) -> bool:
    return name.startswith(SUBJECTS)

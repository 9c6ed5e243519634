"""Sees that somebody else has already started one process per card, or that this process is to have no card at all.

Starting a process per card once more would make n x n. The command is then run once, in the environment as it is, as
one supervised rank.
"""

from __future__ import annotations

from ascend_runner.annotations import TYPE_CHECKING, Callable, Final, NamedTuple
from ascend_runner.errors import SettingsError

from .variables import is_whole_number

if TYPE_CHECKING:
    from collections.abc import Mapping

ENGINES: Final = frozenset({"torchrun", "msrun"})  # what MA_RUN_METHOD takes; anything else is the platform's default


class Single(NamedTuple):
    """The command is to be run once, as it is: who decided that and by which variables, and the rank.

    None: it is no rank of the job's. `rank_size` is 0 where it is not known.
    """

    why: str
    rank_id: int | None = None
    local_rank: int | None = None
    rank_size: int = 0


# What counts where the user has said which ranks there are.
USER: Final = "the user"  # an earlier launcher may have left these variables
NEITHER: Final = "neither"  # it holds for this very process: each of several on this node would start them all
VARIABLES: Final = "the variables"  # one command serves all pods, and the ranks are those of the others


class _Witness(NamedTuple):
    """One way to see it: what it means, where the rank, the local rank and the size stand then, when it holds.

    Where a name is empty there is none. `stronger` is who counts where the user says otherwise.
    """

    meaning: str
    rank_id: str
    local_rank: str
    rank_size: str
    is_seen: Callable[[Mapping[str, str]], bool]
    stronger: str = USER


def _is_several(text: str) -> bool:
    return is_whole_number(text) and int(text) > 1


def _has_one_local_rank(environ: Mapping[str, str]) -> bool:
    """Whether LOCAL_RANK is one process's, not the list of an acjob, which has one entry where a node has one card."""
    if not is_whole_number(environ.get("LOCAL_RANK", "")) or not environ.get("RANK") or not environ.get("WORLD_SIZE"):
        return False
    is_acjob = environ.get("MINDX_TASK_ID") or environ.get("MINDX_SERVER_IP")
    return not is_acjob or environ.get("LOCAL_WORLD_SIZE") != "1"


def _has_several_tasks(environ: Mapping[str, str]) -> bool:
    tasks, nodes = environ.get("SLURM_STEP_NUM_TASKS", ""), environ.get("SLURM_STEP_NUM_NODES", "")
    return is_whole_number(tasks) and is_whole_number(nodes) and int(tasks) > int(nodes)


def _is_without_rank(environ: Mapping[str, str]) -> bool:
    if not environ.get("TF_CONFIG"):
        return False
    from . import tf_config  # only here: most jobs have no TF_CONFIG

    return not tf_config.is_trainer(environ)


WITNESSES: Final = (
    _Witness(
        "RANK_ID and ASCEND_DEVICE_ID are set: the platform's own engine starts one process per card",
        "RANK_ID",
        "ASCEND_DEVICE_ID",
        "RANK_SIZE",
        # RANK_SIZE=1 is what images for one card carry; starting that one card anew is the same.
        lambda environ: all(map(environ.get, ("RANK_ID", "ASCEND_DEVICE_ID"))) and environ.get("RANK_SIZE") != "1",
    ),
    _Witness(
        "LOCAL_RANK is a single number beside RANK and WORLD_SIZE: torchrun or its like starts one process per card",
        "RANK",
        "LOCAL_RANK",
        "WORLD_SIZE",
        _has_one_local_rank,
    ),
    _Witness(
        "OMPI_COMM_WORLD_LOCAL_SIZE is more than 1: mpirun starts several processes on each node",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_SIZE",
        lambda environ: _is_several(environ.get("OMPI_COMM_WORLD_LOCAL_SIZE", "")),
        NEITHER,
    ),
    _Witness(
        "MPI_LOCALNRANKS is more than 1: mpirun starts several processes on each node",
        "PMI_RANK",
        "MPI_LOCALRANKID",
        "PMI_SIZE",
        lambda environ: _is_several(environ.get("MPI_LOCALNRANKS", "")),
        NEITHER,
    ),
    _Witness(
        "SLURM_STEP_NUM_TASKS is more than SLURM_STEP_NUM_NODES: srun starts several processes on each node",
        "SLURM_PROCID",
        "SLURM_LOCALID",
        "SLURM_STEP_NUM_TASKS",
        _has_several_tasks,
        NEITHER,
    ),
    _Witness(
        "MA_RUN_METHOD is set: the platform's own engine starts one process per card",
        "RANK",
        "LOCAL_RANK",
        "WORLD_SIZE",
        lambda environ: environ.get("MA_RUN_METHOD", "").lower() in ENGINES,
    ),
    _Witness(
        "MS_ROLE is MS_SCHED and NPU_POD is not true: this pod is the job's scheduler and has no card",
        "",
        "",
        "",
        lambda environ: environ.get("MS_ROLE") == "MS_SCHED" and environ.get("NPU_POD", "").lower() != "true",
        VARIABLES,
    ),
    _Witness(
        "TF_CONFIG gives this node a role that does not train: it has no rank and no card",
        "",
        "",
        "",
        _is_without_rank,
        VARIABLES,
    ),
)


def find(environ: Mapping[str, str], *, names_the_ranks: bool = False) -> Single | None:
    """See whether the command is to be run once, as it is; None: one process per card is this runner's to start.

    `names_the_ranks`: the user has said which ranks there are. Errors: SettingsError where that would make n x n.
    """
    seen = (witness for witness in WITNESSES if not (names_the_ranks and witness.stronger == USER))
    witness = next((witness for witness in seen if witness.is_seen(environ)), None)
    if witness is None:
        return None
    if names_the_ranks and witness.stronger == NEITHER:
        raise SettingsError(
            f"{witness.meaning}, and each would start all the ranks that --nproc-per-node or --rank-table asks for:"
            " expected one process per node (srun --ntasks-per-node=1, mpirun -N 1), or --nnodes 1 for a job of its own"
        )

    why = f"{witness.meaning}, so the command is run once, as it is"
    if not witness.rank_id:
        return Single(why)
    names = (witness.rank_id, witness.local_rank, witness.rank_size)
    rank_id, local_rank, rank_size = (_number(environ.get(name, "")) for name in names)
    return Single(why, rank_id, local_rank, rank_size)


def _number(text: str) -> int:
    return int(text) if is_whole_number(text) else 0

"""Detects that another launcher has already started one process per device, or that this process has no device to use.

Starting one process per device from each of them would give n x n processes. The command then runs once, in the
unchanged environment, as one supervised rank.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Final

import attrs

from ascend_runner.errors import SettingsError
from ascend_runner.platforms import tf_config
from ascend_runner.platforms.variables import number_of
from ascend_runner.text import is_whole_number

ENGINES: Final = frozenset({"torchrun", "msrun"})  # values of MA_RUN_METHOD; any other is the platform's default


@attrs.frozen(kw_only=True)
class SingleProcess:
    """A command that must run once, unchanged.

    `why` is the reason. `rank_id` and `local_rank` are None if it is not a rank of the job, `rank_size` is 0 if it is
    unknown. `name` is the name in logs of a process that is not a rank ("": that of the host or the command), and
    `hint` is how to start ranks after all, if that is possible. With `is_part`, the job may have other processes on
    this node, or on nodes that no variable names.
    """

    why: str
    name: str = ""
    hint: str = "use --nnodes 1 to start one process per device of this node anyway"
    rank_id: int | None = None
    local_rank: int | None = None
    rank_size: int = 0
    is_part: bool = True


class Precedence(enum.Enum):
    """Which setting takes precedence if the user has set the ranks of this node."""

    USER = "user"  # the variables may be left over from an earlier launcher
    NEITHER = "neither"  # they are this process's own: each process on this node would start all ranks
    VARIABLES = "variables"  # all pods run one command, and the ranks are those of the other pods


@attrs.frozen(kw_only=True, eq=False, repr=False)
class _Sign:
    """A sign of another launcher: its condition and meaning, and the variables of rank, local rank and size, if any."""

    meaning: str
    is_seen: Callable[[Mapping[str, str]], bool]
    variables: tuple[str, str, str] | None = None
    precedence: Precedence = Precedence.USER


def find(environ: Mapping[str, str], *, names_the_ranks: bool = False) -> SingleProcess | None:
    """Return why the command must run once, or None if this runner starts one process per device.

    `names_the_ranks`: the user has set the ranks of this node.

    Raises:
        SettingsError: Both together would be n x n processes, or TF_CONFIG is malformed.
    """
    candidates = (sign for sign in SIGNS if not (names_the_ranks and sign.precedence is Precedence.USER))
    sign = next((sign for sign in candidates if sign.is_seen(environ)), None)
    if sign is None:
        return None
    if names_the_ranks and sign.precedence is Precedence.NEITHER:
        raise SettingsError(
            f"{sign.meaning}, and each would start all ranks of --nproc-per-node or --rank-table: start one process per"
            " node (srun --ntasks-per-node=1, mpirun -N 1), or set --nnodes 1 to make each one a separate job"
        )

    why = f"{sign.meaning}: running the command once, unchanged"
    if sign.variables is None:
        return SingleProcess(why=why)
    rank_id, local_rank, rank_size = (number_of(environ, name) for name in sign.variables)
    return SingleProcess(why=why, rank_id=rank_id, local_rank=local_rank, rank_size=rank_size)


def _has_device(environ: Mapping[str, str]) -> bool:
    """Whether RANK_ID and ASCEND_DEVICE_ID are set, unless RANK_SIZE is 1, as in images for one device."""
    return all(map(environ.get, ("RANK_ID", "ASCEND_DEVICE_ID"))) and environ.get("RANK_SIZE") != "1"


def _has_one_local_rank(environ: Mapping[str, str]) -> bool:
    """Whether LOCAL_RANK is one process's, not MindCluster's list, which is one number on a node with one device."""
    if not is_whole_number(environ.get("LOCAL_RANK", "")) or not environ.get("RANK") or not environ.get("WORLD_SIZE"):
        return False
    is_mindcluster = environ.get("MINDX_TASK_ID") or environ.get("MINDX_SERVER_IP")
    return not is_mindcluster or environ.get("LOCAL_WORLD_SIZE") != "1"


def _has_several_tasks(environ: Mapping[str, str]) -> bool:
    tasks, nodes = environ.get("SLURM_STEP_NUM_TASKS", ""), environ.get("SLURM_STEP_NUM_NODES", "")
    return is_whole_number(tasks) and is_whole_number(nodes) and int(tasks) > int(nodes)


def _is_scheduler(environ: Mapping[str, str]) -> bool:
    return environ.get("MS_ROLE") == "MS_SCHED" and environ.get("NPU_POD", "").lower() != "true"


def _does_not_train(environ: Mapping[str, str]) -> bool:
    return bool(environ.get(tf_config.NAME)) and not tf_config.is_trainer(environ)


SIGNS: Final = (
    _Sign(
        meaning="RANK_ID and ASCEND_DEVICE_ID are set, so the platform's engine starts one process per device",
        is_seen=_has_device,
        variables=("RANK_ID", "ASCEND_DEVICE_ID", "RANK_SIZE"),
    ),
    _Sign(
        meaning="LOCAL_RANK, RANK and WORLD_SIZE are set, so torchrun or similar starts one process per device",
        is_seen=_has_one_local_rank,
        variables=("RANK", "LOCAL_RANK", "WORLD_SIZE"),
    ),
    _Sign(
        meaning="OMPI_COMM_WORLD_LOCAL_SIZE is more than 1, so mpirun starts several processes on each node",
        is_seen=lambda environ: number_of(environ, "OMPI_COMM_WORLD_LOCAL_SIZE") > 1,
        variables=("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE"),
        precedence=Precedence.NEITHER,
    ),
    _Sign(
        meaning="MPI_LOCALNRANKS is more than 1, so mpirun starts several processes on each node",
        is_seen=lambda environ: number_of(environ, "MPI_LOCALNRANKS") > 1,
        variables=("PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE"),
        precedence=Precedence.NEITHER,
    ),
    _Sign(
        meaning="SLURM_STEP_NUM_TASKS exceeds SLURM_STEP_NUM_NODES, so srun starts several processes on each node",
        is_seen=_has_several_tasks,
        variables=("SLURM_PROCID", "SLURM_LOCALID", "SLURM_STEP_NUM_TASKS"),
        precedence=Precedence.NEITHER,
    ),
    _Sign(
        meaning="MA_RUN_METHOD is set, so the platform's engine starts one process per device",
        is_seen=lambda environ: environ.get("MA_RUN_METHOD", "").lower() in ENGINES,
        variables=("RANK", "LOCAL_RANK", "WORLD_SIZE"),
    ),
    _Sign(
        meaning="MS_ROLE is MS_SCHED and NPU_POD is not true, so this pod is the job's scheduler and has no NPU",
        is_seen=_is_scheduler,
        precedence=Precedence.VARIABLES,
    ),
    _Sign(
        meaning="TF_CONFIG gives this node a role that does not train, so it has no rank and no NPU",
        is_seen=_does_not_train,
        precedence=Precedence.VARIABLES,
    ),
)

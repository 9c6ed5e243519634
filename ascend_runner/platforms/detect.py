"""Finds this node's place in its job by the user's options, else by the platform's variables, else by the rank table.

Where something else has already started one process per device, the command runs once in each, in the unchanged
environment, as one supervised rank: to start one per device again would give n x n processes.

WORLD_SIZE has three meanings (processes for torchrun, nodes for four platforms, devices for MindCluster) and RANK two,
so they are used only together with another variable. If they hint at other nodes and no platform is detected, the node
is ambiguous, and a job without a rank table is refused: otherwise each node would assume that it is the only one.
"""

from __future__ import annotations

import enum
import shlex
from collections.abc import Callable, Mapping
from typing import Final

import attrs

from ascend_runner.errors import SettingsError
from ascend_runner.platforms import tf_config
from ascend_runner.platforms.node import (
    ALONE,
    LOCALHOST,
    MASTER_PORT,
    NOTHING,
    Node,
    Overrides,
    Variables,
    check_port,
    number_of,
)
from ascend_runner.platforms.registry import PLATFORMS
from ascend_runner.text import counted, is_whole_number

ENGINES: Final = frozenset({"torchrun", "msrun"})  # values of MA_RUN_METHOD; any other is the platform's default


@attrs.frozen(kw_only=True)
class SingleProcess:
    """A command that must run once, unchanged.

    `why` is the reason. `rank_id` and `local_rank` are None if it is not a rank of the job, `rank_size` is 0 if it is
    unknown. `name` is the name in logs of a process that is not a rank ("": the host or the command), and
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
    VARIABLES = "variables"  # all pods run one command, and the ranks are in the other pods


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


# Variables that name the job, each with a function that derives the name. In reverse order of PLATFORMS: the platform
# of the container precedes the launcher inside it.
JOB_IDS: Final = {name: make for spec in reversed(PLATFORMS) for name, make in spec.job_ids.items()}
# Variables that hold the name of this node's pod.
POD_NAMES: Final = tuple(dict.fromkeys(name for spec in PLATFORMS for name in spec.pod_names))
KUBERNETES: Final = "KUBERNETES_SERVICE_HOST"  # set by Kubernetes in every container


def find_node(environ: Mapping[str, str], overrides: Overrides = NOTHING) -> Node:
    """Find this node's place; without overrides and without a platform it is the only node.

    Raises:
        SettingsError: An option or variable cannot be used; the sentence names it.
    """
    if overrides.is_complete:
        variables = Variables(environ, overrides)
        port = variables.master_port((), default=MASTER_PORT)
        node = Node(platform="settings", master_port=port, sources=variables.sources)
    else:
        node = _detect(environ, overrides)
    node = _locate_node_0(_checked_hosts(_with_overrides(node, overrides)))
    _check(node, environ)

    return node


def job_id(environ: Mapping[str, str]) -> str:
    """Return the platform's name of the job, unchecked; empty if it has none."""
    name = job_id_variable(environ)
    return JOB_IDS[name](environ[name]) if name else ""


def job_id_variable(environ: Mapping[str, str]) -> str:
    """Return the variable that names the job; empty if there is none."""
    return next(filter(environ.get, JOB_IDS), "")


def log_dirs(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the platform's log directories: the first that exists is used, else the last."""
    return tuple(dict.fromkeys(folder for spec in PLATFORMS for folder in spec.log_dirs(environ)))


def way_in(environ: Mapping[str, str], pod_name: str, host_name: str, namespace: str) -> str:
    """Return the command that opens a shell where the runner runs, or "" if it is unknown.

    `namespace` is the pod's, "" outside Kubernetes.
    """
    command = next(filter(None, (spec.way_in(environ, pod_name, host_name) for spec in PLATFORMS)), "")
    if command or not environ.get(KUBERNETES):
        return command
    of = f"--namespace {shlex.quote(namespace)} " if namespace else ""
    return f"kubectl exec -it {of}{shlex.quote(pod_name or host_name)} -- bash"


def _detect(environ: Mapping[str, str], overrides: Overrides) -> Node:
    spec = next((spec for spec in PLATFORMS if spec.is_detected(environ)), None)
    if spec:
        return spec.read(environ, overrides)

    variables = Variables(environ, overrides)
    ambiguities = (spec.ambiguity(environ) for spec in PLATFORMS)
    return Node(
        master_addr=variables.master_addr(()),
        master_port=variables.master_port((), default=MASTER_PORT),
        sources=variables.sources,
        ambiguity=next(filter(None, ambiguities), "") or _world_size_ambiguity(environ),
    )


def _world_size_ambiguity(environ: Mapping[str, str]) -> str:
    size = number_of(environ, "WORLD_SIZE")
    if not environ.get("RANK") or size <= 1:
        return ""

    return (
        f"cannot tell whether WORLD_SIZE ({size}) and RANK ({environ['RANK']}) count nodes or processes: set --nnodes"
        f" and --node-rank ({ALONE})"
    )


def _with_overrides(node: Node, overrides: Overrides) -> Node:
    """Replace the platform's facts by the user's, one by one."""
    node = attrs.evolve(node, **overrides.facts, sources={**node.sources, **overrides.sources})
    if overrides.nnodes is None:
        return node

    is_numbered_by_table = overrides.min_nodes is not None  # --min-nodes requires a rank table
    if overrides.nnodes > 1 and "node_rank" not in node.sources and not is_numbered_by_table:
        raise SettingsError(
            f"--nnodes {overrides.nnodes} requires --node-rank: no platform variable gives this node's rank"
        )
    hosts = node.hosts if len(node.hosts) == overrides.nnodes else ()
    node_rank = node.node_rank if overrides.nnodes > 1 or overrides.node_rank else 0
    return attrs.evolve(node, node_rank=node_rank, hosts=hosts, ambiguity="")


def _checked_hosts(node: Node) -> Node:
    """Mark a node as ambiguous if its rank is unknown, or if its list of hosts does not fit."""
    if node.nnodes > 1 and "node_rank" not in node.sources:
        ambiguity = (
            f"cannot tell this node's rank among {node.nnodes} nodes ({node.sources['nnodes']}): set --node-rank"
            f" ({ALONE})"
        )
        node = attrs.evolve(node, ambiguity=ambiguity)
    if node.hosts and len(node.hosts) != node.nnodes:
        hosts = counted(len(node.hosts), "host")
        ambiguity = (
            f"{node.sources['hosts']} lists {hosts}, but the number of nodes is {_count(node)}: set --hosts ({ALONE})"
        )
        node = attrs.evolve(node, hosts=(), ambiguity=ambiguity)
    return node


def _locate_node_0(node: Node) -> Node:
    """Fill in the address of node 0 if no variable gives it: this node, or the first host."""
    if node.master_addr:
        return node

    return attrs.evolve(node, master_addr=LOCALHOST if node.nnodes == 1 else next(iter(node.hosts), ""))


def _check(node: Node, environ: Mapping[str, str]) -> None:
    check_port(node.master_port, node.sources.get("master_port", "the default port"), environ)
    if node.node_rank >= node.nnodes:
        raise SettingsError(
            f"{node.sources['node_rank']} is {node.node_rank}, but node ranks range from 0 to {node.nnodes - 1}:"
            f" the number of nodes is {_count(node)}"
        )
    if node.min_nodes is not None and "nnodes" in node.sources and node.min_nodes > node.nnodes:
        raise SettingsError(f"--min-nodes is {node.min_nodes}, but the number of nodes is {_count(node)}")
    for host in node.hosts:
        if not (host.isascii() and host.isprintable()) or " " in host:  # it would become a line of a host file
            name = node.sources.get("hosts", "the list of hosts")
            raise SettingsError(f"invalid host name {host!r} in {name}")


def _count(node: Node) -> str:
    return f"{node.nnodes} ({node.sources.get('nnodes', 'set it with --nnodes')})"

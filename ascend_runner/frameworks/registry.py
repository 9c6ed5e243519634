"""The frameworks, and the environment of the ranks for each. Pure.

CM_* and RANK_TABLE_FILE, RANK_ID, RANK_SIZE exclude each other (HCCL's user guide). TF_CONFIG is never added: an
Estimator that finds it expects a cluster of servers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Final

import attrs

from ascend_runner.errors import SettingsError
from ascend_runner.frameworks import conflicts, env_patch
from ascend_runner.frameworks.env_patch import EnvPatch, LaunchContext, merge
from ascend_runner.platforms import tf_config
from ascend_runner.platforms.node import MACHINE_ADDRESSES, POD_ADDRESSES
from ascend_runner.platforms.tf_config import Cluster

OWN_ADDRESSES: Final = (*POD_ADDRESSES, *MACHINE_ADDRESSES)


def cluster(context: LaunchContext) -> EnvPatch:
    """Return the variables with the rank table or the chief's address.

    Raises:
        SettingsError: This node's address is unknown, or TF_CONFIG cannot describe its ranks.
    """
    if context.table_path:
        patches = [env_patch.ranks(context), env_patch.table(context)]
    elif context.rank_size == 1:
        patches = [env_patch.ranks(context)]
    else:
        patches = [env_patch.devices(context), _chief(context)]
    if context.environ.get(tf_config.NAME):
        patches.append(EnvPatch(ranks=_tf_configs(context)))

    return merge(patches, context.nproc)


def _chief(context: LaunchContext) -> EnvPatch:
    node = context.node
    return EnvPatch(
        job={
            "CM_CHIEF_IP": context.resolve(node.master_addr),
            "CM_CHIEF_PORT": str(node.master_port),
            "CM_CHIEF_DEVICE": context.environ.get("CM_CHIEF_DEVICE") or "0",
            "CM_WORKER_SIZE": str(context.rank_size),
            "CM_WORKER_IP": _own_address(context),
        },
    )


def _own_address(context: LaunchContext) -> str:
    node = context.node
    if context.environ.get("CM_WORKER_IP"):
        return context.environ["CM_WORKER_IP"]
    if node.node_rank == 0 or node.hosts:
        return context.resolve(node.hosts[node.node_rank] if node.hosts else node.master_addr)
    name = next(filter(context.environ.get, OWN_ADDRESSES), "")
    if not name:
        raise SettingsError(
            "cannot find this node's address, which TensorFlow requires without a rank table: set CM_WORKER_IP"
        )

    return context.environ[name]


def _tf_configs(context: LaunchContext) -> tuple[dict[str, str], ...]:
    """Write TF_CONFIG for each rank: a task of its own, with a number as its index.

    The first rank of a node takes the port that the platform chose, the others take the ports after it.
    """
    cluster = tf_config.decode(context.environ[tf_config.NAME])
    nproc = context.nproc
    if nproc > 1 and cluster.role != "worker":
        raise SettingsError(
            f"TF_CONFIG makes this node the {cluster.role}, but it has {nproc} ranks, and a job has one {cluster.role}:"
            " start one rank on this node"
        )
    tasks = {
        role: [_shifted(task, shift) for task in addresses for shift in range(nproc if role == "worker" else 1)]
        for role, addresses in cluster.tasks.items()
    }
    addresses = [task for role in tasks for task in tasks[role]]
    if len({*addresses}) < len(addresses):
        raise SettingsError(
            f"TF_CONFIG has too few ports for {nproc} ranks per node: each worker needs {nproc} consecutive ports that"
            " no other task uses"
        )

    first = cluster.task_index * nproc
    return tuple({tf_config.NAME: _encode(cluster, tasks, first + local_rank)} for local_rank in range(nproc))


def _shifted(task: str, shift: int) -> str:
    host, colon, port = task.rpartition(":")
    return f"{host}{colon}{int(port) + shift}" if shift and port.isdigit() else task


def _encode(cluster: Cluster, tasks: dict[str, list[str]], index: int) -> str:
    return json.dumps({"cluster": tasks, "task": {"type": cluster.role, "index": index}, **cluster.rest})


Part = Callable[[LaunchContext], EnvPatch]

AUTO: Final = "auto"
NONE: Final = "none"

SCHEDULER: Final = "MS_SCHED"
WORKER: Final = "MS_WORKER"
# Variables that identify a rank. The runner may have inherited them; the scheduler must not.
OF_A_RANK: Final = frozenset({"MS_NODE_ID", "RANK_ID", "RANK", "LOCAL_RANK", "DEVICE_ID", "ASCEND_DEVICE_ID"})


def _torch_process_group(context: LaunchContext) -> EnvPatch:
    """Return the variables that torch's init_process_group reads with env://, and the libraries that build on it.

    RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT are torch's own; accelerate and transformers read these
    and LOCAL_WORLD_SIZE. Lightning detects a launched process by GROUP_RANK beside them (its TorchElasticEnvironment,
    which it asks before Slurm's), and scripts for ModelArts read NODE_RANK. TORCHELASTIC_* must not be set (see
    `conflicts`).
    """
    node = context.node
    return EnvPatch(
        job={
            "MASTER_ADDR": node.master_addr,
            "MASTER_PORT": str(node.master_port),
            "WORLD_SIZE": str(context.rank_size),
            "LOCAL_WORLD_SIZE": str(context.nproc),
            "NODE_RANK": str(node.node_rank),
            "GROUP_RANK": str(node.node_rank),
            "GROUP_WORLD_SIZE": str(node.nnodes),
        },
        ranks=tuple(
            {"RANK": str(rank_id), "LOCAL_RANK": str(local_rank)} for local_rank, rank_id in enumerate(context.rank_ids)
        ),
    )


def _mindspore_cluster(context: LaunchContext) -> EnvPatch:
    """Make every rank of MindSpore's dynamic cluster a worker, and add the scheduler, which has no device, on its node.

    MS_SCHED_HOST must be an address. A numeric MS_NODE_ID becomes the rank. Sources: MindSpore's tutorial on dynamic
    clusters and its list of environment variables.
    """
    job = {
        "MS_ROLE": WORKER,
        "MS_SCHED_HOST": context.resolve(context.node.master_addr),
        "MS_SCHED_PORT": str(context.node.master_port),
        "MS_WORKER_NUM": str(context.rank_size),
    }
    scheduler = EnvPatch(job={"MS_ROLE": SCHEDULER}, unset=OF_A_RANK)
    # MindCluster assigns a role to each of its pods, and its scheduler need not run on node 0.
    role = context.environ.get("MS_ROLE") or (SCHEDULER if context.node.node_rank == 0 else WORKER)

    return EnvPatch(
        job=job,
        ranks=tuple({"MS_NODE_ID": str(rank_id)} for rank_id in context.rank_ids),
        beside={"scheduler": scheduler} if role == SCHEDULER else {},
    )


# The parts of each framework's environment; of two parts that set one variable the later one wins. `auto` gives
# MindSpore and TensorFlow their rank table, and torch its variables: they do not affect each other.
FRAMEWORKS: Final[Mapping[str, tuple[Part, ...]]] = {
    AUTO: (env_patch.ranks, env_patch.table, _torch_process_group, env_patch.defaults, env_patch.flight_recorders),
    "mindspore": (env_patch.ranks, env_patch.table, env_patch.defaults),
    "mindspore-cluster": (env_patch.ranks, _mindspore_cluster, env_patch.defaults),
    "torch": (env_patch.ranks, env_patch.table, _torch_process_group, env_patch.defaults, env_patch.flight_recorders),
    "tensorflow": (cluster, env_patch.defaults),
    NONE: (env_patch.ranks, env_patch.table),
}
NAMES: Final = tuple(FRAMEWORKS)

# `auto` stands for these frameworks if the platform has set all of these variables, and a condition holds: variables of
# a cluster replace a rank table, and TF_CONFIG has one task for a node, which several ranks cannot share.
PREPARED: Final[tuple[tuple[str, tuple[str, ...], Callable[[LaunchContext], bool]], ...]] = (
    ("tensorflow", ("CM_CHIEF_IP", "CM_WORKER_SIZE"), lambda context: not context.table_path),
    ("mindspore-cluster", ("MS_SCHED_HOST", "MS_WORKER_NUM"), lambda context: not context.table_path),
    ("tensorflow", (tf_config.NAME,), lambda context: context.nproc > 1),
)


def patch_environment(context: LaunchContext) -> EnvPatch:
    """Return the variables of every rank, and the auxiliary processes.

    Raises:
        SettingsError: Variables or options contradict each other, or an address is missing.
    """
    context, notes = without_auto(context)
    patches = [conflicts.resolve(context), EnvPatch(notes=notes)]
    patches += [part(context) for part in FRAMEWORKS[context.framework]]

    return merge(patches, context.nproc)


def without_auto(context: LaunchContext) -> tuple[LaunchContext, tuple[str, ...]]:
    """Replace `auto` by the framework that the platform has prepared, if any, and say so."""
    if context.framework != AUTO:
        return context, ()
    for framework, names, applies in PREPARED:
        if all(map(context.environ.get, names)) and applies(context):
            are_set = "are set" if len(names) > 1 else "is set for several ranks"
            note = f"--framework auto selects {framework}, because {' and '.join(names)} {are_set}"
            return attrs.evolve(context, framework=framework), (note,)

    return context, ()

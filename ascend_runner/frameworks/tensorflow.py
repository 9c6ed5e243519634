"""TensorFlow on NPU: a rank table, or CM_* without one; and TF_CONFIG if the platform has set it.

CM_* and RANK_TABLE_FILE, RANK_ID, RANK_SIZE exclude each other (HCCL's user guide). TF_CONFIG is never added: an
Estimator that finds it expects a cluster of servers.
"""

from __future__ import annotations

import json
from typing import Final

from ascend_runner.errors import SettingsError
from ascend_runner.frameworks import hccl
from ascend_runner.frameworks.env_patch import EnvPatch, LaunchContext, merge
from ascend_runner.platforms import tf_config
from ascend_runner.platforms.tf_config import Cluster
from ascend_runner.platforms.variables import MACHINE_ADDRESSES, POD_ADDRESSES

OWN_ADDRESSES: Final = (*POD_ADDRESSES, *MACHINE_ADDRESSES)


def cluster(context: LaunchContext) -> EnvPatch:
    """Return the variables with the rank table or the chief's address.

    Raises:
        SettingsError: This node's address is unknown, or TF_CONFIG cannot describe its ranks.
    """
    if context.table_path:
        patches = [hccl.ranks(context), hccl.table(context)]
    elif context.rank_size == 1:
        patches = [hccl.ranks(context)]
    else:
        patches = [hccl.devices(context), _chief(context)]
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

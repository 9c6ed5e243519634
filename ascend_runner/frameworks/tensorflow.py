"""TensorFlow: on NPU by rank table, or by CM_* without one; and TF_CONFIG, where a platform wrote one.

CM_* and RANK_TABLE_FILE, RANK_ID, RANK_SIZE exclude each other (HCCL's user guide). TF_CONFIG is never invented: an
Estimator that finds one expects a cluster of servers behind it.
"""

from __future__ import annotations

from ascend_runner.annotations import TYPE_CHECKING, Final
from ascend_runner.errors import SettingsError
from ascend_runner.platforms import tf_config

from . import hccl
from .situation import Changes, together

if TYPE_CHECKING:
    from ascend_runner.platforms.tf_config import Cluster

    from .situation import Situation

OWN_ADDRESSES: Final = ("POD_IP", "XDL_IP", "MA_CURRENT_IP", "HOST_IP")


def cluster(situation: Situation) -> Changes:
    """Give what TensorFlow on NPU wants: the table, or the address of the chief."""
    nproc = len(situation.rank_ids)
    if situation.table_path:
        parts = [hccl.ranks(situation), hccl.table(situation)]
    elif situation.rank_size == 1:
        parts = [hccl.ranks(situation)]
    else:
        parts = [hccl.devices(situation), _chief(situation)]
    if situation.environ.get(tf_config.NAME):
        parts.append(Changes(ranks=_tf_configs(situation)))

    return together(parts, nproc)


def _chief(situation: Situation) -> Changes:
    node = situation.node
    return Changes(
        job={
            "CM_CHIEF_IP": situation.resolve(node.master_addr),
            "CM_CHIEF_PORT": str(node.master_port),
            "CM_CHIEF_DEVICE": situation.environ.get("CM_CHIEF_DEVICE") or "0",
            "CM_WORKER_SIZE": str(situation.rank_size),
            "CM_WORKER_IP": _own_address(situation),
        },
    )


def _own_address(situation: Situation) -> str:
    node = situation.node
    if situation.environ.get("CM_WORKER_IP"):
        return situation.environ["CM_WORKER_IP"]
    if node.node_rank == 0 or node.hosts:
        return situation.resolve(node.hosts[node.node_rank] if node.hosts else node.master_addr)
    name = next(filter(situation.environ.get, OWN_ADDRESSES), "")
    if not name:
        raise SettingsError(
            "TensorFlow without a rank table needs this node's own address, and nothing tells it: expected CM_WORKER_IP"
        )

    return situation.environ[name]


def _tf_configs(situation: Situation) -> tuple[dict[str, str], ...]:
    """Make TF_CONFIG right for each rank: a task of its own, and its index a number.

    Of several ranks on a node the first has the port that the platform chose, the others those that follow.
    """
    cluster = tf_config.decode(situation.environ[tf_config.NAME])
    nproc = len(situation.rank_ids)
    if nproc > 1 and cluster.role != "worker":
        raise SettingsError(
            f"TF_CONFIG says that this node is the {cluster.role}, expected a worker: there can be only one"
            f" {cluster.role}, and this node has {nproc} ranks"
        )
    tasks = {
        role: [_shifted(task, shift) for task in addresses for shift in range(nproc if role == "worker" else 1)]
        for role, addresses in cluster.tasks.items()
    }
    addresses = [task for role in tasks for task in tasks[role]]
    if len({*addresses}) < len(addresses):
        raise SettingsError(
            f"TF_CONFIG leaves no room for {nproc} ranks on each node: expected {nproc} ports from each worker's on,"
            " which no other task has"
        )

    first = cluster.task_index * nproc
    return tuple({tf_config.NAME: _encode(cluster, tasks, first + local_rank)} for local_rank in range(nproc))


def _shifted(task: str, shift: int) -> str:
    host, colon, port = task.rpartition(":")
    return f"{host}{colon}{int(port) + shift}" if shift and port.isdigit() else task


def _encode(cluster: Cluster, tasks: dict[str, list[str]], index: int) -> str:
    import json  # only here: 4 ms, and most jobs have no TF_CONFIG

    return json.dumps({"cluster": tasks, "task": {"type": cluster.role, "index": index}, **cluster.rest})

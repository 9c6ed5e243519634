"""The platforms of Huawei Cloud and Ascend: ModelArts, MindCluster and the task-training platform. Pure.

The Octopus platform uses the same variables, on ModelArts or on CCE. Sources: ModelArts' list of environment variables,
its guide to custom images, its page on topology acceleration; Octopus' guide to algorithm files.

They count devices, not nodes: WORLD_SIZE, MS_WORKER_NUM and CM_WORKER_SIZE of the job, LOCAL_WORLD_SIZE,
MS_LOCAL_WORKER and CM_LOCAL_WORKER of a node. RANK, MS_NODE_RANK and CM_RANK are the node's number. Source:
component/ascend-operator of Ascend/mind-cluster (pkg/controllers/v1/env.go).

WORLD_SIZE and RANK alone could be torchrun's, which count processes; SLOTS tells them apart. Source: the platform's
guide to run commands.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from ascend_runner.errors import SettingsError
from ascend_runner.platforms.node import Node, whole_number
from ascend_runner.platforms.spec import PlatformSpec, counts_other_nodes

OWN_LOG_DIR: Final = "/tmp/log"  # noqa: S108  as the platform's own scripts; another user's is refused


def _job_name(name: str) -> str:
    """Spell a job's name as in ModelArts' log files."""
    return name.replace("ma-job", "modelarts-job", 1)


def _log_dirs(environ: Mapping[str, str]) -> tuple[str, ...]:
    mount = environ.get("MA_MOUNT_PATH")
    named = tuple(filter(None, (environ.get("BATCH_TASK_LOG_PATH"), f"{mount.rstrip('/')}/log" if mount else "")))
    return (*named, OWN_LOG_DIR) if named or environ.get("MA_VJ_NAME") else ()


def _way_in(environ: Mapping[str, str], pod_name: str, host_name: str) -> str:
    if not (environ.get("MA_JOB_DIR") or environ.get("MA_VJ_NAME")):
        return ""
    return f"Cloud Shell of the training job in the ModelArts console, instance {pod_name or host_name}"


def _name_hosts(node: Node, environ: Mapping[str, str]) -> Node:
    """Name the hosts if no variable lists them."""
    if node.nnodes == 1:
        # VC_TASK_INDEX is 0 by default, and has no meaning on a single node, according to the platform's documentation.
        node = attrs.evolve(node, node_rank=0)
    if node.hosts or not environ.get("MA_VJ_NAME") or not environ.get("MA_TASK_NAME"):
        return node

    sources = {**node.sources, "hosts": "MA_VJ_NAME and MA_TASK_NAME"}
    return attrs.evolve(node, hosts=tuple(_host(environ, index) for index in range(node.nnodes)), sources=sources)


def _renumber(node: Node, environ: Mapping[str, str]) -> Node:
    """Drop the hosts: topology acceleration gives nodes new numbers, and names the host of node 0 only."""
    node = _name_hosts(attrs.evolve(node, hosts=()), environ)
    master = environ.get("MA_MASTER_INDEX") or "0"
    if node.master_addr or not node.hosts or master not in map(str, range(node.nnodes)):
        return attrs.evolve(node, hosts=())

    sources = {**node.sources, "master_addr": "MA_MASTER_INDEX"}
    return attrs.evolve(node, hosts=(), master_addr=_host(environ, int(master)), sources=sources)


def _host(environ: Mapping[str, str], index: int) -> str:
    """Name a worker as the guide to boot commands does."""
    return f"{environ['MA_VJ_NAME']}-{environ['MA_TASK_NAME']}-{index}.{environ['MA_VJ_NAME']}"


V2: Final = PlatformSpec(
    name="ModelArts",
    detected_by=("MA_VJ_NAME",),
    nnodes=("MA_NUM_HOSTS", "DLS_TASK_NUMBER"),
    node_rank=("VC_TASK_INDEX", "DLS_TASK_INDEX"),
    hosts=("VC_WORKER_HOSTS",),
    master_port=("VC_WORKER_PORT",),
    devices_per_node=("MA_NUM_GPUS",),
    address=("MA_CURRENT_HOST_IP",),
    refine=_name_hosts,
    ambiguity=counts_other_nodes("MA_NUM_HOSTS", "DLS_TASK_NUMBER"),
    job_ids={"BATCH_JOB_ID": str, "MA_VJ_NAME": _job_name},
    pod_names=("BATCH_TASK_CURRENT_INSTANCE", "MA_CURRENT_INSTANCE_NAME"),
    log_dirs=_log_dirs,
    way_in=_way_in,
)
V1: Final = attrs.evolve(V2, name="ModelArts V1", detected_by=("BATCH_JOB_ID", "DLS_TASK_NUMBER"))
ACCELERATED: Final = attrs.evolve(
    V2,
    name="ModelArts with topology acceleration",
    detected_by=("MA_VJ_NAME", "ROUTE_PLAN", "RANK_AFTER_ACC"),
    is_confirmed=lambda environ: environ["ROUTE_PLAN"].lower() == "true",
    node_rank=("RANK_AFTER_ACC",),
    hosts=(),
    refine=_renumber,
)
OCTOPUS: Final = attrs.evolve(
    V2,
    name="Octopus",
    detected_by=("MA_NUM_HOSTS", "VC_TASK_INDEX"),
    port=6789,  # the guide's default for VC_WORKER_PORT
)
OCTOPUS_BY_DATASETS: Final = attrs.evolve(OCTOPUS, detected_by=("MA_NUM_HOSTS", "DATASET_MAP"))


# Seconds. The operator does not reschedule a job whose pods all fail within a few seconds (Service Plane Faults in
# docs/en/scheduling/usage/resumable_training of Ascend/mind-cluster).
LINGER: Final = 30.0


def _spec(detected_by: tuple[str, ...], total: str, local: str, node_rank: str) -> PlatformSpec:
    """Describe one framework's three variables; the rest is the same for all."""

    def count_nodes(node: Node, environ: Mapping[str, str]) -> Node:
        if "nnodes" in node.sources:
            return node
        devices = whole_number(environ[total], total, at_least=1)
        per_node = whole_number(environ[local], local)  # the platform's number: the user may start fewer ranks
        nnodes, left_over = divmod(devices, per_node or devices)
        if left_over or not nnodes:
            raise SettingsError(f"{total} ({devices}) is not a multiple of {local} ({per_node})")
        return attrs.evolve(node, nnodes=nnodes, sources={**node.sources, "nnodes": f"{total} and {local}"})

    return PlatformSpec(
        name="MindCluster",
        detected_by=detected_by,
        linger=LINGER,
        node_rank=(node_rank,),
        devices_per_node=(local,),
        address=("XDL_IP",),
        refine=count_nodes,
        job_ids={"MINDX_TASK_ID": str},
    )


def _of_framework(total: str, local: str, node_rank: str) -> PlatformSpec:
    return _spec((total, local, node_rank), total, local, node_rank)


def _of_torch(*evidence: str) -> PlatformSpec:
    """Describe PyTorch's variables, which other platforms use as well: more evidence is needed."""
    shared = ("LOCAL_WORLD_SIZE", "WORLD_SIZE", "RANK")
    return _spec((*evidence, *shared), "WORLD_SIZE", "LOCAL_WORLD_SIZE", "RANK")


MINDSPORE: Final = _of_framework("MS_WORKER_NUM", "MS_LOCAL_WORKER", "MS_NODE_RANK")
TENSORFLOW: Final = _of_framework("CM_WORKER_SIZE", "CM_LOCAL_WORKER", "CM_RANK")
PYTORCH: Final = _of_torch("MINDX_TASK_ID")
PYTORCH_BY_ADDRESS: Final = _of_torch("MINDX_SERVER_IP")
# LOCAL_RANK is a list, such as 0,1,2,3: no other platform does that, so no more evidence is needed.
PYTORCH_BY_LIST: Final = attrs.evolve(
    _of_torch("LOCAL_RANK"), is_confirmed=lambda environ: "," in environ["LOCAL_RANK"]
)


PORT: Final = 2222  # what the platform itself passes to torch.distributed.launch
HYDRA_INTERFACE: Final = "eth0"  # the network that its pods share

TASK_TRAINING: Final = PlatformSpec(
    name="task-training platform",
    detected_by=("SLOTS", "WORLD_SIZE", "RANK"),
    nnodes=("WORLD_SIZE",),
    node_rank=("RANK",),
    port=PORT,
    devices_per_node=("SLOTS",),
)


def is_platform_of(node: Node) -> bool:
    """Whether a node belongs to this platform, whose guide writes the commands of engines in its own way."""
    return node.platform == TASK_TRAINING.name

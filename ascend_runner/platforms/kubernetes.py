"""Kubeflow's Trainer and PyTorchJob, and Volcano's plugins. Pure.

A PyTorchJob sets nothing but MASTER_ADDR, MASTER_PORT, WORLD_SIZE and RANK, counted in replicas; torchrun sets the same
counted in processes. The pod's own name tells them apart: it must be <job>-master-0 or <job>-worker-<n>, as MASTER_ADDR
and RANK imply. Sources: kubeflow/trainer, and pkg/controller.v1/pytorch/envvar.go of training-operator.

Volcano's VC_TASK_INDEX starts at 0 in each task, so it numbers the nodes only if the job has one task. With a master
and workers the pod's own name identifies its host. Source: pkg/controllers/job/plugins of volcano's tree.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from ascend_runner.platforms.node import ALONE, Node, Variables, number_of, whole_number
from ascend_runner.platforms.spec import PlatformSpec, counts_other_nodes
from ascend_runner.text import is_whole_number

NPROC: Final = "PET_NPROC_PER_NODE"
COUNTED_BY_TORCHRUN: Final = frozenset({"auto", "cpu", "gpu"})  # words that torchrun accepts instead of a number
MASTER_POD: Final = "-master-0"


def _count_devices(node: Node, environ: Mapping[str, str]) -> Node:
    nproc = environ.get(NPROC, "")
    if not nproc or nproc in COUNTED_BY_TORCHRUN or "devices_per_node" in node.sources:
        return node
    devices = whole_number(nproc, NPROC, at_least=1)

    return attrs.evolve(node, devices_per_node=devices, sources={**node.sources, "devices_per_node": NPROC})


def _is_own_pod(environ: Mapping[str, str]) -> bool:
    rank, master = environ["RANK"], environ["MASTER_ADDR"].partition(".")[0]
    if not is_whole_number(rank) or not master.endswith(MASTER_POD):
        return False
    own = master if rank == "0" else f"{master[: -len(MASTER_POD)]}-worker-{int(rank) - 1}"

    return environ["HOSTNAME"] == own


def is_single_pytorch_job(environ: Mapping[str, str]) -> bool:
    """Whether this is the only pod of a PyTorchJob, which counts one process per pod."""
    return environ.get("WORLD_SIZE") == "1" and PYTORCH_JOB.is_detected(environ)


TRAINER: Final = PlatformSpec(
    name="Kubeflow Trainer",
    detected_by=("PET_NNODES", "PET_NODE_RANK"),
    nnodes=("PET_NNODES",),
    node_rank=("PET_NODE_RANK",),
    master_addr=("PET_MASTER_ADDR",),
    master_port=("PET_MASTER_PORT",),
    refine=_count_devices,
    ambiguity=counts_other_nodes("PET_NNODES"),
)
PYTORCH_JOB: Final = PlatformSpec(
    name="Kubeflow PyTorchJob",
    detected_by=("HOSTNAME", "MASTER_ADDR", "WORLD_SIZE", "RANK"),
    is_confirmed=_is_own_pod,
    nnodes=("WORLD_SIZE",),
    node_rank=("RANK",),
)


INDICES: Final = ("VC_TASK_INDEX", "VK_TASK_INDEX")  # the second is the older name
LEADERS: Final = ("VC_MASTER_HOSTS", "VC_CHIEF_HOSTS")  # tasks with node 0 as their only pod
WORKERS: Final = "VC_WORKER_HOSTS"
SLOTS: Final = "SLOTS"  # devices of a node on the task-training platform, which is built on Volcano
# Variables of platforms that give more facts about a job than Volcano, and of host files.
OTHERS: Final = (
    *("MA_VJ_NAME", "PET_NNODES", "MLP_WORKER_NUM", "SLURM_JOB_ID"),
    *("OMPI_MCA_orte_default_hostfile", "PRTE_MCA_prte_default_hostfile", "HYDRA_HOST_FILE"),
)


def _host_lists(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Name the variables that list hosts, the one of node 0 first; none if it is unclear which tasks take part."""
    names = _list_names(environ)
    leaders = tuple(name for name in LEADERS if name in names)
    if len(names) == 1:
        return tuple(names)
    lists = (*leaders, WORKERS)

    is_clear = len(leaders) == 1 and names == {*lists} and environ.get("HOSTNAME") in _pods(_hosts(lists, environ))
    return lists if is_clear else ()


def _list_names(environ: Mapping[str, str]) -> set[str]:
    return {name for name in environ if name.startswith("VC_") and name.endswith("_HOSTS") and environ[name]}


def _hosts(lists: tuple[str, ...], environ: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(host for name in lists for host in Variables(environ).hosts((name,)))


def _pods(hosts: tuple[str, ...]) -> list[str]:
    """Return the names of the pods: a host is <pod>.<job>."""
    return [host.partition(".")[0] for host in hosts]


def listed_hosts(environ: Mapping[str, str]) -> tuple[tuple[tuple[str, int], ...], str]:
    """Return the hosts in Volcano's lists, node 0 first, each with its devices (0: unknown), and the variables' names.

    There are none if it is unclear which tasks take part.
    """
    lists = _host_lists(environ)
    return tuple((host, number_of(environ, SLOTS)) for host in _hosts(lists, environ)), " and ".join(lists)


def _refine(node: Node, environ: Mapping[str, str]) -> Node:
    lists = _host_lists(environ)
    hosts = _hosts(lists, environ)
    sources = {**node.sources, **dict.fromkeys(("nnodes", "hosts"), " and ".join(lists))}
    node = attrs.evolve(node, hosts=hosts, nnodes=len(hosts), sources=sources)
    if len(lists) == 1:
        return node

    own = _pods(hosts).index(environ["HOSTNAME"])
    return attrs.evolve(node, node_rank=own, sources={**sources, "node_rank": "HOSTNAME"})


def _ambiguity(environ: Mapping[str, str]) -> str:
    index = next(filter(environ.get, INDICES), "")
    lists = [name for name in environ if name.startswith("VC_") and name.endswith("_HOSTS")]
    long_list = next((name for name in lists if "," in environ[name]), "")
    if not long_list and not (index and (lists or environ[index] != "0")):
        return ""

    return (
        f"cannot tell the number of nodes or this node's rank from Volcano's variables ({index or long_list}): set"
        f" --nnodes, --node-rank and --master-addr ({ALONE})"
    )


def is_single_volcano_job(environ: Mapping[str, str], *, has_layout: bool = False) -> bool:
    """Whether the variables describe a job with one pod and nothing else.

    This is also the single mode of the task-training platform, which runs the command as it is: with its directories
    (`has_layout`), no variable is needed.
    """
    indices = {environ[name] for name in INDICES if environ.get(name)}
    has_one_host = all(len(Variables(environ).hosts((name,))) == 1 for name in _list_names(environ))
    is_other = (environ.get("WORLD_SIZE") or "1") != "1" or any(map(environ.get, OTHERS))
    return ("0" in indices or (has_layout and not indices)) and has_one_host and not is_other


PYTORCH: Final = PlatformSpec(
    name="Volcano with its pytorch plugin",
    detected_by=("VC_TASK_INDEX", "MASTER_ADDR", "WORLD_SIZE", "RANK"),
    nnodes=("WORLD_SIZE",),
    node_rank=("RANK",),
    ambiguity=_ambiguity,
)
HOSTS: Final = PlatformSpec(
    name="Volcano",
    detected_by=("VC_TASK_INDEX",),
    is_confirmed=lambda environ: bool(_host_lists(environ)),
    node_rank=INDICES,
    devices_per_node=(SLOTS,),
    refine=_refine,
)
HOSTS_BY_OLD_INDEX: Final = attrs.evolve(HOSTS, detected_by=("VK_TASK_INDEX",))

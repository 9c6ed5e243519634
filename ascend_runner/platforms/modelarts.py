"""Huawei Cloud ModelArts: training jobs V2, and of V1 the numbers (its hosts are told by the rank table only).

Sources: ModelArts' list of environment variables, its guide to custom images, its page on topology acceleration.
"""

from __future__ import annotations

from ascend_runner.annotations import TYPE_CHECKING, Final

from .contract import Contract

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .node import Node


def name_hosts(node: Node, environ: Mapping[str, str]) -> Node:
    """Name the hosts where no variable lists them."""
    if node.nnodes == 1:
        # VC_TASK_INDEX is 0 by default, and on one node meaningless by the platform's own words.
        node = node._replace(node_rank=0)
    if node.hosts or not environ.get("MA_VJ_NAME") or not environ.get("MA_TASK_NAME"):
        return node

    sources = {**node.sources, "hosts": "MA_VJ_NAME and MA_TASK_NAME"}
    return node._replace(hosts=tuple(_host(environ, index) for index in range(node.nnodes)), sources=sources)


def _renumber(node: Node, environ: Mapping[str, str]) -> Node:
    """Forget the hosts: topology acceleration gives nodes new numbers, and tells of node 0's only who it is."""
    node = name_hosts(node._replace(hosts=()), environ)
    master = environ.get("MA_MASTER_INDEX") or "0"
    if node.master_addr or not node.hosts or master not in map(str, range(node.nnodes)):
        return node._replace(hosts=())

    sources = {**node.sources, "master_addr": "MA_MASTER_INDEX"}
    return node._replace(hosts=(), master_addr=_host(environ, int(master)), sources=sources)


def _host(environ: Mapping[str, str], index: int) -> str:
    """Give a worker's name, as the guide to boot commands spells it."""
    return f"{environ['MA_VJ_NAME']}-{environ['MA_TASK_NAME']}-{index}.{environ['MA_VJ_NAME']}"


CONTRACT: Final = Contract(
    nnodes=("MA_NUM_HOSTS", "DLS_TASK_NUMBER"),
    node_rank=("VC_TASK_INDEX", "DLS_TASK_INDEX"),
    hosts=("VC_WORKER_HOSTS",),
    master_port=("VC_WORKER_PORT",),
    devices_per_node=("MA_NUM_GPUS",),
    address=("MA_CURRENT_HOST_IP",),
    refine=name_hosts,
)
ACCELERATED: Final = CONTRACT._replace(
    node_rank=("RANK_AFTER_ACC",),
    hosts=(),
    is_certain=lambda environ: environ["ROUTE_PLAN"].lower() == "true",
    refine=_renumber,
)

"""Volcano's plugins: env (VC_TASK_INDEX, VK_TASK_INDEX), svc (VC_<TASK>_HOSTS) and pytorch (MASTER_ADDR, RANK, ...).

A task's index starts at 0 in each task, so it numbers the nodes only where the job has one task. With a master and
workers the pod's own name tells which of their hosts this is. Source: pkg/controllers/job/plugins of volcano's tree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .contract import Contract
from .variables import Variables

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .node import Node

LEADERS: Final = ("VC_MASTER_HOSTS", "VC_CHIEF_HOSTS")  # tasks whose only pod is node 0
WORKERS: Final = "VC_WORKER_HOSTS"


def _host_lists(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Name the variables that list hosts, node 0's first; none where it is not certain who takes part."""
    names = {name for name in environ if name.startswith("VC_") and name.endswith("_HOSTS") and environ[name]}
    leaders = tuple(name for name in LEADERS if name in names)
    if len(names) == 1:
        return tuple(names)

    is_certain = len(leaders) == 1 and names == {*leaders, WORKERS} and environ.get("HOSTNAME")
    return (*leaders, WORKERS) if is_certain else ()


def _refine(node: Node, environ: Mapping[str, str]) -> Node:
    lists = _host_lists(environ)
    hosts = tuple(host for name in lists for host in Variables(environ).hosts((name,)))
    sources = {**node.sources, "nnodes": " and ".join(lists), "hosts": " and ".join(lists)}
    node = node._replace(hosts=hosts, nnodes=len(hosts), sources=sources)
    if len(lists) == 1:
        return node

    names = [host.partition(".")[0] for host in hosts]
    if environ["HOSTNAME"] not in names:
        return node._replace(
            nnodes=1,
            node_rank=0,
            doubt=f"HOSTNAME is {environ['HOSTNAME']!r}, which {' and '.join(lists)} do not list, so this node has no"
            " certain number: expected --nnodes and --node-rank",
        )
    return node._replace(node_rank=names.index(environ["HOSTNAME"]), sources={**sources, "node_rank": "HOSTNAME"})


PYTORCH: Final = Contract(nnodes=("WORLD_SIZE",), node_rank=("RANK",))
HOSTS: Final = Contract(
    node_rank=("VC_TASK_INDEX", "VK_TASK_INDEX"),
    is_certain=lambda environ: bool(_host_lists(environ)),
    refine=_refine,
)

"""Volcano's plugins: env (VC_TASK_INDEX, VK_TASK_INDEX), svc (VC_<TASK>_HOSTS) and pytorch (MASTER_ADDR, RANK, ...).

A task's index starts at 0 in each task, so it numbers the nodes only where the job has one task. With a master and
workers the pod's own name tells which of their hosts this is. Source: pkg/controllers/job/plugins of volcano's tree.
"""

from __future__ import annotations

from ascend_runner.annotations import TYPE_CHECKING, Final

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
    lists = (*leaders, WORKERS)

    is_certain = len(leaders) == 1 and names == {*lists} and environ.get("HOSTNAME") in _pods(_hosts(lists, environ))
    return lists if is_certain else ()


def _hosts(lists: tuple[str, ...], environ: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(host for name in lists for host in Variables(environ).hosts((name,)))


def _pods(hosts: tuple[str, ...]) -> list[str]:
    """Give the pods' names: a host is <pod>.<job>."""
    return [host.partition(".")[0] for host in hosts]


def _refine(node: Node, environ: Mapping[str, str]) -> Node:
    lists = _host_lists(environ)
    hosts = _hosts(lists, environ)
    sources = {**node.sources, **dict.fromkeys(("nnodes", "hosts"), " and ".join(lists))}
    node = node._replace(hosts=hosts, nnodes=len(hosts), sources=sources)
    if len(lists) == 1:
        return node

    own = _pods(hosts).index(environ["HOSTNAME"])
    return node._replace(node_rank=own, sources={**sources, "node_rank": "HOSTNAME"})


PYTORCH: Final = Contract(nnodes=("WORLD_SIZE",), node_rank=("RANK",))
HOSTS: Final = Contract(
    node_rank=("VC_TASK_INDEX", "VK_TASK_INDEX"),
    is_certain=lambda environ: bool(_host_lists(environ)),
    refine=_refine,
)

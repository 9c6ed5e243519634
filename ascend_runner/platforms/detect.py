"""Finds this node's place in its job: by the user's options, then by the platform's variables.

WORLD_SIZE has three meanings (processes for torchrun, nodes for four platforms, devices for MindCluster) and RANK two,
so they are used only together with another variable. If they hint at other nodes and no platform is detected, the node
is ambiguous, and a job without a rank table is refused: otherwise each node would assume that it is the only one.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Final

import attrs

from ascend_runner.errors import SettingsError
from ascend_runner.platforms.node import ALONE, LOCALHOST, MASTER_PORT, NOTHING, Node, Overrides
from ascend_runner.platforms.registry import PLATFORMS
from ascend_runner.platforms.variables import Variables, check_port, number_of
from ascend_runner.text import counted

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

    `namespace` is that of the pod, "" outside Kubernetes.
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
            f"{node.sources['node_rank']} is {node.node_rank}, but ranks of nodes count from 0 to {node.nnodes - 1}:"
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

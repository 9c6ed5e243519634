"""Lists of a job's hosts, for platforms and users that list them outside the variables: host files and --hosts.

Open MPI's and DeepSpeed's files have lines such as `host slots=4`, those of MPICH `host:4`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import attrs

from ascend_runner.errors import SettingsError
from ascend_runner.platforms.node import ALONE, Node
from ascend_runner.text import counted

OPTION: Final = "--hosts"
Hosts = tuple[tuple[str, int], ...]  # names in the order of the nodes, with the slots of each (0: not given)

_SLOTS: Final = r"\s.*?\bslots\s*=\s*(?P<slots>[0-9]{1,6})\b.*"
_LINE: Final = rf"(?P<name>[^\s:]+)(:(?P<count>[0-9]{{1,6}}))?({_SLOTS}|\s.*)?"


def decode(text: str, path: str) -> Hosts:
    """Read a host file; `path` is for the error. Blank lines and comments are skipped.

    Raises:
        SettingsError: A line is malformed.
    """
    found: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].strip()
        match = re.fullmatch(_LINE, words)
        if words and not match:
            raise SettingsError(
                f"invalid line {number} in {path!r}: expected 'host slots=N' or 'host:N', found {line!r}"
            )
        if match:
            found[match["name"]] = found.get(match["name"], 0) + int(match["slots"] or match["count"] or 0)
    return tuple(found.items())


def with_hosts(node: Node, hosts: Hosts, source: str, own_names: Callable[[], Iterable[str]]) -> Node:
    """Add a list's facts about a job's nodes: their number, names and slots, and which one has a name of this machine.

    Facts from variables or options stay, but `--hosts` replaces the platform's names. `source` is the option or the
    path of the list.

    Raises:
        SettingsError: The list does not have as many hosts as the job has nodes.
    """
    sources = dict(node.sources)
    if "nnodes" in sources and node.nnodes != len(hosts):
        raise SettingsError(
            f"{source} lists {counted(len(hosts), 'host')}, but the number of nodes is {node.nnodes}"
            f" ({sources['nnodes']})"
        )
    names = tuple(name for name, _slots in hosts)
    if node.hosts and source != OPTION:
        names = node.hosts
    else:
        sources["hosts"] = source
    sources.setdefault("nnodes", source)
    rank = node.node_rank if "node_rank" in sources else _own_index(names, own_names)
    if rank is not None:
        sources.setdefault("node_rank", f"{source} and the name of this node")
    node = attrs.evolve(node, hosts=names, nnodes=len(hosts), node_rank=rank or 0, sources=sources, ambiguity="")
    if "master_addr" not in sources and len(names) > 1:
        node = attrs.evolve(node, master_addr=names[0])
    if rank is None:
        node = attrs.evolve(
            node, ambiguity=f"cannot tell which host in {source} is this node: set --node-rank ({ALONE})"
        )
    return _with_slots(node, tuple(slots for _name, slots in hosts), source)


def _with_slots(node: Node, slots: Sequence[int], source: str) -> Node:
    """Take the numbers of devices, unless the user has set one or a host has none."""
    if node.sources.get("devices_per_node") == "--nproc-per-node" or not all(slots):
        return node
    if node.devices_per_node:
        return attrs.evolve(node, slots=tuple(slots))
    sources = {**node.sources, "devices_per_node": source}
    return attrs.evolve(node, slots=tuple(slots), devices_per_node=slots[node.node_rank], sources=sources)


def _own_index(names: Sequence[str], own_names: Callable[[], Iterable[str]]) -> int | None:
    """Return the index of this machine, by its full name or the first part of it: a pod's name has no domain."""
    if len(names) == 1:
        return 0
    for own in own_names():
        if own in names:
            return names.index(own)
        short = [name.partition(".")[0] for name in names]
        if not own.replace(".", "").isdigit() and own.partition(".")[0] in short:
            return short.index(own.partition(".")[0])
    return None

"""Where platforms put rank tables, data and host lists. Pure.

Sources: the Octopus guide to algorithm files, ModelArts' layout, the task-training platform's layout.

Open MPI's and DeepSpeed's files have lines such as `host slots=4`, MPICH's files `host:4`.
"""

from __future__ import annotations

import json
import os.path
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import attrs

from ascend_runner.errors import RankTableError, SettingsError
from ascend_runner.platforms.node import ALONE, LOCALHOST, OPTIONS, Node
from ascend_runner.text import counted

VARIABLES: Final = ("RANK_TABLE_FILE_V_1_0", "RANK_TABLE_FILE")
# ModelArts and CCE, then MindCluster.
USUAL_PLACES: Final = ("/user/config/jobstart_hccl.json", "/user/serverid/devindex/config/hccl.json")
NOT_ANNOUNCED: Final = (
    f"{' and '.join(VARIABLES)} are not set, and neither {' nor '.join(map(os.path.dirname, USUAL_PLACES))} exists"
)


@attrs.frozen(kw_only=True, eq=False, repr=False)
class TableFacts:
    """The facts of a rank table about this node. Nodes are pods if the table has pods, else servers (see `unit`).

    `position` is this node's place in the order of ranks, `devices` the number of its devices. `server_ids` has the one
    of rank 0 first, and `first_address` is the address of that server.
    """

    unit: str
    nodes: int
    position: int
    devices: int
    server_id: str
    server_ids: tuple[str, ...]
    first_address: str
    first_pod_name: str


def announced_table(environ: Mapping[str, str], is_folder: Callable[[str], bool]) -> str:
    """Return the path at which the platform announces a rank table that may not exist yet, or "" if there is none."""
    named = next(filter(None, map(environ.get, VARIABLES)), "")
    return named or next((place for place in USUAL_PLACES if is_folder(os.path.dirname(place))), "")


def find_table(named: str | None, environ: Mapping[str, str], is_folder: Callable[[str], bool]) -> str:
    """Return the path of the rank table: the one that the user has `named`, else the one that the platform announces.

    Raises:
        RankTableError: There is neither.
    """
    place = named or announced_table(environ, is_folder)
    if not place:
        raise RankTableError(
            f"no rank table found: --rank-table, {NOT_ANNOUNCED}; use --nproc-per-node N to start N processes without"
            " one, such as --nproc-per-node 1"
        )
    return place


def contradiction(node: Node, table: TableFacts) -> str:
    """Return the sentence of the error, or "" if both agree, or if only the table has the facts."""
    sources = node.sources
    number = _contradicting_number(node, table)
    if number:
        return number
    if node.devices_per_node not in {None, table.devices}:
        return _other_number_of_devices(node, table)
    if sources.get("node_rank") == "--node-rank" and node.node_rank != table.position and not _missing(node, table):
        return f"--node-rank is {node.node_rank}, but the rank table gives this node rank {table.position}"
    # A server_id may be another address of the node, or none at all (MindCluster writes a pod's UID). So an address
    # that is not in the table proves nothing, but another server's proves that these are not our devices.
    if node.address != table.server_id and node.address in table.server_ids:
        return (
            f"{sources['address']} is {node.address}, but the rank table has this node's devices on server"
            f" {table.server_id!r}"
        )

    return ""


def _missing(node: Node, table: TableFacts) -> int:
    """Return the number of announced nodes missing from the rank table; negative if the table has more nodes."""
    if "nnodes" not in node.sources or node.nnodes == len(table.server_ids):  # two pods may share a server
        return 0
    return node.nnodes - table.nodes


def _contradicting_number(node: Node, table: TableFacts) -> str:
    """Return the sentence of the error if a rank table has too few or too many nodes."""
    missing, has = _missing(node, table), f"but the rank table has {counted(table.nodes, table.unit)}"
    if node.min_nodes is not None and table.nodes < node.min_nodes:
        return f"--min-nodes is {node.min_nodes}, {has}"
    if not missing or (missing > 0 and node.min_nodes is not None):
        return ""
    smaller = f", or --min-nodes {table.nodes} if the job may start on fewer nodes" if missing > 0 else ""
    return (
        f"{node.sources['nnodes']} is {node.nnodes}, {has}; if the table is right, use --nnodes {table.nodes}{smaller}"
    )


def _other_number_of_devices(node: Node, table: TableFacts) -> str:
    source, number = node.sources["devices_per_node"], node.devices_per_node or 0
    sentence = (
        f"{source} is {number}, but the rank table has {counted(table.devices, 'device')} for this node"
        f" (server {table.server_id!r})"
    )
    if source != OPTIONS["devices_per_node"]:
        return sentence
    return (
        f"{sentence}; remove {source} to start the ranks of the table, or --rank-table to start"
        f" {counted(number, 'rank')} without one"
    )


def with_table(node: Node, table: TableFacts) -> Node:
    """Return the node with its number in the table; rank 0 of the table is the rendezvous.

    An address of node 0 from an option, MASTER_ADDR or a platform's variable of that meaning stays.
    """
    announced = node.node_rank if "node_rank" in node.sources else None
    missing = max(0, _missing(node, table))
    hosts = () if missing else node.hosts  # the hosts include missing ones
    node = attrs.evolve(
        node,
        node_rank=table.position,
        nnodes=table.nodes,
        ambiguity="",
        announced_rank=announced,
        missing=missing,
    )
    if "master_addr" in node.sources:
        return node
    if table.nodes == 1:
        return attrs.evolve(node, master_addr=LOCALHOST)

    # A host's name starts with its pod's. Every node must find the same address, so this node's own is not used.
    of_first_pod = tuple(host for host in node.hosts if host.partition(".")[0] == table.first_pod_name)
    # Host names are in the platform's order; but if they are addresses of the table, its order counts.
    in_their_order = hosts if set(table.server_ids).isdisjoint(hosts) else ()
    return attrs.evolve(node, master_addr=(*of_first_pod, *in_their_order, table.first_address)[0])


def problem_without_table(node: Node) -> str:
    """Return the reason why a node cannot start without a rank table, or "" if it can."""
    if node.ambiguity or node.master_addr:
        return node.ambiguity

    return (
        f"cannot tell the address of node 0 of {node.nnodes} nodes ({node.sources.get('nnodes', '--nnodes')}): set"
        " --master-addr or MASTER_ADDR"
    )


def is_address(text: str) -> bool:
    """Whether a server_id looks like an IP address."""
    return ":" in text or (text.count(".") == 3 and text.replace(".", "").isdigit())  # noqa: PLR2004  an IPv4 has four


DATASET_MAP: Final = "DATASET_MAP"
TASK_TRAINING_CODE: Final = "/workspace/algorithm"

# For each directory its variable, and the defaults without one, in this order:
#                          ModelArts                                       CCE                         task-training
PLACES: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "dataset": ("DATASET", ("/home/ma-user/datasets", "/tmp/data/dataset", "/workspace/dataset")),  # noqa: S108
    "cached_dataset": ("CACHED_DATASET", ("/home/ma-user/cached-datasets", "/tmp/data/cached-dataset")),  # noqa: S108
    "model": ("MODEL", ("/home/ma-user/modelarts/user-job-dir/model", "/tmp/data/model", "/workspace/model")),  # noqa: S108
    "result": ("RESULT", ("/home/ma-user/modelarts/result", "/tmp/result", "/workspace/outputs")),  # noqa: S108
    "code": ("MA_JOB_DIR", ("/home/ma-user/modelarts/user-job-dir", TASK_TRAINING_CODE)),
}
# How the task-training platform sorts datasets and models; a star stands for a name, or a name and a version.
GROUPS: Final = {"private": "*", "pretrained": "*", "favorite": "*/*"}
ANNOTATIONS: Final = "/workspace/anno_dataset"
VOLUMES: Final = "/workspace/volume"

Subfolders = Callable[[str], Sequence[str]]  # the names of the directories in a directory; none if it does not exist


def find(environ: Mapping[str, str], is_folder: Callable[[str], bool]) -> dict[str, str]:
    """Find the directories in PLACES ("": there is none).

    A variable counts even if its directory does not exist (yet); a default must exist.
    """
    return {
        folder: environ.get(variable) or next(filter(is_folder, defaults), "")
        for folder, (variable, defaults) in PLACES.items()
    }


def mapped_datasets(environ: Mapping[str, str]) -> dict[str, str]:
    """Read DATASET_MAP, with names in any script; empty if it is not set.

    Raises:
        SettingsError: It does not map names to paths.
    """
    text = environ.get(DATASET_MAP)
    if not text:
        return {}

    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(isinstance(path, str) and path for path in found.values()):
        raise SettingsError(f'invalid value {text!r} for {DATASET_MAP}: expected JSON such as {{"name": "path"}}')

    return found


def staged(
    environ: Mapping[str, str], copies: Sequence[tuple[str, str]], real_path: Callable[[str], str]
) -> dict[str, str]:
    """Return the variables of datasets that lead to a copy; `copies` are pairs of a source and the path of its copy.

    A path below a source, by its name or by links, leads to its place in the copy. DATASET_MAP stays as it is if it is
    not valid.
    """

    def copy_of(path: str) -> str:
        for follow in (os.path.normpath, real_path) if os.path.isabs(path) else ():
            for source, copy in copies:
                full, top = follow(path), follow(source)
                if full == top or full.startswith(os.path.join(top, "")):
                    return copy + full[len(top) :]
        return path

    found = {name: copy_of(environ[name]) for name in ("DATASET", "CACHED_DATASET") if environ.get(name)}
    try:
        paths = mapped_datasets(environ)
    except SettingsError:
        paths = {}
    moved = {name: copy_of(path) for name, path in paths.items()}
    if moved != paths:
        found[DATASET_MAP] = json.dumps(moved, ensure_ascii=False)
    return {name: value for name, value in found.items() if value != environ[name]}


def named(dataset: str, model: str, subfolders: Subfolders) -> dict[str, dict[str, str]]:
    """List the directories that the platform keeps by name: datasets, models, annotations of datasets, volumes.

    Datasets are the directories in `dataset`, and models those in `model` if it has groups, else `model` is one model.
    The task-training platform has groups in both: "private/cifar", "favorite/cifar/v2".
    """
    annotations = _matching(ANNOTATIONS, "*/annotation", subfolders)
    return {
        "datasets": _grouped(dataset, subfolders) or _matching(dataset, "*", subfolders),
        "models": _grouped(model, subfolders),
        "annotations": {name.rpartition("/")[0]: path for name, path in annotations.items()},
        "volumes": _matching(VOLUMES, "*", subfolders),
    }


def _grouped(folder: str, subfolders: Subfolders) -> dict[str, str]:
    groups = subfolders(folder)
    if not groups or not {*groups} <= {*GROUPS}:
        return {}
    return {
        name: path
        for group in groups
        for name, path in _matching(folder, f"{group}/{GROUPS[group]}", subfolders).items()
    }


def _matching(folder: str, pattern: str, subfolders: Subfolders) -> dict[str, str]:
    """Return the directories that match a pattern below a directory, by their paths from there."""
    found = {"": folder.rstrip("/")} if folder else {}
    for part in pattern.split("/"):
        found = {
            f"{above}/{name}".lstrip("/"): f"{path}/{name}"
            for above, path in found.items()
            for name in subfolders(path)
            if part in {"*", name}
        }
    return found


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

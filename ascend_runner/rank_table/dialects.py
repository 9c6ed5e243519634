"""The table of dialects, how a document's dialect is found, and documents often mistaken for rank tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from ascend_runner.rank_table import group_list, rank_list, server_list
from ascend_runner.rank_table.fields import MISSING_FIELD, Document, Fields, missing, shown
from ascend_runner.rank_table.model import Dialect, RankTable
from ascend_runner.text import counted

Entries = Mapping[str, "Entries"]

COMPLETED: Final = "completed"
# The list by which a document belongs to a dialect.
LISTS: Final[Mapping[str, Dialect]] = {
    "server_list": Dialect.SERVER_LIST,
    "rank_list": Dialect.RANK_LIST,
    "group_list": Dialect.GROUP_LIST,
}
DECODERS: Final[Mapping[Dialect, Callable[[Fields], RankTable]]] = {
    Dialect.SERVER_LIST: server_list.decode,
    Dialect.RANK_LIST: rank_list.decode,
    Dialect.GROUP_LIST: group_list.decode,
    Dialect.LAB_LIST: group_list.decode_lab,
}
# The dialects that HCCL reads; the others are written as a server list.
ENCODERS: Final[Mapping[Dialect, Callable[[RankTable], dict[str, object]]]] = {
    Dialect.SERVER_LIST: server_list.encode,
    Dialect.RANK_LIST: rank_list.encode,
}
# The other names of the dialects.
TEMPLATES: Final[Mapping[Dialect, str]] = {
    Dialect.GROUP_LIST: "template 2",
    Dialect.LAB_LIST: "template 2",
    Dialect.SERVER_LIST: "template 1",
    Dialect.RANK_LIST: "Ascend 950",
}
# The lists of a table of each dialect, each with the lists in its entries; the innermost contain devices.
PODS: Final[Entries] = {"group_list": {"instance_list": {"devices": {}}}}
ENTRIES: Final[Mapping[Dialect, Entries]] = {
    Dialect.SERVER_LIST: {"server_list": {"device": {}}, "super_pod_list": {}},
    Dialect.RANK_LIST: {"rank_list": {}},
    Dialect.GROUP_LIST: PODS,
    Dialect.LAB_LIST: PODS,
}
# Documents that are often mistaken for a job's rank table: keys that only they have at their top, and their names. The
# first match counts.
OTHERS: Final[tuple[tuple[frozenset[str], str], ...]] = (
    (frozenset({"server_group_list"}), "the global rank table of an inference service (server_group_list)"),
    (frozenset({"prefill_device_list"}), "a prefill and decode device list for inference (prefill_device_list)"),
    (frozenset({"decode_device_list"}), "a prefill and decode device list for inference (decode_device_list)"),
    (frozenset({"node_list"}), "a heterogeneous rank table (version 1.1, node_list)"),
    (frozenset({"cluster_list"}), "a rank table of several clusters (cluster_list)"),
    (frozenset({"topo_file_path"}), "the root info of a machine (hccl_rootinfo.json, topo_file_path)"),
    (frozenset({"peer_list"}), "a topology file (peer_list, edge_list)"),
    (frozenset({"edge_list"}), "a topology file (peer_list, edge_list)"),
    (frozenset({"tor_count"}), "a list of switches for affinity scheduling (tor_node.json, tor_count)"),
    (frozenset({"pod_name", "devices"}), "the annotation of one pod (pod_name, devices)"),
)


def find_dialect(top: Mapping[str, object], document: Document) -> Dialect:
    """Return the dialect of a completed document.

    Raises:
        RankTableNotReadyError: The document is not completed.
        RankTableFormatError: The document is not a job's rank table.
    """
    other = next((name for keys, name in OTHERS if keys <= top.keys()), "")
    if other:
        expected = "expected a job's rank table with group_list, server_list or rank_list"
        raise document.refusal(f"the document is {other}, {expected}")

    dialect = _dialect_of(top)
    status = top.get("status")
    if isinstance(status, str) and status != COMPLETED:
        raise document.not_ready(f"its status is {shown(status)}")
    if dialect is None:
        raise document.refusal("the document is not a rank table, expected group_list, server_list or rank_list")
    # A rank list need not have a status. For the others HCCL requires one.
    if status != COMPLETED and ("status" in top or dialect is not Dialect.RANK_LIST):
        found = f"status is {shown(status)}, expected '{COMPLETED}'" if "status" in top else missing("status")
        raise document.refusal(found, "status", MISSING_FIELD)

    return dialect


def _dialect_of(top: Mapping[str, object]) -> Dialect | None:
    """Return the dialect of the list that has entries: an empty list of another dialect may be present too."""
    present = [key for key in LISTS if key in top]
    if not present:
        return None

    dialect = LISTS[next((key for key in present if top[key]), present[0])]
    return Dialect.LAB_LIST if dialect is Dialect.GROUP_LIST and group_list.LAB_MARK in top else dialect


def dialect_of(table: RankTable) -> str:
    """Describe the dialect: "server list (template 1), version 1.0"."""
    version = f", version {table.version}" if table.version else ""
    return f"{table.dialect.value} ({TEMPLATES[table.dialect]}){version}"


def size_of(table: RankTable) -> str:
    """Describe the size: "2 super-pods, 4 servers, 16 devices"."""
    parts = [counted(len(table.super_pods), "super-pod")] if table.super_pods else []
    return ", ".join((*parts, counted(table.server_count, "server"), counted(table.rank_size, "device")))

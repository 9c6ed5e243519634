"""Documents that are often taken for a job's rank table and are none: named, so that nobody wonders what is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

# Keys that only this document has together at its top, and what it is. The first that holds counts.
DOCUMENTS: Final[tuple[tuple[frozenset[str], str], ...]] = (
    (frozenset({"server_group_list"}), "the global rank table of an inference service (server_group_list)"),
    (frozenset({"prefill_device_list"}), "a prefill and decode device list for inference (prefill_device_list)"),
    (frozenset({"decode_device_list"}), "a prefill and decode device list for inference (decode_device_list)"),
    (frozenset({"node_list"}), "a heterogeneous rank table (version 1.1, node_list)"),
    (frozenset({"cluster_list"}), "a rank table of several clusters (cluster_list)"),
    (frozenset({"topo_file_path"}), "the root info of a machine (hccl_rootinfo.json, topo_file_path)"),
    (frozenset({"peer_list"}), "a topology file (peer_list, edge_list)"),
    (frozenset({"edge_list"}), "a topology file (peer_list, edge_list)"),
    (frozenset({"pod_name", "devices"}), "the annotation of one pod (pod_name, devices)"),
)


def name_of(document: Mapping[str, object]) -> str:
    """Say what a document is that is no job's table; "" where it is none of these."""
    return next((name for keys, name in DOCUMENTS if keys <= document.keys()), "")

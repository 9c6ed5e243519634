"""Documents that are often mistaken for a job's rank table, by name, so that the error says what the file is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# Keys that only this document has together at its top, and its name. The first match counts.
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
    """Return the name of a document that is not a job's rank table; "" where it is none of these."""
    return next((name for keys, name in DOCUMENTS if keys <= document.keys()), "")

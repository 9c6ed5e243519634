"""TensorFlow on CPU: workers find each other through TF_CONFIG."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.clients.conftest import PROGRAMS, RUNNER, Nodes, Started

MIRRORED = (sys.executable, str(PROGRAMS / "mirrored.py"))


def test_workers_of_two_nodes_sum(nodes: Nodes, tmp_path: Path) -> None:
    """A platform's TF_CONFIG with one worker per node (and its index as text) becomes one with a worker per rank."""
    cluster = {"worker": [f"{address}:2222" for address in nodes.addresses]}
    options = ("--framework", "tensorflow", "--nproc-per-node", "2", "--log-dir", "log")
    started = [
        Started(
            (*nodes.on(index), *RUNNER, *options, *MIRRORED),
            {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": "worker", "index": str(index)}})},
            tmp_path,
        )
        for index in range(2)
    ]
    first, second = (node.finish() for node in started)

    assert (0, 0) == (first.status, second.status), first.screen + second.screen
    shown = [line for line in (*first.lines, *second.lines) if line.startswith("worker ")]
    assert [
        f"worker {rank} of 4, at {nodes.addresses[rank // 2]}:{2222 + rank % 2}, sum 10" for rank in range(4)
    ] == shown

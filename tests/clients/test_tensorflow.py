"""TensorFlow on CPU: workers that find each other by TF_CONFIG."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from tests.clients.conftest import PROGRAMS, RUNNER, Started, TwoNodes

if TYPE_CHECKING:
    from pathlib import Path

MIRRORED = (sys.executable, str(PROGRAMS / "mirrored.py"))


def test_workers_of_two_nodes_sum(nodes: TwoNodes, tmp_path: Path) -> None:
    """The platform's TF_CONFIG has one worker on each node, its index as text; each of the ranks is one of four."""
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
    told = [line for line in (*first.lines, *second.lines) if line.startswith("worker ")]
    assert [
        f"worker {rank} of 4, at {nodes.addresses[rank // 2]}:{2222 + rank % 2}, sum 10" for rank in range(4)
    ] == told

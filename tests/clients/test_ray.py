"""`--launcher ray` with the real Ray: two simulated nodes in network namespaces, with actors on both."""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ascend_runner.job.simulation import NAMESPACE_NETWORK
from tests.clients.conftest import PROGRAMS, RUNNER, Started, run

ACTORS = (sys.executable, str(PROGRAMS / "ray_actors.py"))
CLUSTER = (*RUNNER, "--simulate", "2x2", "--launcher", "ray", "--log-dir", "log", *ACTORS)
FIRST, SECOND = f"{NAMESPACE_NETWORK}1", f"{NAMESPACE_NETWORK}2"
WHERE = {f"actor on {address} with NPU {npu}" for address in (FIRST, SECOND) for npu in (0, 1)}
ENDED = "ClusterError: Ray died on node"


@pytest.fixture
def temporary() -> Iterator[str]:
    """Yield a directory with a path that is short enough for Ray's sockets."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield folder


@pytest.mark.parametrize("variables", [{}, {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 64}])
def test_actors_on_both_nodes(variables: dict[str, str], temporary: str, tmp_path: Path) -> None:
    """The command runs once, when both nodes are there, also with Ray's authentication; logs stay, and nothing else."""
    ended = run(*CLUSTER, env={**variables, "TMPDIR": temporary}, cwd=tmp_path)

    assert 0 == ended.status, ended.screen
    assert WHERE == {line.rpartition("] ")[2] for line in ended.screen.splitlines() if "with NPU" in line}
    assert 1 == ended.screen.count("the command has ended")
    for node in (0, 1):
        assert [*tmp_path.glob(f"log/ray_actors/ray/node-{node}/session_*/raylet.out")]
    assert [] == [path for path in tmp_path.rglob("*") if path.stat().st_mode & stat.S_IWOTH]
    assert [] == os.listdir(temporary)


def test_two_clusters_on_one_machine(temporary: str, tmp_path: Path) -> None:
    """They never meet, although both start and end at the same time: each has its own actors."""
    folders = [tmp_path / name for name in ("first", "second")]
    for folder in folders:
        folder.mkdir()
    alone = (*RUNNER, "--nproc-per-node", "2", "--launcher", "ray", "--log-dir", "log", *ACTORS)
    started = [Started(alone, {"TMPDIR": temporary}, folder) for folder in folders]

    for ended in [one.finish() for one in started]:
        assert 0 == ended.status, ended.screen
        assert 2 == ended.screen.count("with NPU")
    for folder in folders:
        logs = folder / "log" / "ray_actors"

        assert {logs.stat().st_mode} == {path.stat().st_mode for path in logs.glob("ray/**/")}
    assert [] == os.listdir(temporary)


@pytest.mark.parametrize(
    ("what", "status", "cause"),
    [
        ("raise", 1, "ray-node-0 failed: ValueError: loss is nan at step 17"),
        (f"command {FIRST}", 137, "ray-node-0 failed: killed by SIGKILL"),
        (f"gcs_server {FIRST}", 1, f"ray-node-0 failed: {ENDED} 0: gcs_server"),
        (f"raylet {FIRST}", 1, f"ray-node-0 failed: {ENDED} 0: raylet"),
        (f"raylet {SECOND}", 1, f"ray-node-1 failed: {ENDED} 1: raylet"),
        (f"actor {SECOND}", 1, "Error: The actor died unexpectedly"),
        (f"runner {SECOND}", 137, "the runner of node 1 died"),
        (f"interrupt {FIRST}", 130, "stopped by SIGINT on node 0"),
        (f"stop {FIRST}", 143, "stopped by SIGTERM on node 0"),
        (f"stop {SECOND}", 143, "stopped by SIGTERM on node 1"),
    ],
)
def test_end_of_a_part_ends_everything(what: str, status: int, cause: str, temporary: str, tmp_path: Path) -> None:
    """Both nodes end with one status, name the cause, and leave no process, which the fixture for all tests checks."""
    ended = run(*CLUSTER, *what.split(), env={"TMPDIR": temporary}, cwd=tmp_path)
    errors = [line for line in ended.screen.splitlines() if " ERROR " in line]

    assert f"all nodes ended with exit status {status}" in ended.screen
    assert (1 if what.startswith("runner") else 2) == sum(cause in line for line in errors), ended.screen
    assert "the command has ended" not in ended.screen
    assert "grace period" not in ended.screen

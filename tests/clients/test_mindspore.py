"""MindSpore on CPU: its dynamic cluster, with the scheduler beside the ranks, and msrun."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.clients.conftest import PROGRAMS, RUNNER, failed_ranks, free_port, run

SUM = str(PROGRAMS / "sum.py")
JOB = {"BATCH_JOB_ID": "job"}


@pytest.mark.parametrize("workers", [2, 4])
def test_workers_sum(workers: int, numpy_1: str, tmp_path: Path) -> None:
    """All workers meet at the scheduler, have the ranks that they were given, and compute the right sum."""
    options = ("--nproc-per-node", str(workers), "--master-port", free_port(), "--log-dir", "log")
    ended = run(*RUNNER, *options, "--framework", "mindspore-cluster", numpy_1, SUM, env=JOB, cwd=tmp_path)

    assert 0 == ended.status, ended.screen
    total = workers * (workers + 1) // 2
    for rank in range(workers):
        log = (tmp_path / "log" / f"job-proc-rank-{rank}-device-{rank}.txt").read_text(errors="replace")
        assert f"rank {rank} of {workers}: the sum is {total}\n" in log
    scheduler = (tmp_path / "log" / "job-proc-scheduler.txt").read_text(errors="replace")
    assert "the sum is" not in scheduler
    assert "Cluster is successfully initialized" in scheduler


def test_failing_worker_ends_the_scheduler(numpy_1: str, tmp_path: Path) -> None:
    """The scheduler is stopped when a worker fails, instead of waiting half an hour for it."""
    options = ("--nproc-per-node", "2", "--master-port", free_port(), "--log-dir", "log")
    # The second worker never comes to the cluster.
    script = 'if [ "$MS_NODE_ID" = 1 ]; then exit 3; fi; exec "$@"'
    command = ("sh", "-c", script, "sh", numpy_1, SUM)
    ended = run(*RUNNER, *options, "--framework", "mindspore-cluster", *command, env=JOB, cwd=tmp_path)

    assert 3 == ended.status, ended.screen
    assert {(1, 3, None)} == failed_ranks(tmp_path / "log")


def test_msrun(numpy_1: str, tmp_path: Path) -> None:
    """With --launcher msrun, msrun starts its own scheduler and writes its logs below the job's log directory."""
    options = ("--nproc-per-node", "2", "--master-port", free_port(), "--log-dir", "log")
    ended = run(*RUNNER, *options, "--launcher", "msrun", numpy_1, SUM, env=JOB, cwd=tmp_path)

    assert 0 == ended.status, ended.screen
    logs = tmp_path / "log" / "job" / "msrun"
    assert ["scheduler.log", "worker_0.log", "worker_1.log"] == sorted(os.listdir(logs))
    for rank in range(2):
        assert f"rank {rank} of 2: the sum is 3\n" in (logs / f"worker_{rank}.log").read_text(errors="replace")

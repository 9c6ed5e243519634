"""MindSpore on CPU: its dynamic cluster, with the scheduler beside the ranks, and msrun."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from tests.clients.conftest import PROGRAMS, RUNNER, free_port, run

if TYPE_CHECKING:
    from pathlib import Path

SUM = (sys.executable, str(PROGRAMS / "sum.py"))
JOB = {"BATCH_JOB_ID": "job"}


@pytest.mark.parametrize("workers", [2, 4])
def test_workers_sum(workers: int, tmp_path: Path) -> None:
    """All workers meet at the scheduler, have the numbers that they were given, and come to the right sum."""
    options = ("--nproc-per-node", str(workers), "--master-port", free_port(), "--log-dir", "log")
    ended = run(*RUNNER, *options, "--framework", "mindspore-cluster", *SUM, env=JOB, cwd=tmp_path)

    assert 0 == ended.status, ended.screen
    total = workers * (workers + 1) // 2
    for rank in range(workers):
        log = (tmp_path / "log" / f"job-proc-rank-{rank}-device-{rank}.txt").read_text(errors="replace")
        assert f"rank {rank} of {workers}: the sum is {total}\n" in log
    scheduler = (tmp_path / "log" / "job-proc-scheduler.txt").read_text(errors="replace")
    assert "the sum is" not in scheduler
    assert "Cluster is successfully initialized" in scheduler


def test_failing_worker_ends_the_scheduler(tmp_path: Path) -> None:
    """Without it the scheduler would wait half an hour for those who will never come."""
    options = ("--nproc-per-node", "2", "--master-port", free_port(), "--log-dir", "log")
    # The second worker never comes to the cluster.
    script = 'if [ "$MS_NODE_ID" = 1 ]; then exit 3; fi; exec "$@"'
    command = ("sh", "-c", script, "sh", *SUM)
    ended = run(*RUNNER, *options, "--framework", "mindspore-cluster", *command, env=JOB, cwd=tmp_path)

    assert 3 == ended.status, ended.screen
    assert " ERROR rank 1 failed first: exit status 3, " in ended.screen
    assert "scheduler: told to stop, " in ended.screen


def test_msrun(tmp_path: Path) -> None:
    """Handed over to msrun, which starts its own scheduler and keeps its own logs below the job's."""
    options = ("--nproc-per-node", "2", "--master-port", free_port(), "--log-dir", "log")
    ended = run(*RUNNER, *options, "--launcher", "msrun", *SUM, env=JOB, cwd=tmp_path)

    assert 0 == ended.status, ended.screen
    logs = tmp_path / "log" / "job" / "msrun"
    assert ["scheduler.log", "worker_0.log", "worker_1.log"] == sorted(os.listdir(logs))
    for rank in range(2):
        assert f"rank {rank} of 2: the sum is 3\n" in (logs / f"worker_{rank}.log").read_text(errors="replace")

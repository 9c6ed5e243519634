"""The time limit of a job, on real ranks: at every moment of its life, and however it is reported."""

from __future__ import annotations

import re

import pytest

from tests.helpers import time_limit
from tests.helpers.program import Program


def test_ranks_are_stopped_at_the_limit(program: Program) -> None:
    """The job ends with 124, and its report and its screen say that the limit was the cause, not a hang."""
    run = program.act(2, "answer=TERM:saved:0", "say=ready", "sleep")
    run.wait_for("ready", times=2)
    seconds = time_limit.set_soon(run)

    assert 124 == run.finish()
    assert f"time limit of {seconds} s; stopping 2 ranks" in run.screen
    report = program.report()
    assert ("expired", 124, "expired") == (report["state"], report["status"], report["cause"]["kind"])
    assert b"ready\nsaved\n" == program.log(0)


def test_limit_while_the_rank_table_is_awaited(program: Program) -> None:
    """The limit counts from the start of the job, not from that of its ranks."""
    table = program.folder / "hccl.json"
    table.write_text('{"status": "initializing"}')
    run = program.start("--rank-table", str(table), "--time-limit", "1", "true")

    assert 124 == run.finish()
    assert "ERROR stopped by the time limit of 1 s before any rank was started\n" in run.screen


@pytest.mark.parametrize("delay", ["0", "60"])
def test_no_restart_after_the_limit(program: Program, delay: str) -> None:
    """The limit counts over all attempts, and also ends the wait between two."""
    options = ("--nproc-per-node", "1", "--max-restarts", "99", "--restart-delay", delay, "--restart-on", "7")
    run = program.start(*options, "--max-same-failures", "99", "--time-limit", "2", "sh", "-c", "sleep 0.5; exit 7")

    assert 124 == run.finish()
    took = re.search(r"; stopped after ([0-9.]+) s", run.screen)
    assert took is None or float(took[1]) >= 2  # of the whole job; after a minute it has another unit
    report = program.report()
    assert ("expired", 124, "expired") == (report["state"], report["status"], report["cause"]["kind"])

"""The time limit of a job, on real ranks: at every moment of its life, and however it is reported."""

from __future__ import annotations

import re
import shlex
import sys

import pytest

from tests.helpers import time_limit
from tests.helpers.job_files import contradictions
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


@pytest.mark.deep
def test_no_restart_after_the_limit(program: Program) -> None:
    """The limit counts over all attempts."""
    options = ("--nproc-per-node", "1", "--max-restarts", "99", "--restart-delay", "0", "--restart-on", "7")
    run = program.start(*options, "--time-limit", "2", "sh", "-c", "sleep 0.9; exit 7")

    assert 124 == run.finish()
    took = re.search(r"; stopped after ([0-9.]+) s", run.screen)
    assert took is None or float(took[1]) >= 2  # of the whole job; after a minute it has another unit
    report = program.report()
    assert ("expired", 124, "expired") == (report["state"], report["status"], report["cause"]["kind"])


@pytest.mark.deep
def test_limit_that_is_set_during_the_delay(program: Program) -> None:
    """The limit also ends the wait between two attempts."""
    run = program.start("--nproc-per-node", "1", "--max-restarts", "9", "--restart-delay", "1h", "sh", "-c", "exit 7")
    run.wait_for("restarting in")
    time_limit.set_soon(run)

    assert 124 == run.finish()
    assert ["restarting", "expired"] == program.states()[-2:]


def test_restart_that_would_come_after_the_limit(program: Program) -> None:
    """Nothing is announced that cannot happen: the job ends at once, with the limit as its cause and the failure."""
    options = ("--nproc-per-node", "1", "--max-restarts", "9", "--restart-delay", "2h", "--time-limit", "1h")
    run = program.start(*options, "sh", "-c", "exit 7")

    assert 124 == run.finish()
    assert "restarting in" not in run.screen
    assert re.search(r"ERROR stopped after \S+ m?s; a restart in 2 h 0 min would come after the time limit", run.screen)
    report = program.report()
    assert ("expired", 124, "expired") == (report["state"], report["status"], report["cause"]["kind"])
    assert [(7, "no_time")] == [(attempt["status"], attempt["verdict"]) for attempt in report["attempts"]]
    assert [] == contradictions(program.log_dir)


RESTARTS = ("--nproc-per-node", "1", "--max-restarts", "1", "--restart-delay")


@pytest.mark.deep
@pytest.mark.deep(quick=1)
@pytest.mark.parametrize(
    ("options", "event", "status", "answer"),
    [
        ((*RESTARTS, "0", "--time-limit", "1h"), "after-attempt", 7, "the time limit is now "),
        ((*RESTARTS, "2h", "--time-limit", "1h"), "after-attempt", 124, "the job is already ending"),
        (("--rank-table", "hccl.json", "--time-limit", "1"), "before-exit", 124, "the job is already ending"),
        (("--nproc-per-node", "1", "--time-limit", "1h"), "before-exit", 7, "the job is already ending"),
    ],
)
def test_limit_is_changed_after_an_attempt(
    program: Program, options: tuple[str, ...], event: str, status: int, answer: str
) -> None:
    """It counts while another attempt is to follow; once the job is ending, the request is refused."""
    (program.folder / "hccl.json").write_text('{"status": "initializing"}')
    ask = shlex.join([sys.executable, "-m", "ascend_runner.tools.job", "limit", str(program.log_dir), "+1h"])
    run = program.start(*options, "--hook", f"{event}={ask} >> answer 2>&1; true", "sh", "-c", "exit 7")

    assert status == run.finish()
    assert answer in (program.folder / "answer").read_text()

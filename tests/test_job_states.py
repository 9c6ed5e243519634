"""The states of a job as its events and its report tell them, whenever they are read and however the runner ends."""

from __future__ import annotations

import json
import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from ascend_runner.guardian import process_tree
from ascend_runner.supervision.job_machine import Job
from tests.helpers.job_files import contradictions
from tests.helpers.program import Program
from tests.helpers.replay import replay
from tests.helpers.waiting import wait_until

IN_TURN = 'echo "in $ASCEND_RUNNER_ATTEMPT"; exit 7'


def lines_of(folder: Path) -> list[bytes]:
    """Read the events, as many as there are."""
    path = folder / "job-events.jsonl"
    return path.read_bytes().splitlines(keepends=True) if path.exists() else []


def told(folder: Path) -> list[str]:
    """Return the states that the events report."""
    return [json.loads(line)["data"]["state"] for line in lines_of(folder)]


def end_of(folder: Path) -> Job:
    """Replay the events."""
    job = replay(lines_of(folder))
    assert job
    return job


@pytest.mark.deep(quick=1)
@pytest.mark.parametrize(
    ("script", "expected", "status"),
    [
        ("exit 0", ["succeeded"], 0),
        ("exit 3", ["failed"], 3),
        ("kill -KILL $$", ["failed"], 137),
    ],
)
def test_states_of_a_job(program: Program, script: str, expected: list[str], status: int) -> None:
    """A job is prepared, started, runs and ends; its events and its report agree on the end."""
    assert status == program.start("--nproc-per-node", "1", "sh", "-c", f"sleep 0.1; {script}").finish()
    job = end_of(program.log_dir)

    assert ["preparing", "starting", "running", *expected] == told(program.log_dir)
    assert (job.state.value, job.status) == (program.report()["state"], program.report()["status"])


@pytest.mark.deep
def test_report_has_the_state_of_the_moment(program: Program) -> None:
    """The report is replaced whenever the state changes."""
    run = program.act(2, "ignore=TERM", "say=ready", "sleep", options=("--grace", "60"))
    run.wait_for("ready", times=2)
    wait_until(lambda: program.report()["state"] == "running")
    run.send(signal.SIGTERM)
    wait_until(lambda: program.report()["state"] == "stopping")
    run.send(signal.SIGINT)  # kill now

    assert 143 == run.finish()
    assert "stopped" == program.report()["state"]


def test_events_have_their_own_ids(program: Program) -> None:
    """No two events of two runs have the same id; those of the earlier run are kept with its logs."""
    for _ in range(2):
        program.start("--nproc-per-node", "1", "true").finish()
    found = [json.loads(line) for folder in ("", "run-1") for line in lines_of(program.log_dir / folder)]

    assert len(found) == len({event["id"] for event in found})
    assert 2 == [event["data"]["state"] for event in found].count("succeeded")
    assert "succeeded" == told(program.log_dir)[-1]


@pytest.mark.deep(quick=2)
@pytest.mark.parametrize("least", [1, 2, 3, 4, 5, 6, 8, 10, 12, 14])
def test_killed_runner_leaves_whole_events_and_a_true_report(program: Program, least: int) -> None:
    """Killed at any moment of a job with restarts, the runner leaves whole lines, and a report of the state then."""
    options = ("--nproc-per-node", "2", "--max-restarts", "2", "--restart-delay", "0")
    run = program.start(*options, "sh", "-c", IN_TURN)
    wait_until(lambda: len(lines_of(program.log_dir)) >= least or run.popen.poll() is not None)
    for runner in process_tree.children(run.popen.pid):
        with suppress(ProcessLookupError):  # it has ended, and its guardian has reaped it
            os.kill(runner, signal.SIGKILL)
    run.finish()

    assert [] == contradictions(program.log_dir)
    assert least <= len(lines_of(program.log_dir)) or 7 == run.popen.returncode


@pytest.mark.deep(quick=1)
@pytest.mark.parametrize(
    ("options", "script", "ready"),
    [
        (("--rank-table", "/missing/table.json"), "exit 0", "waiting for the rank table"),
        ((), "echo ready; exec sleep 1000", "ready"),
        (("--checkpoint-grace", "600"), "trap 'exit 0' USR1; echo ready; while :; do sleep 0.01; done", "ready"),
        (("--max-restarts", "1", "--restart-delay", "1h"), "exit 7", "restarting in 1 h 0 min"),
    ],
    ids=["preparing", "running", "saving", "restarting"],
)
def test_killed_guardian(program: Program, options: tuple[str, ...], script: str, ready: str) -> None:
    """Events and report say that it was killed, with the exit status that a shell sees: nobody has sent SIGTERM."""
    ranks = () if "--rank-table" in options else ("--nproc-per-node", "1")
    run = program.start(*ranks, *options, "sh", "-c", script)
    run.wait_for(ready)
    pid, runner = run.popen.pid, run.runner_pid
    run.send(signal.SIGKILL)

    assert -signal.SIGKILL == run.finish()
    os.waitpid(runner, 0)
    (report,), (events,) = (list(program.log_dir.glob(f"job-{name}")) for name in ("report*.json", "events*.jsonl"))
    document, lines = json.loads(report.read_bytes()), events.read_bytes().splitlines()
    found = document["cause"]
    assert ("stopped", 137, "interrupted", 9) == (document["state"], document["status"], found["kind"], found["signal"])
    assert (137, f"ascend-runner (pid {pid}) was killed") == (
        json.loads(lines[-1])["data"]["status"],
        json.loads(lines[-1])["data"]["sentence"].removesuffix(" before any rank was started"),
    )
    assert b"SIGTERM" not in events.read_bytes()
    assert "received SIGTERM" not in run.screen

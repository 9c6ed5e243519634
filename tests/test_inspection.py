"""The inspection of a node during real jobs, with a fake npu-smi."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping
from pathlib import Path

import pytest

from ascend_runner.guardian import process_tree
from tests.helpers.job_files import contradictions
from tests.helpers.npu_tools import NPU_SMI, fake_npu_smi
from tests.helpers.program import Program, Run
from tests.helpers.waiting import wait_until

FOUND = "device 5 reported 80E24E00"
ALARM = f"health: {FOUND}"
TABLE = json.dumps(
    {
        "status": "completed",
        "version": "1.0",
        "server_count": "1",
        "server_list": [
            {"server_id": "10.0.0.1", "device": [{"device_id": "0", "device_ip": "192.0.2.1", "rank_id": "0"}]}
        ],
    }
)
WAIT_FOR_FILE = "while ! test -e go; do sleep 0.1; done; exit 7"


def start(program: Program, *options: str, script: str = WAIT_FOR_FILE, tool: str = NPU_SMI) -> Run:
    """Start a rank on a node where npu-smi behaves as this script."""
    env = {"PATH": f"{fake_npu_smi(program.folder, tool)}:{os.environ['PATH']}"}
    return program.start("--nproc-per-node", "1", *options, "sh", "-c", script, env=env)


def events(program: Program, kind: str) -> list[Mapping[str, object]]:
    """Return the data of all events of a kind."""
    return [data for data in program.events() if data["event"] == kind]


def go(program: Program) -> None:
    """Let the rank fail."""
    (program.folder / "go").touch()


def test_finding_before_a_failure(program: Program) -> None:
    """What was wrong with an NPU is reported when it is found, on the failure screen, in the report and the events."""
    run = start(program, "--inspect", "warn")
    run.wait_for(FOUND)
    go(program)

    assert 7 == run.finish()
    screen = run.screen.partition("ERROR rank 0 failed")[2]
    assert [f"  node   {FOUND}"] == [line[:35] for line in screen.splitlines() if " node " in line]
    assert ["unhealthy"] == [condition["condition"] for condition in program.report()["conditions"]]
    assert [("device 5: 80E24E00", True)] == [
        (finding["subject"], finding["is_error"]) for finding in program.report()["findings"]
    ]
    assert [True] == [data["is_error"] for data in events(program, "unhealthy")]
    assert [] == contradictions(program.log_dir)


def test_error_that_stops_the_job(program: Program) -> None:
    """With --inspect stop the ranks are stopped, the exit status is 124, and the cause is the finding."""
    run = start(program, "--inspect", "stop", "--max-restarts", "3")

    assert 124 == run.finish()
    assert "ERROR device 5 reported 80E24E00 (Alarm; the NPU must be reset) (--inspect stop)" in run.screen
    assert "unhealthy" == program.report()["cause"]["kind"]
    assert ["excluded"] == [attempt["verdict"] for attempt in program.report()["attempts"]]
    assert [] == contradictions(program.log_dir)


@pytest.mark.deep
def test_error_that_asks_for_a_checkpoint(program: Program) -> None:
    """With --inspect checkpoint the ranks are sent the signal for a checkpoint, and go on."""
    script = "trap 'touch asked' USR1; while ! test -e go; do sleep 0.1; done"
    run = start(program, "--inspect", "checkpoint", script=script)
    wait_until((program.folder / "asked").exists)
    go(program)

    assert 0 == run.finish()
    assert 1 == len(events(program, "checkpoint"))


def test_npu_smi_that_prints_what_nobody_knows(program: Program) -> None:
    """It is reported once, and the job goes on."""
    run = start(program, "--inspect", "stop", tool="echo nobody knows this")
    run.wait_for("npu-smi info printed no table in a known format")
    go(program)

    assert 7 == run.finish()
    assert 1 == run.screen.count("no table in a known format")
    assert 1 == len(events(program, "notice"))


@pytest.mark.deep
def test_no_inspection_without_npus(program: Program) -> None:
    """By default a node without NPUs has no process that inspects; one with --inspect warn has it until the end."""
    run = start(program)
    run.wait_for("starting rank")
    wait_until(lambda: len(process_tree.children(run.runner_pid)) == 1)
    go(program)
    assert 7 == run.finish()
    (program.folder / "go").unlink()

    run = start(program, "--inspect", "warn")
    run.wait_for(FOUND)
    wait_until(lambda: len(process_tree.children(run.runner_pid)) == 2)
    run.send(signal.SIGTERM)
    assert 143 == run.finish()
    assert "killed processes" not in run.screen


@pytest.mark.deep
def test_held_job_is_not_inspected(program: Program) -> None:
    """The inspection ends with the last attempt, however long the job is held."""
    run = start(program, "--inspect", "warn", "--hold", "1h")
    run.wait_for(FOUND)
    go(program)
    run.wait_for("release with")

    wait_until(lambda: not process_tree.children(run.runner_pid))
    run.send(signal.SIGTERM)
    assert 7 == run.finish()


@pytest.mark.deep(quick=1)
@pytest.mark.parametrize("with_guardian", [False, True], ids=["runner", "runner-and-guardian"])
def test_inspection_ends_with_a_killed_runner(program: Program, *, with_guardian: bool) -> None:
    """The process that inspects the node ends after SIGKILL to the runner, with or without its guardian."""
    run = start(program, "--inspect", "warn")
    run.wait_for(FOUND)
    wait_until(lambda: len(process_tree.children(run.runner_pid)) == 2)
    runner, children = run.runner_pid, process_tree.children(run.runner_pid)
    if with_guardian:
        run.send(signal.SIGKILL)
    os.kill(runner, signal.SIGKILL)
    go(program)

    assert run.finish() in {-signal.SIGKILL, 128 + signal.SIGKILL}
    wait_until(lambda: not any(map(process_tree.is_alive, children)))


def test_precheck_that_prevents_the_start(program: Program) -> None:
    """With --precheck stop an error ends the job before a rank starts, with exit status 125."""
    run = start(program, "--precheck", "stop", script="touch ran")

    assert 125 == run.finish()
    assert "ERROR the pre-check found 2 errors: health: device 5 reported 80CB8002" in run.screen
    assert not (program.folder / "ran").exists()
    assert "failed" == program.report()["state"]
    assert ALARM in "".join(str(one["sentence"]) for one in events(program, "precheck"))


def test_precheck_beside_the_ranks(program: Program) -> None:
    """With a table that is there at once the ranks start first; the result of the check beside them is an event."""
    (program.folder / "table.json").write_text(TABLE)
    run = program.start("--rank-table", "table.json", "sh", "-c", f"echo started; {WAIT_FOR_FILE}")
    run.wait_for("started")
    wait_until(lambda: events(program, "precheck-over"))
    go(program)

    assert 7 == run.finish()
    (found,) = events(program, "precheck-over")
    assert ("running", "the pre-check found") == (found["state"], str(found["sentence"])[:19])


@pytest.mark.deep(quick=1)
@pytest.mark.parametrize("is_completed", [True, False])
def test_precheck_while_the_table_is_awaited(program: Program, tmp_path: Path, *, is_completed: bool) -> None:
    """By default this node is checked during a wait, also for a table that never comes; the events have the findings.

    The job starts whatever is found.
    """
    table = tmp_path / "jobstart_hccl.json"
    env = {"PATH": f"{fake_npu_smi(program.folder, NPU_SMI)}:{os.environ['PATH']}"}
    place = ("--nnodes", "1", "--node-rank", "0")
    run = program.start("--rank-table", str(table), *place, "sh", "-c", "exit 7", env=env)
    run.wait_for(f"pre-check: {ALARM}")
    wait_until(lambda: ALARM in "".join(str(one["sentence"]) for one in events(program, "precheck")))
    table.write_text(TABLE if is_completed else "[]")

    assert (7 if is_completed else 125) == run.finish()
    assert ALARM in "".join(str(one["sentence"]) for one in program.report()["findings"])
    assert [] == contradictions(program.log_dir)

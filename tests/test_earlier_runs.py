"""The files in the log directory are those of the newest run, whatever became of an older one."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path

import pytest

from tests.helpers.program import Program, Run
from tests.helpers.waiting import is_gone, wait_until


def content(folder: Path) -> dict[Path, bytes]:
    """Read all files below a directory."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_report_of_a_killed_runner_does_not_tell_of_an_earlier_success(program: Program) -> None:
    """During a run, and after the runner was killed, the report says "running"; the success is in its directory."""
    assert 0 == program.act(1, "say=first").finish()
    assert "succeeded" == program.report()["state"]
    run = program.act(1, "say=second", "sleep")
    run.wait_for("second")
    wait_until(lambda: program.report()["state"] == "running")
    assert program.report()["status"] is None
    runner = run.runner_pid
    os.kill(runner, signal.SIGKILL)
    run.finish()
    wait_until(lambda: is_gone(runner))
    assert "running" == program.report()["state"]
    earlier = json.loads((program.log_dir / "run-1" / "job-report.json").read_bytes())
    assert ("succeeded", 0) == (earlier["state"], earlier["status"])


@pytest.mark.deep
def test_report_of_a_failure_is_kept(program: Program) -> None:
    """The next run moves the report of a failure beside its logs, and only so many runs are kept."""
    assert 3 == program.act(2, "exit=3").finish()
    for _ in range(2):
        assert 0 == program.act(1, options=("--log-runs", "2")).finish()

    assert {"run-1", "run-2"} == {path.name for path in program.log_dir.glob("run-*")}
    assert 3 == json.loads((program.log_dir / "run-1" / "job-report.json").read_bytes())["status"]
    assert (program.log_dir / "run-1" / "job-proc-rank-1-device-1.txt").exists()
    last = program.act(1, options=("--log-runs", "2"))
    assert 0 == last.finish()
    assert {"run-2", "run-3"} == {path.name for path in program.log_dir.glob("run-*")}
    assert "removed 1 earlier run from" in last.screen
    assert "runs-removed" in [event["event"] for event in program.events()]


@pytest.mark.deep
@pytest.mark.parametrize("is_shared", [False, True])
def test_only_success_survives_fifty_failures(program: Program, *, is_shared: bool) -> None:
    """By default 50 earlier runs are kept, and the newest success however old it is; a start says what it removes."""
    logs = program.folder / ("log" if is_shared else "logs")

    def start(status: int) -> Run:
        rank = ("--nproc-per-node", "1", "sh", "-c", f"exit {status}")
        run = program.start(*rank) if is_shared else program.start_plain(*rank)
        assert status == run.finish()
        return run

    def runs() -> list[Path]:
        return sorted(logs.glob("run-*" if is_shared else "sh-*"), key=lambda run: run.stat().st_mtime_ns)

    start(0)
    start(7)
    start(7)
    success, failure = runs()[:2]
    for number in range(49):
        copy = logs / (f"run-{3 + number}" if is_shared else f"{failure.name[:-6]}{number:06}")
        shutil.copytree(failure, copy)
        next(copy.glob("*-report.json")).touch()  # newer than the one that was copied
    newest = start(7)
    left = {*runs()}

    assert success in left
    assert failure not in left
    assert (51 if is_shared else 52) == len(left)
    kept = "the newest 50 and the newest success are kept (--log-runs)"
    assert f"removed 1 earlier run from '{logs}' ({failure.name}): {kept}\n" in newest.screen


def test_refused_start_touches_nothing(program: Program) -> None:
    """A second start of a running job is refused, and leaves every file as it is, the converted rank table as well."""
    server = {"server_id": "10.0.0.1", "device": [{"device_id": "0", "device_ip": "10.1.0.1", "rank_id": "0"}]}
    table = {"status": "completed", "version": "1.0", "server_count": "1", "server_list": [server]}
    (program.folder / "table.json").write_text(json.dumps(table))
    options = ("--no-table-checks", "--precheck", "off", "--rank-table", "table.json", "--workdir", "device")
    first = program.start(*options, "sh", "-c", "echo ready; exec sleep 1000")
    first.wait_for("ready")
    wait_until(lambda: program.log(0) == b"ready\n" and program.report()["state"] == "running")
    before = content(program.log_dir)
    server["device"][0]["device_ip"] = "10.1.0.2"  # type: ignore[index]  # of the table above
    (program.folder / "table.json").write_text(json.dumps(table))

    assert 125 == program.start(*options, "true").finish()
    assert before == content(program.log_dir)
    first.send(signal.SIGTERM)
    assert 143 == first.finish()


def test_runner_that_fails_says_so_in_the_report(program: Program) -> None:
    """An error of the runner after the directory was taken is the report's cause."""
    program.log_dir.mkdir()
    (program.log_dir / "device0").touch()
    run = program.act(1, options=("--workdir", "device"))

    assert 125 == run.finish()
    report = program.report()
    assert ("failed", 125, "runner_failed") == (report["state"], report["status"], report["cause"]["kind"])


def test_check_sees_a_folder_in_use(program: Program) -> None:
    """--check reports what a start would be refused for: a log directory that a running job writes to."""
    first = program.act(1, "say=ready", "sleep")
    first.wait_for("ready")
    run = program.start("--check", "--json", "--nproc-per-node", "1", "true")

    assert 1 == run.finish()
    found = json.loads(run.screen[run.screen.index("{") : run.screen.rindex("}") + 1])["checks"]
    assert ["error"] == [one["verdict"] for one in found if one["subject"] == "directories"]
    first.send(signal.SIGTERM)
    assert 143 == first.finish()

"""The records of a job that are written whenever its state changes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import attrs
import pytest

from ascend_runner.errors import AscendRunnerError, OutputError, StopRequestedError
from ascend_runner.job.end import End
from ascend_runner.node.bounded import Patience
from ascend_runner.plan.spec import JobSpec
from ascend_runner.record.facts import LimitChanged
from ascend_runner.record.nodes import JobVerdict, NodeRecord
from ascend_runner.record.rank_record import Outcome, RankRecord
from ascend_runner.report.job_writer import JobWriter
from ascend_runner.report.writing import write_last_cause
from ascend_runner.supervision.causes import Ending, Exited, HangDetected, NodeFinding, Restart, SignalReceived
from ascend_runner.supervision.events import Spawned
from ascend_runner.supervision.job_machine import (
    Action,
    AllStarted,
    DelayOver,
    Event,
    Failed,
    Job,
    JobState,
    Policy,
    Prepared,
    StopRequested,
    TeardownBegun,
    transition,
)
from tests.helpers.job_files import contradictions
from tests.helpers.plans import job_spec, rank_spec
from tests.helpers.planted import SECRETS, WORD
from tests.helpers.reports import read_report
from tests.helpers.waiting import LIMIT

FAILED = Outcome(cause=Exited(0, Ending(exit_code=7)), ranks=(RankRecord(rank_id=0, ending=Ending(exit_code=7)),))
PREPARED, ALL_STARTED, TEARDOWN = Prepared(), AllStarted(), TeardownBegun()
ENDED = Failed(status=7, restart=Restart.TRANSIENT, fingerprint="exit status 7")


class Run:
    """A job whose changes and ends are written, without any process."""

    def __init__(self, spec: JobSpec, warn: Callable[[str], None], termination_log: str = "") -> None:
        self.messages = SimpleNamespace(info=print, debug=print, warning=print, error=print, warnings=[])
        setup: Any = SimpleNamespace(
            patience=Patience(warn=warn),
            messages=self.messages,
            signals=Signals(),
            environ={},
            end_requests=lambda: None,
        )
        hooks: Any = SlowHooks(setup.signals)
        self.setup, self.job = setup, Job(policy=spec.restarts)
        self.writer = JobWriter(spec, setup.patience)
        self.writer.termination_log = termination_log or self.writer.termination_log
        self.end = End(setup, self.writer, hooks)
        self.writer.begin(b"{}")

    def feed(self, *events: Event) -> tuple[Action, ...]:
        """Change the state of the job; return the last actions."""
        actions: tuple[Action, ...] = ()
        for event in events:
            self.job, actions = transition(self.job, event)
            self.writer.change(self.job, event)
        return actions

    def end_attempt(self) -> tuple[Action, ...]:
        """End an attempt by a failure; return the actions."""
        actions = self.feed(ENDED)
        self.end.outcome = attrs.evolve(FAILED)  # another object than that of the attempt before
        self.end.report(self.job, ENDED)
        return actions

    def finish(self) -> Outcome:
        """Finish the job after its last attempt."""

        def feed(event: Event) -> tuple[Job, object]:
            actions = self.feed(event)
            return self.job, actions

        return self.end.finish(self.job, ENDED, feed)

    def fail(self, error: AscendRunnerError) -> None:
        """End the job by an error of the runner."""
        self.end.fail(error, self.feed)

    def stop(self) -> None:
        """Stop the job between two attempts."""
        stop = StopRequested(signum=15)
        self.feed(stop)
        self.end.report(self.job, stop)


class Signals:
    """Signals in virtual time, of which SIGTERM is the first."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> float:
        """Return the virtual time."""
        return self.seconds

    def wait_unless_stopped(self, seconds: float) -> None:
        """Let time pass."""
        self.seconds += seconds

    def first_stop(self) -> SignalReceived:
        """Return the signal."""
        return SignalReceived(15)

    def begin(self, _grace: float) -> None:
        """Let the guardian know that ranks are started."""

    def expect_end(self, _status: int) -> None:
        """Let the guardian know the exit status to come."""


class SlowHooks:
    """Hooks that need 25 s for each event, and are run once."""

    def __init__(self, signals: Signals) -> None:
        self._signals = signals

    def run(self, _event: str) -> None:
        """Run the hooks of an event."""
        self._signals.seconds += 25.0

    def run_last(self) -> None:
        """Run those for the end of a job that have not been run."""


def plan(folder: Path, max_restarts: int = 0) -> JobSpec:
    """Return the plan of a job that writes into a folder."""
    return job_spec([rank_spec()], log_dir=str(folder), restarts=Policy(max_restarts=max_restarts))


def begun(folder: Path, warnings: list[str], max_restarts: int = 0) -> Run:
    """Return a job that was begun."""
    return Run(plan(folder, max_restarts), warnings.append)


def report(folder: Path) -> dict[str, Any]:
    """Read the report."""
    return read_report(folder / "job-report.json")


def test_each_change_is_written(tmp_path: Path) -> None:
    """Events and report follow a job through two attempts; both are complete after `flush`."""
    warnings: list[str] = []
    run = begun(tmp_path, warnings, max_restarts=1)
    seen = [report(tmp_path)["state"]]
    for event in (PREPARED, ALL_STARTED, TEARDOWN):
        run.feed(event)
        run.writer.flush(LIMIT)
        seen.append(report(tmp_path)["state"])
    assert (Action.WAIT,) == run.end_attempt()
    run.writer.flush(LIMIT)
    restarting = report(tmp_path)
    run.feed(DelayOver())
    run.feed(PREPARED)
    assert () == run.end_attempt()
    document = run.writer.reports.newest

    assert ["preparing", "starting", "running", "stopping"] == seen
    assert ("restarting", None, 0, 1) == (
        restarting["state"],
        restarting["status"],
        restarting["attempt"],
        len(json.loads(json.dumps(restarting["attempts"]))),
    )
    assert json.loads(json.dumps(document)) == report(tmp_path)
    assert ("failed", 7, 1) == (document["state"], document["status"], document["attempt"])
    assert [] == contradictions(tmp_path) == warnings


def test_job_that_is_stopped_between_attempts(tmp_path: Path) -> None:
    """The records of the attempts stay as they are; the job was interrupted."""
    run = begun(tmp_path, [], max_restarts=1)
    run.feed(PREPARED)
    run.end_attempt()
    run.stop()
    document = run.writer.reports.newest

    assert (JobState.STOPPED.value, 143) == (document["state"], document["status"])
    assert [("rank_failed", 7)] == [
        (attempt["cause"]["kind"], attempt["status"]) for attempt in json.loads(json.dumps(document["attempts"]))
    ]


def test_errors_of_the_runner(tmp_path: Path) -> None:
    """An error of the runner and a stop signal before the first start are distinguished."""
    found = []
    for number, error in enumerate((OutputError("no room"), StopRequestedError(15, "SIGTERM"))):
        folder = tmp_path / str(number)
        folder.mkdir()
        begun(folder, []).fail(error)
        document = report(folder)
        found.append((document["state"], document["status"], document["cause"]["kind"], document["cause"]["signal"]))

    assert [("failed", 125, "runner_failed", None), ("stopped", 143, "interrupted", 15)] == found


def test_changed_limit_is_an_event(tmp_path: Path) -> None:
    """It changes no state, so that a replay passes over it."""
    run = begun(tmp_path, [])
    run.writer.observe(LimitChanged(3600.0), 0.0)
    run.writer.flush(LIMIT)
    last = (tmp_path / "job-events.jsonl").read_bytes().splitlines()[-1]

    assert "io.ascend-runner.job.limit-changed.v1" == json.loads(last)["type"]
    assert 3600.0 == json.loads(last)["data"]["limit"]
    assert [] == contradictions(tmp_path)


def test_verdict_and_nodes_of_a_job(tmp_path: Path) -> None:
    """The verdict of the nodes is an event without the lines of a log; the report of the attempt has both."""
    run = begun(tmp_path, [])
    run.feed(PREPARED, ALL_STARTED, TEARDOWN)
    verdict = JobVerdict(node=1, rank_id=3, sentence="rank 3 failed", kind="own", status=7, lines=("bad input",))
    run.writer.note_verdict(verdict)
    run.writer.note_nodes((NodeRecord(node=0, state="stopped"), NodeRecord(node=1, state="failed")))
    run.feed(ENDED)
    run.end.outcome = attrs.evolve(FAILED, verdict=verdict)
    run.end.report(run.job, ENDED)
    lines = (tmp_path / "job-events.jsonl").read_bytes().splitlines()
    (event,) = [data for data in (json.loads(line)["data"] for line in lines) if data["event"] == "verdict"]

    assert ("rank 3 on node 1 failed", 1, "stopping") == (event["sentence"], event["node"], event["state"])
    assert "lines" not in event
    assert [] == contradictions(tmp_path)
    assert ["stopped", "failed"] == [row["state"] for row in cast("Any", report(tmp_path)["nodes"])]
    assert ["bad input"] == cast("Any", report(tmp_path)["verdict"])["lines"]


def test_ranks_that_run_are_in_the_report(tmp_path: Path) -> None:
    """While an attempt runs, the report has each rank that was started, with its pid; the next attempt has its own."""
    run = begun(tmp_path, [], max_restarts=1)
    seen = [report(tmp_path)["ranks"]]
    run.feed(PREPARED)
    run.writer.observe(Spawned(rank_id=0, pid=4711), 0.0)
    run.feed(ALL_STARTED)
    run.writer.flush(LIMIT)
    running = report(tmp_path)["ranks"]
    run.feed(ENDED)
    run.feed(DelayOver())
    run.writer.flush(LIMIT)
    seen.append(report(tmp_path)["ranks"])

    assert isinstance(running, list)
    assert [(0, 4711, "running")] == [(rank["rank_id"], rank["pid"], rank["state"]) for rank in running]
    assert [[], []] == seen


def test_disk_without_room_is_told_once_for_each_file(tmp_path: Path) -> None:
    """A job whose events and report cannot be written goes on."""
    warnings: list[str] = []
    run = begun(tmp_path / "missing", warnings)
    run.feed(PREPARED, ALL_STARTED, TEARDOWN)
    run.end_attempt()

    assert JobState.FAILED is run.job.state
    assert 2 == len(warnings)


def test_missing_events_are_told_at_the_end(tmp_path: Path) -> None:
    """The end of the job says how many events a disk without room has not taken, once."""
    warnings: list[str] = []
    run = begun(tmp_path, warnings)
    (tmp_path / "job-events.jsonl").rename(tmp_path / "first")
    (tmp_path / "job-events.jsonl").mkdir()
    run.feed(PREPARED, ALL_STARTED)
    run.writer.flush(LIMIT)
    run.writer.close()
    run.writer.close()

    assert 2 == len(warnings)
    assert f"events missing from {str(tmp_path / 'job-events.jsonl')!r}: 2 of 3" == warnings[-1]


def test_end_between_two_attempts(tmp_path: Path) -> None:
    """It has its own time, which begins with the last attempt, and the cause tells of the failure before."""
    run = begun(tmp_path, [], max_restarts=1)
    run.feed(PREPARED, ALL_STARTED)
    run.end_attempt()
    run.stop()
    document = report(tmp_path)

    assert str(document["attempts"][0]["ended_at"]) < str(document["ended_at"])
    began, ended = (datetime.fromisoformat(str(document[name])) for name in ("started_at", "ended_at"))
    assert document["seconds"] == round((ended - began).total_seconds(), 3)
    cause = dict(document["cause"])
    assert "stopped by SIGTERM; the previous attempt failed: rank 0 failed: exit status 7" == cause["sentence"]


@pytest.mark.parametrize("secret", SECRETS)
def test_secrets(tmp_path: Path, secret: str) -> None:
    """Each one is masked and counted: in names of the node, errors, findings and warnings; in report and events."""
    warnings: list[str] = []
    spec = attrs.evolve(plan(tmp_path), server_id=secret, pod_name=secret)
    run = Run(spec, warnings.append, str(tmp_path / "log"))
    run.writer.flush(LIMIT)
    counts = [report(tmp_path)["secrets_masked"]]
    run.feed(PREPARED, ALL_STARTED)
    run.writer.observe(NodeFinding(subject="disk", sentence=secret, at=0.0), 0.0)
    run.messages.warnings.append(secret)
    run.end_attempt()
    counts.append(report(tmp_path)["secrets_masked"])
    other = tmp_path / "other"
    other.mkdir()
    failed = begun(other, [])
    failed.fail(OutputError(secret))
    failed.writer.flush(LIMIT)
    counts.append(report(other)["secrets_masked"])

    assert [] == [path for path in tmp_path.rglob("*") if path.is_file() and WORD in path.read_text()]
    assert [2, 5, 1] == counts


def test_finding_between_two_attempts(tmp_path: Path) -> None:
    """A finding that comes during the delay leaves the cause of the last attempt in the report."""
    run = begun(tmp_path, [], max_restarts=1)
    run.feed(PREPARED, ALL_STARTED)
    run.end_attempt()
    run.writer.flush(LIMIT)
    before = report(tmp_path)
    run.writer.observe(NodeFinding(subject="device 5", sentence="device 5 reported 80E01801", at=141.0), 0.0)
    run.writer.flush(LIMIT)
    document = report(tmp_path)

    assert before["cause"]
    assert (before["cause"], before["ranks"]) == (document["cause"], document["ranks"])
    assert 1 == len(cast("list[object]", document["findings"]))


def test_cause_for_kubernetes(tmp_path: Path) -> None:
    """The file gets the cause of the end, not that of a failure before a restart, and is never made."""
    file = tmp_path / "termination-log"
    for max_restarts, expected in ((1, "before"), (0, "rank 0 failed: exit status 7")):
        file.write_text("before")
        run = Run(plan(tmp_path, max_restarts), pytest.fail, str(file))
        run.feed(PREPARED, ALL_STARTED)
        run.end_attempt()

        assert expected == file.read_text()
    file.unlink()
    run.fail(OutputError("no room"))

    assert not file.exists()


def test_cause_for_kubernetes_is_cut(tmp_path: Path) -> None:
    """Kubernetes reads 4096 bytes; no character is cut in two."""
    file = tmp_path / "termination-log"
    file.touch()
    write_last_cause(str(file), "a" + "\u00e4" * 4096)

    assert "a" + "\u00e4" * 2047 == file.read_text(encoding="utf-8")


def test_hang_begins_with_the_silence(tmp_path: Path) -> None:
    """A hang is detected later than it begins."""
    run = begun(tmp_path, [])
    run.feed(PREPARED, ALL_STARTED)
    run.writer.observe(HangDetected(3600.0), 0.0)
    run.writer.flush(LIMIT)
    (condition,) = cast("list[dict[str, str]]", report(tmp_path)["conditions"])

    assert datetime.fromisoformat(condition["since"]).timestamp() < time.time() - 3599

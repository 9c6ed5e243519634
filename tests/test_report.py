"""The report of a job: what it says, and that it goes to JSON and back."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest

from ascend_runner import report
from ascend_runner.diagnosis.finding import Accused, Finding, Peer
from ascend_runner.diagnosis.stack_groups import StackGroup
from ascend_runner.job.plan import JobSpec, RankSpec
from ascend_runner.report import RankSeen, Report, Seen
from ascend_runner.supervision.events import Ending
from ascend_runner.supervision.outcome import Interrupted, Outcome, RankFailed, RankNotStarted, RankOutcome

if TYPE_CHECKING:
    from collections.abc import Iterator

NAN = Finding(exception="ValueError: loss is nan", last_lines=("a",), points_at=(Peer(rank_id=1),))


@pytest.fixture(autouse=True)
def _time_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let this be India, whose offset has minutes."""
    monkeypatch.setenv("TZ", "IST-5:30")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def rank_spec(rank_id: int) -> RankSpec:
    """Make the plan of a rank."""
    env = {
        "PATH": "/bin",
        "RANK_ID": str(rank_id),
        "OBS_SK": "hunter2",
        "ASCEND_PROCESS_LOG_PATH": f"/log/rank_{rank_id}",
    }
    return RankSpec(rank_id, rank_id, "/bin/python", ("python", "t.py"), env, "/job", f"/log/{rank_id}.txt", b"")


def job(ranks: int = 2, rank_size: int = 2, pod_name: str = "pod-0") -> JobSpec:
    """Make the plan of a job."""
    specs = tuple(map(rank_spec, range(ranks)))
    return JobSpec("job-7", specs, rank_size, "10.0.0.4", pod_name, 15.0, None, (0, 0), "/log", True, (), None)


SEEN = Seen(
    started_at=1_700_000_000.25,
    seconds=62.0,
    environ={"PATH": "/bin", "HOME": "/root"},
    ranks={
        0: RankSeen(0.5, 3 << 30, 50.5, 2.25, finding=NAN),
        1: RankSeen(0.75, log_lost=10, log_lost_from=4096),
    },
    sentence="rank 0 failed first: exit status 1",
    warnings=("odd",),
)
FAILED = Outcome(
    RankFailed(0, Ending(exit_code=1)),
    (
        RankOutcome(0, Ending(exit_code=1), pid=11, seconds=60.0, log_path="/log/0.txt", log_size=5000),
        RankOutcome(1, Ending(signum=15), is_told_to_stop=True, pid=12, seconds=61.0, log_path="/log/1.txt"),
    ),
)


def test_failed_job() -> None:
    """A failed job's report names the cause, and what became of each rank, with times, resources and losses."""
    made = report.make(FAILED, job(), SEEN)
    first, second = made.ranks

    assert ("job-7", 1, "10.0.0.4", "pod-0", 2, 62.0) == (
        made.job_id,
        made.status,
        made.server_id,
        made.pod_name,
        made.rank_size,
        made.seconds,
    )
    assert ("2023-11-15T03:43:20.250+05:30", "2023-11-15T03:44:22.250+05:30") == (made.started_at, made.ended_at)
    assert made.cause == report.CauseReport("rank_failed", "rank 0 failed first: exit status 1", rank_id=0)
    assert ("failed", 1, None, 11) == (first.state, first.exit_code, first.signal, first.pid)
    assert ("2023-11-15T03:43:20.750+05:30", "2023-11-15T03:44:20.750+05:30") == (first.started_at, first.ended_at)
    assert (3 << 30, 50.5, 2.25) == (first.max_rss, first.user_seconds, first.system_seconds)
    assert NAN == first.finding
    assert ("stopped", None, 15) == (second.state, second.exit_code, second.signal)
    assert (10, 4096) == (second.log_lost, second.log_lost_from)


def test_secrets() -> None:
    """No secret is in a report."""
    made = report.make(FAILED, job(), SEEN)

    assert "***" == made.ranks[0].variables["OBS_SK"]
    assert "hunter2" not in json.dumps(report.encode(made))


def test_running_a_rank_again() -> None:
    """Each rank's report holds its folder, the variables that the runner changed, and the line that runs it again."""
    rank = report.make(FAILED, job(), SEEN).ranks[1]

    assert ("/job", "/log/rank_1") == (rank.cwd, rank.process_log_path)
    assert {"RANK_ID", "OBS_SK", "ASCEND_PROCESS_LOG_PATH"} == set(rank.variables)
    assert rank.rerun.startswith("cd /job && env -u HOME ASCEND_PROCESS_LOG_PATH=/log/rank_1 ")


def test_successful_job() -> None:
    """A report is made of a success, too."""
    outcome = Outcome(None, (RankOutcome(0, Ending(), pid=5), RankOutcome(1, Ending(), pid=6)))
    made = report.make(outcome, job(), SEEN)

    assert (0, None) == (made.status, made.cause)
    assert ["succeeded", "succeeded"] == [rank.state for rank in made.ranks]


def test_ranks_without_an_ending() -> None:
    """A rank that was not started has no times; one that cannot be killed has no end."""
    outcome = Outcome(
        RankNotStarted(1, "no such file", 127),
        (RankOutcome(0, None, pid=5, is_told_to_stop=True), RankOutcome(1, None, is_started=False)),
    )
    made = report.make(outcome, job(), SEEN)

    assert ["not_killed", "not_started"] == [rank.state for rank in made.ranks]
    assert [True, False] == [bool(rank.started_at) for rank in made.ranks]
    assert ["", ""] == [rank.ended_at for rank in made.ranks]
    assert made.cause
    assert ("rank_not_started", 1) == (made.cause.kind, made.cause.rank_id)


def test_stopped_job() -> None:
    """A job that was told to stop names the signal."""
    made = report.make(Outcome(Interrupted(15), ()), job(), SEEN)

    assert made.cause
    assert ("interrupted", None, 15) == (made.cause.kind, made.cause.rank_id, made.cause.signal)


def test_round_trip() -> None:
    """A report that is written as JSON and read again is the same."""
    hang = (StackGroup((1,), "sleeping", ("f (x.py:1)",)),)
    made = report.make(FAILED, job(), SEEN._replace(accused=Accused(1, "10.0.0.5", 3, (0,)), hang=hang))

    assert made == report.decode(json.loads(json.dumps(report.encode(made))))


def test_schema_version() -> None:
    """Each report says by which schema it was written."""
    assert 1 == report.encode(Report("job", 0))["schema_version"]


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("job-7-report.json", job()),
        ("job-7-report-pod-0.json", job(rank_size=16)),
        ("job-7-report-10.0.0.4.json", job(rank_size=16, pod_name="")),
        ("job-7-report-.._.._x_.json", job(rank_size=16, pod_name="../../x\n")),
        ("job-7-report-rank-0.json", job(ranks=1, rank_size=0)._replace(is_passed_through=True)),
        ("job-7-report-rank-0.json", job(ranks=1, rank_size=1)._replace(is_passed_through=True)),
        ("job-7-report-pod-0.json", job(ranks=0, rank_size=0)),
    ],
)
def test_file_name(name: str, made: JobSpec) -> None:
    """Where several nodes may write to one folder each report is named by its node, and stays in its folder."""
    assert name == report.file_name(made)

"""The report of a job: its fields and its file."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import attrs
import pytest

from ascend_runner.diagnosis.finding import Certainty, Finding, Peer, RootCause, StackGroup
from ascend_runner.errors import OutputError
from ascend_runner.node.bounded import PATIENT
from ascend_runner.plan.spec import JobSpec, RankSpec
from ascend_runner.record.job_record import SCHEMA_VERSION, JobRecord
from ascend_runner.record.rank_record import Outcome, RankRecord, RankState
from ascend_runner.report import job_writer
from ascend_runner.report.writing import composed, encode
from ascend_runner.supervision.causes import Ending, Exited, SignalReceived, SpawnFailed
from ascend_runner.supervision.events import Spawned
from ascend_runner.views import wording
from tests.helpers import plans

NAN = Finding(exception="ValueError: loss is nan", last_lines=("a",), points_at=(Peer(rank_id=1),))


@pytest.fixture(autouse=True)
def _time_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Use India's time zone, whose offset has minutes."""
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
    return plans.rank_spec(rank_id, argv=("python", "t.py"), env=env, cwd="/job")


def job(ranks: int = 2, rank_size: int = 2, pod_name: str = "pod-0") -> JobSpec:
    """Make the plan of a job."""
    specs = tuple(map(rank_spec, range(ranks)))
    return plans.job_spec(
        specs, job_id="job-7", rank_size=rank_size, server_id="10.0.0.4", pod_name=pod_name, has_own_process_logs=True
    )


def handed_over(pod_name: str, rank_size: int = 16, **changes: object) -> JobSpec:
    """Return the plan of a job whose ranks another engine starts."""
    made = job(ranks=0, rank_size=rank_size, pod_name=pod_name)
    return attrs.evolve(made, beside=(plans.rank_spec(-1, name="torchrun"),), **changes)  # type: ignore[arg-type]  # names of fields


FAILED = Outcome(
    cause=Exited(0, Ending(exit_code=1)),
    ranks=(
        RankRecord(
            rank_id=0,
            ending=Ending(exit_code=1),
            pid=11,
            started_after=0.5,
            seconds=60.0,
            max_rss=3 << 30,
            user_seconds=50.5,
            system_seconds=2.25,
            log_size=5000,
            finding=NAN,
        ),
        RankRecord(
            rank_id=1,
            ending=Ending(signum=15),
            state=RankState.STOPPED,
            pid=12,
            started_after=0.75,
            seconds=61.0,
            log_lost=10,
            log_lost_from=4096,
            rerun="true",
        ),
    ),
    started_at=1_700_000_000.25,
    seconds=62.0,
)


def recorded(outcome: Outcome, spec: JobSpec) -> JobRecord:
    """Return the record of a job that has ended."""
    ended = job_writer.of_outcome(outcome, job_writer.of_plan(spec, outcome.started_at))
    return attrs.evolve(ended, status=outcome.status)


def report_of(outcome: Outcome, spec: JobSpec | None = None) -> Any:  # Any: what JSON contains
    """Write the report of a job, of two ranks without a plan, and read it again."""
    return json.loads(encode(composed(recorded(outcome, spec or job()))))


def test_failed_job() -> None:
    """The report of a failed job has the cause and, for each rank, its state, times, resources and losses."""
    made = report_of(FAILED)
    first, second = made["ranks"]

    assert ("job-7", 1, "10.0.0.4", "pod-0", 2, 62.0) == tuple(
        made[name] for name in ("job_id", "status", "server_id", "pod_name", "rank_size", "seconds")
    )
    assert "2023-11-15T03:43:20.250+05:30" == made["started_at"]
    assert "2023-11-15T03:44:22.250+05:30" == made["ended_at"]
    assert {
        "kind": "rank_failed",
        "sentence": str(FAILED.cause),
        "rank_id": 0,
        "first_exit": 0,
        "alike": [],
        "certainty": "",
        "is_agreed": False,
        "candidates": [],
        "is_elsewhere": False,
        "signal": None,
        "may_be_a_peer": False,
        "is_a_consequence": False,
        "suspected_peer": None,
    } == made["cause"]
    assert ("failed", 1, None, 11) == (first["state"], first["exit_code"], first["signal"], first["pid"])
    assert "2023-11-15T03:43:20.750+05:30" == first["started_at"]
    assert "2023-11-15T03:44:20.750+05:30" == first["ended_at"]
    assert (3 << 30, 50.5, 2.25) == (first["max_rss"], first["user_seconds"], first["system_seconds"])
    assert NAN.exception == first["finding"]["exception"]
    assert ("stopped", None, 15) == (second["state"], second["exit_code"], second["signal"])
    assert (10, 4096) == (second["log_lost"], second["log_lost_from"])


def test_several_nodes() -> None:
    """The report of one of several nodes has its number and what to think of a lost peer."""
    root = RootCause(rank_id=0, summary="lost", certainty=Certainty.OPEN, may_be_a_peer=True, alike=(0, 1))
    spec = attrs.evolve(job(), node_number=3, nodes=(4, 5), platform="Slurm", framework="torch")
    made = report_of(attrs.evolve(FAILED, root=root), spec)

    assert (3, 4) == (made["node_rank"], made["node_count"])
    assert ("Slurm", "torch") == (made["platform"], made["framework"])
    assert (True, False) == (made["cause"]["may_be_a_peer"], made["cause"]["is_a_consequence"])
    assert [0, 1] == made["cause"]["alike"]


def test_successful_job() -> None:
    """A successful job has no cause."""
    made = report_of(
        Outcome(cause=None, ranks=tuple(RankRecord(rank_id=rank_id, ending=Ending()) for rank_id in (0, 1)))
    )

    assert (0, None) == (made["status"], made["cause"])
    assert ["succeeded"] * 2 == [rank["state"] for rank in made["ranks"]]


def test_ranks_without_an_ending() -> None:
    """A rank that was not started has no times; one that survived SIGKILL has no end."""
    made = report_of(
        Outcome(
            cause=SpawnFailed(rank_id=1, reason="no such file", exit_status=127),
            ranks=(
                RankRecord(rank_id=0, pid=5),
                RankRecord(rank_id=1, state=RankState.NOT_STARTED),
            ),
        )
    )

    assert ["not_killed", "not_started"] == [rank["state"] for rank in made["ranks"]]
    assert [True, False] == [bool(rank["started_at"]) for rank in made["ranks"]]
    assert ["", ""] == [rank["ended_at"] for rank in made["ranks"]]
    assert ("rank_not_started", 1) == (made["cause"]["kind"], made["cause"]["rank_id"])


def test_stopped_job() -> None:
    """The cause of a job that was stopped has the signal."""
    cause = report_of(Outcome(cause=SignalReceived(15)))["cause"]

    assert ("interrupted", None, 15) == (cause["kind"], cause["rank_id"], cause["signal"])


def test_job_that_has_not_ended() -> None:
    """A report has the same members at any time, with no end, status or cause until the job has them."""
    writer = job_writer.JobWriter(job(), PATIENT)
    writer.observe(Spawned(rank_id=0, pid=11), 0.0)
    made: Any = writer.record.encode()
    (rank,) = made["ranks"]

    assert list(report_of(FAILED)) == list(made)
    assert (None, "", None) == (made["status"], made["ended_at"], made["cause"])
    assert list(report_of(FAILED)["ranks"][0]) == list(rank)
    assert ("running", 11, "", None) == (rank["state"], rank["pid"], rank["ended_at"], rank["log_size"])


def test_job_that_the_runner_could_not_run() -> None:
    """The error is the cause, with the members that every cause has."""
    made: Any = attrs.evolve(job_writer.of_plan(job(), 60.0), cause=wording.of_error(OutputError("no room"))).encode()

    assert {
        **report_of(FAILED)["cause"],
        "kind": "runner_failed",
        "sentence": "no room",
        "rank_id": None,
        "first_exit": None,
        "alike": [],
    } == made["cause"]


def test_document() -> None:
    """The file contains every field of nested records, as objects."""
    suspected = Peer(rank_id=1, server_id="10.0.0.5", device_id=3, reported_by=(0,))
    hang = (StackGroup(rank_ids=(1,), state="sleeping", frames=("f (x.py:1)",)),)
    document = report_of(attrs.evolve(FAILED, suspected_peer=suspected, hang=hang))

    assert {field.name for field in attrs.fields(Finding)} == set(document["ranks"][0]["finding"])
    assert [0] == document["cause"]["suspected_peer"]["reported_by"]
    assert [{"rank_ids": [1], "state": "sleeping", "frames": ["f (x.py:1)"], "has_changed": None}] == document["hang"]
    assert SCHEMA_VERSION == document["schema_version"]


def test_one_line_for_each_rank() -> None:
    """Grep finds a rank's part of the file on one line."""
    lines = encode(composed(recorded(FAILED, job()))).splitlines()

    assert 2 == sum(line.startswith(b'  {"rank_id":') for line in lines)


def test_bytes_that_are_not_utf8() -> None:
    """A path that is not UTF-8 is escaped instead of costing the report."""
    outcome = attrs.evolve(FAILED, ranks=(attrs.evolve(FAILED.ranks[0], log_path="/log/\udcff"),))

    assert "/log/\\udcff" == report_of(outcome)["ranks"][0]["log_path"]


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("job-7-report.json", job()),
        ("job-7-report-node-0.json", attrs.evolve(job(rank_size=16), node_number=0)),
        ("job-7-report-rank-0.json", job(ranks=1, rank_size=16)),
        ("job-7-report-.._.._x_.json", handed_over(pod_name="../../x\n", is_passed_through=True)),
        ("job-7-report-10.0.0.4.json", handed_over(pod_name="", is_passed_through=True)),
        ("job-7-report.json", handed_over(pod_name="pod-0")),
        ("job-7-report-rank-0.json", attrs.evolve(job(ranks=1, rank_size=0), is_passed_through=True)),
        ("job-7-report-rank-0.json", attrs.evolve(job(ranks=1, rank_size=1), is_passed_through=True)),
        ("job-7-report-pod-0.json", handed_over(pod_name="pod-0", rank_size=0, is_passed_through=True)),
        ("job-7-report.json", job(ranks=0, rank_size=0)),
        ("job-7-report-node-1.json", attrs.evolve(job(ranks=0, rank_size=0), node_number=1)),
    ],
)
def test_file_name(name: str, made: JobSpec) -> None:
    """If nodes may share the directory, the name contains the node; it never leaves the directory.

    A plan without processes waits for the ranks of its node.
    """
    assert f"/log/{name}" == made.report_path


def test_times_differ_by_the_seconds() -> None:
    """Start, end and duration agree to the millisecond, whatever is lost when they are rounded."""
    for number in range(1000):
        began, seconds = 1795400000 + number * 0.00037, number * 0.01111
        rank = RankRecord(rank_id=0, ending=Ending(exit_code=1), started_after=number * 0.00071, seconds=seconds)
        outcome = Outcome(cause=None, started_at=began, seconds=seconds, ranks=(rank,))
        made = recorded(outcome, job(ranks=1))
        later: Any = attrs.evolve(made, seconds=began + seconds - round(began, 3)).encode()
        report: Any = made.encode()

        for record in (report, *report["ranks"], later):
            start, end = (datetime.fromisoformat(record[name]) for name in ("started_at", "ended_at"))

            assert record["seconds"] == round((end - start).total_seconds(), 3)

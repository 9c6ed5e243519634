"""The events of a job: lines of CloudEvents, which lead through the state machine to the same job again."""

from __future__ import annotations

import json

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascend_runner.supervision import cloud_events, job_machine
from ascend_runner.supervision.causes import Restart
from ascend_runner.supervision.job_machine import EVENTS, AllStarted, Event, Failed, Job, Policy, Prepared, RunnerFailed
from ascend_runner.supervision.state import Phase
from tests.helpers.replay import replay

ORIGIN = cloud_events.origin("job", "", "1-2")
AT = "2026-11-22T03:12:45.000+00:00"
POLICY = Policy(
    max_restarts=3,
    always=frozenset({3, 139}),
    never=frozenset({2}),
    delay=1.5,
    gives_verdict=True,
    hold=60.0,
    linger=30.0,
)

VALUES = {
    "status": st.integers(0, 255),
    "signum": st.integers(0, 64),
    "restart": st.sampled_from(Restart),
    "fingerprint": st.text(max_size=20),
    "has_progressed": st.sampled_from((True, False, None)),
    "is_clear": st.booleans(),
    "is_local": st.sampled_from((True, False, None)),
    "sentence": st.text(st.characters(), max_size=50),
}


def happening(kind: type[Event]) -> st.SearchStrategy[Event]:
    """Return the events of a kind."""
    return st.builds(kind, **{field.name: VALUES[field.name] for field in attrs.fields(kind) if field.name in VALUES})


happenings = st.one_of(list(map(happening, EVENTS)))


def line(job: Job, event: Event | None, number: int = 1) -> bytes:
    """Encode one event."""
    data = cloud_events.members(job, event)
    return cloud_events.encode(job.state.value, data, ORIGIN, number=number, at=AT)


@given(st.lists(happenings, max_size=40))
def test_replay_gives_the_state(happened: list[Event]) -> None:
    """The lines of any history lead to the job as it was, after each of them, and hold its state."""
    job = Job(policy=POLICY)
    lines = [line(job, None)]
    for event in happened:
        before = job
        job, _actions = job_machine.transition(job, event)
        if job.state is not before.state:
            lines.append(line(job, event))
            assert job.state.value == json.loads(lines[-1])["data"]["state"]
        assert job == replay(lines)


def test_last_line_has_the_exit_status_of_the_job() -> None:
    """A stop signal during a teardown decides on the exit status; that of the attempt is reported as well."""
    job = Job(policy=Policy(max_restarts=1), state=Phase.TERMINATING)
    ended = Failed(status=7, signum=15, restart=Restart.TRANSIENT)
    job, _actions = job_machine.transition(job, ended)
    data = json.loads(line(job, ended))["data"]

    assert ("stopped", 143, 7) == (data["state"], data["status"], data["attempt_status"])


def test_line_that_is_cut_off_does_not_count() -> None:
    """A file that ends in the middle of a line leads to the job before it, and an empty one to none."""
    job = Job(policy=POLICY)
    began = line(job, None)
    started = line(job_machine.transition(job, Prepared())[0], Prepared())

    for size in range(len(started)):
        assert job == replay([began, started[:size]])
    assert replay([]) is None
    assert replay([began[:-1]]) is None


def test_line_about_the_size_changes_nothing() -> None:
    """A job with fewer nodes is an event of its own, and replaying it leads to the same job."""
    job = Job(policy=POLICY)
    lines = [
        line(job, None),
        cloud_events.encode("resized", {"event": "resized", "nodes": 3, "nnodes": 4}, ORIGIN, number=2, at=AT),
    ]
    document = json.loads(lines[1])

    assert job == replay(lines)
    assert "io.ascend-runner.job.resized.v1" == document["type"]
    assert {"event": "resized", "nodes": 3, "nnodes": 4} == document["data"]


def test_cloud_event() -> None:
    """A line has the attributes that CloudEvents 1.0 requires, and its type is the state."""
    job = Job(policy=POLICY, state=Phase.RUNNING)
    document = json.loads(line(job, AllStarted(), 7))

    assert {
        "specversion": "1.0",
        "id": "1-2-7",
        "source": "/ascend-runner/job",
        "type": "io.ascend-runner.job.running.v1",
        "time": AT,
        "datacontenttype": "application/json",
        "data": {"state": "running", "attempt": 0, "event": "all_started"},
    } == document


@pytest.mark.parametrize("sentence", ["x" * 10_000, "\udc80" * 3000, "誤" * 3000, "\n\0\\" * 3000])
def test_line_is_whole_whatever_the_sentence(sentence: str) -> None:
    """A line has at most 4096 bytes and one newline, and can be read again."""
    event = RunnerFailed(status=125, sentence=sentence)
    job, _actions = job_machine.transition(Job(policy=POLICY), event)
    encoded = line(job, event)

    assert (True, 1) == (len(encoded) <= 4096, encoded.count(b"\n"))
    assert sentence.startswith(json.loads(encoded)["data"]["sentence"])
    assert job == replay([line(Job(policy=POLICY), None), encoded])


def test_source_is_a_uri() -> None:
    """Whatever a job is called, its source has only characters of a URI."""
    assert "/ascend-runner/a%20b%25-node-1" == cloud_events.origin("a b%", "-node-1", "").source
    assert "/ascend-runner/%E8%AA%A4%FF" == cloud_events.origin("誤\udcff", "", "").source

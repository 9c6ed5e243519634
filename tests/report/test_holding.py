"""The sentences after an attempt of a job: how often it was started."""

from __future__ import annotations

import pytest

from ascend_runner.lifecycle import job_machine
from ascend_runner.lifecycle.job_machine import Event, Job, Kind, Policy
from ascend_runner.report import holding
from ascend_runner.supervision.causes import Restart
from ascend_runner.supervision.state import Phase

FAILURE = Event(kind=Kind.ENDED, status=7, restart=Restart.TRANSIENT, fingerprint="exit status 7")
AGAIN = (FAILURE, Event(kind=Kind.DELAY_OVER), Event(kind=Kind.PREPARED))


@pytest.mark.parametrize(
    ("policy", "events", "expected"),
    [
        (Policy(), (Event(kind=Kind.ENDED),), ""),
        (Policy(), (FAILURE,), ""),
        (Policy(max_restarts=3), (Event(kind=Kind.ENDED),), ""),
        (Policy(max_restarts=3), (*AGAIN, *AGAIN, Event(kind=Kind.ENDED)), "\n  tries  3 attempts"),
        (Policy(max_restarts=3), (*AGAIN, Event(kind=Kind.LIMIT_REACHED)), "\n  tries  2 attempts"),
        (Policy(max_restarts=3), (*AGAIN, Event(kind=Kind.ENDED, status=143)), "\n  tries  2 attempts"),
    ],
)
def test_number_of_attempts(policy: Policy, events: tuple[Event, ...], expected: str) -> None:
    """A job that was restarted says how often, however it ends; one that was not has nothing to say."""
    job = Job(policy=policy, state=Phase.RUNNING)
    for event in events:
        job, _actions = job_machine.transition(job, event)

    assert job.state.is_final
    assert expected == holding.attempts(job)

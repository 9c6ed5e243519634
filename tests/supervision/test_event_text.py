"""What people read of the events of a job."""

from __future__ import annotations

import attrs
import pytest

from ascend_runner.diagnosis import failure
from ascend_runner.members import plain
from ascend_runner.supervision import cloud_events, job_machine
from ascend_runner.supervision.causes import Cause, Ending, Exited, HangDetected, NodeFinding, Restart, Rule, Slowdown
from ascend_runner.supervision.job_machine import Failed, Job, Policy
from ascend_runner.supervision.state import Phase
from ascend_runner.views import screen


def described(**data: object) -> str:
    """Return the text of an event of a running job."""
    return cloud_events.described({"time": "2026-11-22T15:00:00+00:00", "data": {"state": "running", **data}})[2]


def test_figures_of_a_slow_training_are_in_its_sentence_only() -> None:
    """The figures that a program reads are not shown again; other members are."""
    slow = Slowdown(rule=Rule.STRAGGLER, rank_id=3, own=0.2, reference=0.1, step=70, device=3, temperature=71)
    members = plain({"condition": cloud_events.SLOW, **attrs.asdict(slow), "sentence": str(slow)})

    assert str(slow) == described(event=cloud_events.SLOW, **members)
    assert f"{slow}, nodes 3" == described(event=cloud_events.SLOW, **members, nodes=3)


def test_teardown_after_a_success() -> None:
    """All ranks have ended, so there is no cause to name; the text is not the name of the event."""
    assert "processes that ranks have left behind" in described(event="teardown", state="stopping")


def test_figures_of_a_hang_are_in_its_sentence_only() -> None:
    """The same holds for a hang."""
    hang = HangDetected(60.0)

    assert str(hang) == described(event=cloud_events.HANGING, **attrs.asdict(hang), sentence=str(hang))


def test_verdict_in_words() -> None:
    """The members that a program reads are not shown again."""
    members = {"node": 1, "rank_id": 3, "kind": "own", "certainty": "likely", "status": 7, "tied": [], "missing": [2]}
    text = described(event=cloud_events.VERDICT, sentence="rank 3 on node 1 failed", restarts=False, **members)

    assert "verdict of all nodes: rank 3 on node 1 failed" == text


@pytest.mark.parametrize(
    ("cause", "action", "option"),
    [
        (HangDetected(60.0), Restart.EXCLUDED, "--hang-action stop"),
        (Slowdown(rule=Rule.DROP, rank_id=0, own=2.0, reference=1.0), Restart.EXCLUDED, "--perf-action stop"),
        (NodeFinding(subject="device 5: x", sentence="x", at=0.0), Restart.EXCLUDED, "--inspect stop"),
        (HangDetected(60.0), Restart.TRANSIENT, "--no-restart-on"),
        (Exited(0, Ending(exit_code=3)), Restart.CONFIRM, "--no-restart-on"),
    ],
)
def test_option_that_excludes_a_restart(cause: Cause, action: Restart, option: str) -> None:
    """Events and screen name the option that keeps a job from being restarted, and no other one."""
    never = frozenset({cause.exit_status} if action is not Restart.EXCLUDED else ())
    fingerprint = failure.fingerprint(cause, Ending(exit_code=3), None)
    ended = Failed(status=cause.exit_status, restart=action, fingerprint=fingerprint)
    running = Job(policy=Policy(max_restarts=1, never=never), state=Phase.RUNNING)
    job, _actions = job_machine.transition(running, ended)
    event = {"time": "2026-11-22T15:00:00", "data": cloud_events.members(job, ended)}

    expected = f"; no restart: disabled by {option}"
    assert cloud_events.described(event)[2].endswith(expected)
    assert screen.attempts(job).endswith(expected)


def test_signal_that_stops_a_job_after_a_failure() -> None:
    """The text of a failure that a stop signal keeps from being restarted names the signal."""
    text = described(event="ended", status=7, signum=15, verdict="stopped", sentence="rank 1 failed: exit status 7")

    assert "rank 1 failed: exit status 7; no restart: the job was stopped by SIGTERM" == text


@pytest.mark.parametrize(
    ("attempt", "expected"),
    [
        ({"verdict": None}, ""),
        ({"verdict": "not_wanted"}, ""),
        ({"verdict": "restart", "delay": 10.0}, "restart in 10 s"),
        ({"verdict": "restart", "delay": 0.0}, "restart at once"),
        ({"verdict": "used_up"}, "no restart: the limit of --max-restarts is reached"),
        ({"verdict": "excluded", "restart": "transient"}, "no restart: disabled by --no-restart-on"),
        ({"verdict": "excluded", "restart": "excluded"}, "no restart: disabled by an option"),
        ({"verdict": "of a later version"}, ""),
    ],
)
def test_decision_after_an_attempt(attempt: dict[str, object], expected: str) -> None:
    """Its record in a report is enough, also in one without fingerprints."""
    assert expected == cloud_events.decision(attempt)

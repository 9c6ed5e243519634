"""What people read of the events of a job."""

from __future__ import annotations

import attrs

from ascend_runner.lifecycle import event_text, events
from ascend_runner.report import document
from ascend_runner.supervision.events import HangDetected, Rule, Slowdown


def described(**data: object) -> str:
    """Return the text of an event of a running job."""
    return event_text.described({"time": "2026-11-22T15:00:00+00:00", "data": {"state": "running", **data}})[2]


def test_figures_of_a_slow_training_are_in_its_sentence_only() -> None:
    """The figures that a program reads are not shown again; other members are."""
    slow = Slowdown(rule=Rule.STRAGGLER, rank_id=3, own=0.2, reference=0.1, step=70, device=3, temperature=71)
    members = document.plain_members({"condition": events.SLOW, **attrs.asdict(slow), "sentence": str(slow)})

    assert str(slow) == described(event=events.SLOW, **members)
    assert f"{slow}, nodes 3" == described(event=events.SLOW, **members, nodes=3)


def test_figures_of_a_hang_are_in_its_sentence_only() -> None:
    """The same holds for a hang."""
    hang = HangDetected(60.0)

    assert str(hang) == described(event=events.HANGING, **attrs.asdict(hang), sentence=str(hang))


def test_signal_that_stops_a_job_after_a_failure() -> None:
    """The text of a failure that a stop signal keeps from being restarted names the signal."""
    text = described(event="ended", status=7, signum=15, verdict="stopped", sentence="rank 1 failed: exit status 7")

    assert "rank 1 failed: exit status 7; no restart: the job was stopped by SIGTERM" == text

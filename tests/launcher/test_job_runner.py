"""What a runner does between the attempts of its job, in virtual time."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ascend_runner.launcher.job_runner import JobRunner
from ascend_runner.lifecycle.state import Event, Kind
from ascend_runner.observations.rank_record import Outcome
from tests.report.test_journal import ENDED, FAILED, begun, report


class Signals:
    """Time that passes only in waits."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> float:
        """Return the virtual time."""
        return self.seconds

    def wait_unless_stopped(self, seconds: float) -> None:
        """Let time pass."""
        self.seconds += seconds


class Released(JobRunner):
    """A runner whose job has been held until now."""

    def release(self) -> Outcome:
        """Report that it is no longer held."""
        self._outcome = FAILED
        self._release(Event(kind=Kind.RELEASED, sentence="over"))
        return self._outcome


class WithSlowHooks(JobRunner):
    """A runner whose hooks need 25 s for each event."""

    def _run_hooks(self, event: str) -> None:
        self._signals.wait_unless_stopped(25.0 if event else 0.0)

    def hold(self) -> Event:
        """Keep the job."""
        return self._hold()


def test_hold_ends_when_it_was_said_to_end() -> None:
    """The time of the hooks counts: the end of the hold was shown, and is in the report, before they run."""
    signals = Signals()
    setup: Any = SimpleNamespace(signals=signals, messages=SimpleNamespace(warning=print), environ={})
    journal: Any = SimpleNamespace(job=SimpleNamespace(delay=60.0))
    console: Any = None

    event = WithSlowHooks(setup, journal, console).hold()

    assert (Kind.RELEASED, 60.0) == (event.kind, signals.seconds)


def test_report_of_a_job_that_is_released(tmp_path: Path) -> None:
    """The outcome names the file with the last report, also if there was no room for it while the job was held."""
    messages = SimpleNamespace(info=print, debug=print, warning=print)
    setup: Any = SimpleNamespace(signals=Signals(), messages=messages, environ={})
    console: Any = None
    journal = begun(tmp_path, [])
    journal.feed(Event(kind=Kind.PREPARED))
    journal.feed(ENDED)

    outcome = Released(setup, journal, console).release()

    assert (f"{tmp_path}/job-report.json", "") == (outcome.report_place, outcome.report_problem)
    assert json.loads(json.dumps(outcome.report)) == report(tmp_path)

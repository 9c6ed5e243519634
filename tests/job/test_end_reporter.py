"""What a job's report says of its end."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ascend_runner.job.runner import EndReporter
from ascend_runner.supervision.job_machine import Event, Kind
from tests.report.test_journal import ENDED, FAILED, begun, report


def test_report_of_a_job_that_is_released(tmp_path: Path) -> None:
    """The outcome names the file with the last report, also if there was no room for it while the job was held."""
    messages = SimpleNamespace(info=print, debug=print, warning=print)
    setup: Any = SimpleNamespace(signals=None, messages=messages, environ={})
    journal = begun(tmp_path, [])
    journal.feed(Event(kind=Kind.PREPARED))
    journal.feed(ENDED)
    reporter = EndReporter(setup, journal)
    reporter.outcome = FAILED

    reporter.report_release(Event(kind=Kind.RELEASED, sentence="over"))

    outcome = reporter.outcome
    assert (f"{tmp_path}/job-report.json", "") == (outcome.report_place, outcome.report_problem)
    assert json.loads(json.dumps(outcome.report)) == report(tmp_path)

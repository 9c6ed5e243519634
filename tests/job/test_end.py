"""The end of a job: what its report says, and how long it is held."""

from __future__ import annotations

import json
from pathlib import Path

import attrs

from tests.report.test_job_writer import PREPARED, Run, plan, report


def held(folder: Path) -> Run:
    """Return a job whose attempt has failed, and that is to be held for 60 s."""
    spec = plan(folder)
    run = Run(attrs.evolve(spec, restarts=attrs.evolve(spec.restarts, hold=60.0)), print)
    run.feed(PREPARED)
    run.end_attempt()
    return run


def test_report_of_a_job_that_is_released(tmp_path: Path) -> None:
    """The outcome names the file with the last report, also if there was no room for it while the job was held."""
    run = held(tmp_path / "logs")
    (tmp_path / "logs").mkdir()

    outcome = run.finish()

    assert (f"{tmp_path}/logs/job-report.json", "") == (outcome.report_place, outcome.report_problem)
    assert json.loads(json.dumps(outcome.report)) == report(tmp_path / "logs")


def test_hold_ends_when_it_was_said_to_end(tmp_path: Path) -> None:
    """The time of the hooks counts: the end of the hold was shown, and is in the report, before they run."""
    run = held(tmp_path)

    run.finish()

    assert 60.0 == run.setup.signals.seconds

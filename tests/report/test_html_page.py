"""The HTML page that the runner writes: what it needs is loaded in time, and nobody waits for it for long."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import attrs
import pytest

from ascend_runner.node.bounded import Patience
from ascend_runner.plan.ranks import HTML_STATES
from ascend_runner.plan.spec import Attempt
from ascend_runner.record.facts import SignalsSent
from ascend_runner.report import html_page
from ascend_runner.report.writing import ReportWriter, WriteQueue
from ascend_runner.supervision.causes import Cause, Ending, Exited, LimitReached, SignalReceived
from ascend_runner.supervision.job_machine import JobState, Released
from ascend_runner.supervision.state import Phase, State
from ascend_runner.views import page
from tests.helpers.plans import changed
from tests.helpers.waiting import LIMIT, wait_until
from tests.report.test_job_writer import ENDED, FAILED, PREPARED, Run, plan
from tests.report.test_writing import void

FAILURE = Exited(0, Ending(exit_code=7))


def page_writer(folder: Path, html: str) -> html_page.PageWriter:
    """Return the writer of the page of a job, during its only attempt."""
    writer = html_page.PageWriter(WriteQueue(Patience(warn=pytest.fail)))
    writer.attempt = Attempt(changed(plan(folder), html_states=HTML_STATES[html]))
    return writer


@pytest.mark.deep(quick=4)
@pytest.mark.parametrize(
    ("html", "cause", "is_loaded"),
    [
        ("failure", FAILURE, True),
        ("failure", LimitReached(60.0), True),
        ("failure", SignalReceived(15), False),
        ("always", SignalReceived(15), True),
        ("always", None, True),
        ("failure", None, False),
        ("never", FAILURE, False),
    ],
)
@pytest.mark.parametrize("phases", [(Phase.TERMINATING, Phase.KILLING, Phase.DONE), (Phase.DONE,)])
def test_load_ahead(
    html: str, cause: Cause | None, is_loaded: object, phases: tuple[Phase, ...], tmp_path: Path
) -> None:
    """What a page needs is loaded and compiled once when the ranks end, whether or not any has to be stopped."""
    page.environment.cache_clear()
    threads = {*threading.enumerate()}
    writer = page_writer(tmp_path, html)
    for phase in (Phase.RUNNING, *phases):
        writer.observe(State(grace=1.0, phase=phase, cause=None if phase is Phase.RUNNING else cause), 0.0)
    wait_until(lambda: threads >= {*threading.enumerate()})

    assert is_loaded == (page.environment.cache_info().misses == 1)
    if is_loaded:
        assert len(page.TEMPLATES) == len(page.environment().cache or ())


def test_signals_come_first(tmp_path: Path) -> None:
    """Nothing is loaded before the ranks have been sent the signal to stop, which would be late otherwise."""
    page.environment.cache_clear()
    threads = {*threading.enumerate()}
    writer = page_writer(tmp_path, "failure")
    writer.observe(SignalsSent({0: 10}), 0.0)  # the user's SIGUSR1
    writer.observe(State(grace=1.0, phase=Phase.TERMINATING, cause=FAILURE), 0.0)
    wait_until(lambda: threads >= {*threading.enumerate()})
    misses_before = page.environment.cache_info().misses
    writer.observe(SignalsSent({1: 15}), 0.0)
    wait_until(lambda: threads >= {*threading.enumerate()})

    assert (0, 1) == (misses_before, page.environment.cache_info().misses)


def test_slow_page_is_no_warning(tmp_path: Path) -> None:
    """A page that takes too long is given up; the command that writes it later names the report, if there is one."""
    warnings: list[str] = []
    told: list[str] = []
    writes = WriteQueue(Patience(warn=warnings.append))
    released = threading.Event()
    writes.put("slow", lambda: void(released.wait()))
    spec, reports = plan(tmp_path), ReportWriter(writes)
    reports.put(spec.report_path, dict)
    html_page.PageWriter(writes).write(spec, reports, told.append, 0.01)
    reports.spare_path = f"{tmp_path}/a run/job-report.json"
    Path(reports.spare_path).parent.mkdir()
    reports.write_spare(LIMIT)
    html_page.PageWriter(writes).write(spec, reports, told.append, 0.01)
    released.set()
    writes.wait(LIMIT)

    late = "HTML report: not finished within 0.01 s"
    assert [late, f"{late}; to write it, run ascend-job report '{reports.spare_path}'"] == told


def test_page_that_cannot_be_written(tmp_path: Path) -> None:
    """The warning says how to write it elsewhere, if the report itself has been written."""
    (tmp_path / "job-report.html").mkdir()
    spec = plan(tmp_path)
    warnings: list[str] = []
    for is_written in (False, True):
        reports = ReportWriter(WriteQueue(Patience(warn=pytest.fail)))
        if is_written:
            reports.put(spec.report_path, lambda: {"job_id": "job", "ranks": []})
            wait_until(lambda reports=reports: reports.place)
        html_page.PageWriter(WriteQueue(Patience(warn=warnings.append))).write(spec, reports, pytest.fail, LIMIT)

    without, with_hint = warnings
    command = f"ascend-job report {spec.report_path} -o job-report.html"

    assert f"{without}; run {command} elsewhere to write it there" == with_hint


def test_page_waits_for_what_is_being_loaded(tmp_path: Path) -> None:
    """The thread that writes the page does not load the same at the same time, which would take twice as long."""
    page.environment.cache_clear()
    told: list[str] = []
    writer = html_page.PageWriter(WriteQueue(Patience(warn=pytest.fail)))
    writer.load_ahead()
    spec, reports = plan(tmp_path), ReportWriter(WriteQueue(Patience(warn=pytest.fail)))
    reports.put(spec.report_path, lambda: {"job_id": "job", "ranks": []})
    writer.write(spec, reports, told.append, LIMIT)

    assert [f"HTML report: {spec.html_path}"] == told
    assert 1 == page.environment.cache_info().misses


def test_page_of_a_held_job(tmp_path: Path) -> None:
    """The page shows that a job is held, and is written again when it is released."""
    told: list[str] = []
    spec = plan(tmp_path)
    run = Run(attrs.evolve(spec, restarts=attrs.evolve(spec.restarts, hold=60.0)), pytest.fail)
    shown = []
    for event in (PREPARED, ENDED, Released(sentence="over")):
        run.feed(event)
        if event is not PREPARED:
            run.writer.finish(FAILED, LIMIT)
            run.end.page.write(spec, run.writer.reports, told.append, LIMIT)
            shown.append((tmp_path / "job-report.html").read_text())

    assert JobState.FAILED is run.job.state
    assert [f"HTML report: {tmp_path}/job-report.html"] * 2 == told
    assert [True, False] == ["<strong>holding</strong>" in text for text in shown]
    assert "<strong>failed</strong>" in shown[1]
    assert "Held until" not in shown[1]


def test_events_do_not_wait_for_the_page(tmp_path: Path) -> None:
    """The last event of a held job is written while the page of its failure is not finished."""
    released = threading.Event()

    def warn(_sentence: str) -> None:
        if threading.current_thread() is not threading.main_thread():
            released.wait()

    (tmp_path / "job-report.html").mkdir()  # then the page cannot be written, and its thread reports that
    spec = changed(plan(tmp_path), html_states=HTML_STATES["failure"])
    spec = attrs.evolve(spec, restarts=attrs.evolve(spec.restarts, hold=60.0))
    run = Run(spec, warn)
    run.feed(PREPARED, ENDED)
    run.writer.finish(FAILED, LIMIT)
    run.end.page.write(spec, run.writer.reports, lambda _: None, 0.01)
    run.feed(Released(sentence="over"))
    run.writer.finish(FAILED, LIMIT)
    last = (tmp_path / "job-events.jsonl").read_bytes().splitlines()[-1]
    released.set()

    assert "failed" == json.loads(last)["data"]["state"]

"""The file with the events of a job."""

from __future__ import annotations

import threading
from pathlib import Path

from ascend_runner.report.event_log import EventLog
from ascend_runner.report.write_queue import WriteQueue
from tests.helpers.plans import job_spec, rank_spec
from tests.helpers.waiting import LIMIT

EVENTS = 100


def test_events_that_a_slow_disk_has_not_taken_are_counted(tmp_path: Path) -> None:
    """Those that wait and those that were discarded are missing, and the latter still are when the disk responds."""
    released, spec = threading.Event(), job_spec([rank_spec()], log_dir=str(tmp_path))
    writes = WriteQueue(print)
    events = EventLog(spec, writes)
    writes.put("report", lambda: assert_true(released.wait(LIMIT)))
    for _ in range(EVENTS):
        events.write_note("notice", {})
    hung = events.loss()
    released.set()
    assert writes.flush(LIMIT)
    written = (tmp_path / "job-events.jsonl").read_bytes().count(b"\n")

    assert f"events missing from {spec.events_path!r}: {EVENTS} of {EVENTS}" == hung
    assert f"{EVENTS - written} of {EVENTS}" == events.loss().partition(": ")[2]
    assert 0 < written < EVENTS


def test_nothing_is_missing_on_a_disk_that_works(tmp_path: Path) -> None:
    """Events that were all written are no loss."""
    writes = WriteQueue(print)
    events = EventLog(job_spec([rank_spec()], log_dir=str(tmp_path)), writes)
    events.write_note("notice", {})
    assert writes.flush(LIMIT)

    assert "" == events.loss()


def assert_true(value: bool) -> None:  # noqa: FBT001  a write that returns nothing
    """Fail unless the value is true."""
    assert value

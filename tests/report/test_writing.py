"""Writing in the background: in order, with one report of what fails, and never waited for longer than a limit."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, ItemsView
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from ascend_runner.errors import OutputError
from ascend_runner.node.bounded import Patience
from ascend_runner.report.writing import MOST_WAITING, NO_RESPONSE, PAUSE, EventLog, ReportWriter, WriteQueue
from tests.helpers.plans import job_spec, rank_spec
from tests.helpers.waiting import LIMIT, wait_until


def void(_result: object) -> None:
    """Return nothing."""


def test_writes_are_carried_out_in_order() -> None:
    """Whatever is put is written, one after the other; then no thread is left."""
    warnings: list[str] = []
    written: list[int] = []
    writes = WriteQueue(Patience(warn=warnings.append))
    threads = {*threading.enumerate()}
    for number in range(50):
        writes.put("a", lambda number=number: written.append(number))  # type: ignore[misc]  # a default binds it now

    assert writes.flush(LIMIT)
    assert ([*range(50)], []) == (written, warnings)
    wait_until(lambda: threads >= {*threading.enumerate()})


def test_write_that_nobody_waits_for_is_postponed() -> None:
    """It comes after a pause, in which more may follow, so that a restart of ranks is over by then."""
    writes = WriteQueue(Patience(warn=print))
    written: list[float] = []
    is_written = threading.Event()
    began = time.monotonic()
    writes.put("a", lambda: written.append(time.monotonic()))
    writes.put("b", is_written.set)
    is_written.wait(LIMIT)

    assert written[0] - began >= PAUSE


def test_writes_in_short_succession_share_a_thread() -> None:
    """The thread waits a moment for the next write, since starting another one would delay whoever writes."""

    def is_shared() -> bool:
        threads: list[int] = []
        writes = WriteQueue(Patience(warn=print))
        for _ in range(3):
            writes.put("a", lambda: threads.append(threading.get_native_id()))
            assert writes.flush(LIMIT)
        return 1 == len(set(threads))

    wait_until(is_shared)  # a machine may be busy for longer than a moment


def test_close_ends_the_thread() -> None:
    """What was put before is written; nothing lingers after that."""
    written: list[int] = []
    writes = WriteQueue(Patience(warn=print))
    threads: list[threading.Thread] = []
    gate = threading.Event()

    def write() -> None:
        threads.append(threading.current_thread())
        gate.wait(LIMIT)

    writes.put("a", write)
    writes.put("b", lambda: written.append(1))
    writes.close()
    gate.set()
    is_done = writes.flush(LIMIT)
    threads[0].join(LIMIT)

    assert is_done
    assert [1] == written
    assert not threads[0].is_alive()


def test_disk_that_fails_is_told_once_for_each_file() -> None:
    """A full disk is a warning, not one for each line, and the next write is tried."""
    warnings: list[str] = []
    writes = WriteQueue(Patience(warn=warnings.append))

    def fail() -> None:
        raise OutputError("no space left")

    for path in ("a", "b", "a"):
        writes.put(path, fail)
        assert writes.flush(LIMIT)
    assert ["no space left"] * 2 == warnings


def test_disk_that_hangs_delays_nobody() -> None:
    """Writes wait in the background, and few of them; that is told once, and they are done when the disk responds."""
    warnings: list[str] = []
    written: list[int] = []
    released = threading.Event()
    writes = WriteQueue(Patience(warn=warnings.append))
    writes.put("report", lambda: void(released.wait()))
    for number in range(1000):
        writes.put("events", lambda number=number: written.append(number))  # type: ignore[misc]  # as above

    assert not writes.flush(0.01)
    assert not writes.flush(0.01)
    assert ["cannot write 'report': no response from its disk within 0.01 s"] == warnings
    assert [] == written
    released.set()
    assert writes.flush(LIMIT)
    assert MOST_WAITING >= len(written) > 0


def test_write_that_has_hung_for_long_is_not_waited_for_as_long_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its disk has had the time that it gets."""
    released, began, clock = threading.Event(), threading.Event(), time.monotonic

    def hang() -> None:
        began.set()
        released.wait()

    writes = WriteQueue(Patience(warn=pytest.fail))
    writes.put("report", hang)
    assert not writes.wait(0.01)
    assert began.wait(LIMIT)
    monkeypatch.setattr(time, "monotonic", lambda: clock() + 2 * LIMIT)
    before = clock()

    assert not writes.wait(LIMIT)
    assert LIMIT / 2 > clock() - before
    released.set()


EVENTS = 100


def test_events_that_a_slow_disk_has_not_taken_are_counted(tmp_path: Path) -> None:
    """Those that wait and those that were discarded are missing, and the latter still are when the disk responds."""
    released, spec = threading.Event(), job_spec([rank_spec()], log_dir=str(tmp_path))
    writes = WriteQueue(Patience(warn=print))
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
    writes = WriteQueue(Patience(warn=print))
    events = EventLog(job_spec([rank_spec()], log_dir=str(tmp_path)), writes)
    events.write_note("notice", {})
    assert writes.flush(LIMIT)

    assert "" == events.loss()


def assert_true(value: bool) -> None:  # noqa: FBT001  a write that returns nothing
    """Fail unless the value is true."""
    assert value


NEWER = {"state": "failed"}


class SlowQueue(WriteQueue):
    """A queue that carries out the next write only when the test asks for it."""

    def __init__(self) -> None:
        super().__init__(Patience(warn=pytest.fail))
        self.writes: list[Callable[[], None]] = []

    def put(self, _path: str, write: Callable[[], None]) -> None:
        """Keep a write."""
        self.writes.append(write)

    def work(self) -> None:
        """Carry out the next write."""
        with suppress(OutputError):
            self.writes.pop(0)()


class Overtaken(dict[str, object]):
    """A report that is followed by a newer one while it is being written."""

    def __init__(self, writer: ReportWriter, path: str) -> None:
        super().__init__(state="running")
        self._writer, self._path = writer, path

    def items(self) -> ItemsView[str, object]:  # type: ignore[override]  # of a Mapping
        """Return the members, after a newer report has been put."""
        self._writer.put(self._path, lambda: NEWER)
        return super().items()


@pytest.mark.parametrize("folder", [".", "missing"])
def test_older_report_says_nothing_of_a_newer_one(folder: str, tmp_path: Path) -> None:
    """A write of an older report that ends after a newer one was put is neither its success nor its failure."""
    writes, path = SlowQueue(), str(tmp_path / folder / "report")
    writer = ReportWriter(writes)
    writer.put(path, lambda: Overtaken(writer, path))
    writes.work()
    overtaken = writer.place, writer.problem
    writes.work()

    assert ("", NO_RESPONSE) == overtaken
    assert ((path, ""), ("", "no such file or directory"))[folder == "missing"] == (writer.place, writer.problem)


def test_only_the_newest_report_is_composed(tmp_path: Path) -> None:
    """Those that a newer one has replaced before the disk took them cost nothing; the newest is composed once."""
    writes, path = SlowQueue(), str(tmp_path / "report")
    writer = ReportWriter(writes)
    composed: list[int] = []

    def compose(attempt: int) -> dict[str, object]:
        composed.append(attempt)
        return {"attempt": attempt}

    for attempt in range(3):
        writer.put(path, partial(compose, attempt))
    for _ in range(3):
        writes.work()

    assert {"attempt": 2} == writer.newest == json.loads(Path(path).read_bytes())
    assert [2] == composed


def test_place_of_a_report_that_its_disk_does_not_take(tmp_path: Path) -> None:
    """It is in the run directory, if there is one, until a newer report follows; what went wrong stays known."""
    writes, path, spare = SlowQueue(), str(tmp_path / "missing" / "report"), str(tmp_path / "spare")
    writer = ReportWriter(writes)
    seen = []
    for writer.spare_path in ("", spare):
        writer.put(path, lambda: dict(NEWER))
        writes.work()
        writer.write_spare(LIMIT)
        seen.append((writer.place, writer.problem))
    kept = json.loads(Path(spare).read_bytes())
    writer.put(path, lambda: {"state": "stopped"})

    assert [("", "no such file or directory"), (spare, "no such file or directory")] == seen
    assert kept == NEWER
    assert ("", NO_RESPONSE) == (writer.place, writer.problem)

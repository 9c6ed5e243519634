"""Writing in the background: in order, with one report of what fails, and never waited for longer than a limit."""

from __future__ import annotations

import threading
import time

from ascend_runner.errors import OutputError
from ascend_runner.report.write_queue import MOST_WAITING, PAUSE, WriteQueue
from tests.helpers.waiting import LIMIT, wait_until


def void(_result: object) -> None:
    """Return nothing."""


def test_writes_are_carried_out_in_order() -> None:
    """Whatever is put is written, one after the other; then no thread is left."""
    warnings: list[str] = []
    written: list[int] = []
    writes = WriteQueue(warnings.append)
    threads = {*threading.enumerate()}
    for number in range(50):
        writes.put("a", lambda number=number: written.append(number))  # type: ignore[misc]  # a default binds it now

    assert writes.flush(LIMIT)
    assert ([*range(50)], []) == (written, warnings)
    wait_until(lambda: threads >= {*threading.enumerate()})


def test_write_that_nobody_waits_for_is_postponed() -> None:
    """It comes after a pause, in which more may follow, so that a restart of ranks is over by then."""
    writes = WriteQueue(print)
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
        writes = WriteQueue(print)
        for _ in range(3):
            writes.put("a", lambda: threads.append(threading.get_native_id()))
            assert writes.flush(LIMIT)
        return 1 == len(set(threads))

    wait_until(is_shared)  # a machine may be busy for longer than a moment


def test_close_ends_the_thread() -> None:
    """What was put before is written; nothing lingers after that."""
    written: list[int] = []
    writes = WriteQueue(print)
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
    writes = WriteQueue(warnings.append)

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
    writes = WriteQueue(warnings.append)
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

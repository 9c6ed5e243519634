"""A queue in front of a log file never blocks, is bounded, and counts every byte that the file lacks."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ascend_runner.activity import Activity
from ascend_runner.plan.spec import Rotation
from ascend_runner.ranks.log_file import STALL_LIMIT, DiskWarnings, Gap, LogFile, LogWriter, drain, queue_limit
from tests.helpers.waiting import LIMIT, wait_until
from tests.ranks.fake_disk import FakeDisk

QUEUE = 10  # bytes


class Writing:
    """A writer to a fake disk, and its clock."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.disk = FakeDisk()
        self.warnings: list[str] = []
        self.now = 0.0
        warnings = DiskWarnings(self.warnings.append)
        file = LogFile(str(path), Rotation(), warnings, self.disk)
        self.writer = LogWriter(file, QUEUE, Activity(0.0), warnings, now=lambda: self.now)

    def hang(self) -> None:
        """Let the disk hang in the write of "0123"."""
        self.disk.answers.clear()
        self.writer.put(b"0123")
        assert self.disk.is_hanging.wait(LIMIT)

    def finish(self, seconds: float = LIMIT) -> None:
        """End the writer."""
        self.writer.close()
        drain([self.writer], seconds, lambda: False)


@pytest.fixture
def writing(tmp_path: Path) -> Iterator[Writing]:
    """Yield a writer, and end its thread."""
    writing = Writing(tmp_path / "log")
    yield writing
    writing.disk.answers.set()
    writing.writer.close()
    writing.writer.join(LIMIT)
    writing.writer.file.close()
    assert not writing.writer.is_alive


def test_bytes_arrive_in_order(writing: Writing) -> None:
    """Everything that was queued is in the file once the writer has ended."""
    for number in range(1000):
        writing.writer.put(b"%d\n" % number)
    writing.finish()

    assert b"".join(b"%d\n" % number for number in range(1000)) == writing.path.read_bytes()
    assert [] == writing.writer.gaps
    assert not writing.writer.is_alive


def test_silent_rank_costs_no_thread(writing: Writing) -> None:
    """A thread is started with the first byte."""
    before = {*threading.enumerate()}
    writing.writer.close()

    assert before >= {*threading.enumerate()}


def test_full_queue_asks_for_a_pause_until_half_of_it_is_free(writing: Writing) -> None:
    """A disk that is slow loses nothing: its rank is read on when there is room again."""
    has_room = threading.Event()
    writing.hang()
    answers = [writing.writer.put(b"456789"), writing.writer.put(b"x")]
    writing.writer.call_when_room(has_room.set)

    assert [True, False] == answers
    assert not has_room.is_set()
    assert not writing.writer.is_hung()
    writing.disk.answers.set()
    assert has_room.wait(LIMIT)
    writing.finish()
    assert b"0123456789x" == writing.path.read_bytes()
    assert [] == writing.writer.gaps


def test_room_that_is_there_already_is_told_at_once(writing: Writing) -> None:
    """Room that was freed just before the wait ends the wait at once."""
    has_room = threading.Event()
    writing.writer.call_when_room(has_room.set)

    assert has_room.is_set()


def test_hung_disk_loses_what_does_not_fit(writing: Writing) -> None:
    """When the queue has been full for a second without a byte written, output is dropped and counted to the byte."""
    writing.hang()
    writing.writer.put(b"456789ab")
    writing.now = STALL_LIMIT
    answers = [writing.writer.put(b"cd"), writing.writer.put(b"e")]
    assert writing.writer.is_hung()
    assert [Gap(12, 3)] == writing.writer.gaps
    writing.disk.answers.set()
    wait_until(writing.writer.has_room)
    writing.writer.put(b"fg")
    writing.finish()

    assert [True, True] == answers
    assert b"0123456789abfg" == writing.path.read_bytes()
    assert [Gap(12, 3)] == writing.writer.gaps
    assert 2 == len(writing.warnings)


def test_lost_bytes_are_counted_while_the_rank_runs(writing: Writing) -> None:
    """Both what the disk refuses and what is dropped is counted at once, and not only at the end."""
    writing.disk.writes_until_error = 0
    writing.writer.put(b"abc")
    wait_until(lambda: writing.writer.activity.lost == 3)
    writing.disk.writes_until_error = -1
    writing.hang()
    writing.writer.put(b"456789ab")
    writing.now = STALL_LIMIT
    writing.writer.put(b"cd")

    assert 5 == writing.writer.activity.lost


def test_disk_that_moves_is_not_hung(writing: Writing) -> None:
    """A disk that has written anything since the queue was full may take its time."""
    writing.disk.bytes_per_write = 2
    writing.hang()
    writing.writer.put(b"456789ab")
    writing.now = STALL_LIMIT
    writing.writer.file.skip(1)  # as if a byte was written

    assert not writing.writer.is_hung()
    writing.now = 2 * STALL_LIMIT
    assert writing.writer.is_hung()


def test_what_a_hung_disk_has_not_written_at_the_end_is_lost(writing: Writing) -> None:
    """The end does not wait for a disk that hangs; what was queued counts as lost, with what was dropped before."""
    writing.hang()
    writing.writer.put(b"456789ab")
    writing.now = STALL_LIMIT
    writing.writer.put(b"cd")
    writing.finish(seconds=0.01)
    gaps = writing.writer.gaps

    assert 14 == sum(gap.size for gap in gaps)
    assert 0 == min(gap.offset for gap in gaps)


def test_part_of_a_piece_that_was_written_is_not_lost(writing: Writing) -> None:
    """Lost bytes are counted from the first one that the disk did not accept."""
    writing.disk.bytes_per_write = 3
    writing.writer.put(b"abc")
    wait_until(lambda: writing.writer.file.offset == 3)
    writing.hang()
    writing.finish(seconds=0.01)

    assert [Gap(3, 4)] == writing.writer.gaps


def test_disk_that_responds_too_late_gets_nothing_more(writing: Writing) -> None:
    """What was counted as lost is not written, but for the piece that the disk had accepted already."""
    writing.disk.bytes_per_write = 3
    writing.hang()
    writing.finish(seconds=0.01)
    writing.disk.answers.set()
    writing.writer.join(LIMIT)

    assert b"012" == writing.path.read_bytes()
    assert [Gap(3, 1)] == writing.writer.gaps


def test_end_waits_for_a_slow_disk(writing: Writing) -> None:
    """As long as bytes are moving, draining goes on: each reading of the clock is a whole limit later."""
    writing.disk.bytes_per_write = 1
    data = b"x" * 1000
    writing.hang()
    writing.writer.put(data)
    writing.writer.close()
    looks = 0

    def now() -> float:
        nonlocal looks
        looks += 1
        before = writing.writer.file.offset
        writing.disk.answers.set()
        if writing.writer.is_alive:
            wait_until(lambda: writing.writer.file.offset > before or not writing.writer.is_alive)
        return float(looks)

    drain([writing.writer], 1.0, lambda: False, now=now)

    assert b"0123" + data == writing.path.read_bytes()
    assert [] == writing.writer.gaps


def test_wait_for_a_disk_can_be_cut(writing: Writing) -> None:
    """If the wait is cut short, the bytes that are not written yet are lost, and counted."""
    writing.hang()
    writing.writer.put(b"456")
    writing.writer.close()
    drain([writing.writer], LIMIT * 1000, lambda: True)

    assert [Gap(0, 7)] == writing.writer.gaps


def test_hung_file_does_not_hold_up_another(writing: Writing, tmp_path: Path) -> None:
    """Each file has a thread of its own."""
    other = Writing(tmp_path / "other")
    writing.hang()
    other.writer.put(b"other\n")
    other.finish()

    assert b"other\n" == other.path.read_bytes()


@pytest.mark.parametrize(("ranks", "mebibytes"), [(0, 32), (1, 32), (8, 16), (256, 1)])
def test_queues_together_are_bounded(ranks: int, mebibytes: int) -> None:
    """Few ranks have large queues, and many ranks small ones."""
    assert mebibytes << 20 == queue_limit(ranks)

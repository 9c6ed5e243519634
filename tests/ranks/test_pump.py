"""The pump stores every byte of every rank, whatever the disk, the console and the children of the rank do."""

from __future__ import annotations

import contextlib
import os
import random
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ascend_runner.activity import Activity
from ascend_runner.plan.spec import Rotation
from ascend_runner.ranks.console import QUEUE_LIMIT, Console
from ascend_runner.ranks.lines import LineCutter
from ascend_runner.ranks.log_file import STALL_LIMIT, Disk, DiskWarnings, LogFile, LogWriter, drain
from ascend_runner.ranks.pump import CALM_AFTER, FLOOD, READ_SIZE, SHOW_AFTER, TAIL_SIZE, Pump, Stream
from tests.helpers.screen import Screen
from tests.helpers.waiting import LIMIT, wait_until
from tests.ranks.fake_disk import FakeDisk

QUEUE = 1 << 20  # bytes


class Pumping:
    """A running pump with a log file for each rank."""

    def __init__(self, folder: Path, console: Console) -> None:
        self.folder = folder
        self.streams: dict[int, Stream] = {}
        self.writers: list[LogWriter] = []
        self.now = 0.0
        self.bars: list[str] = []
        self.pump = Pump(console, now=lambda: self.now)
        self.pump.tell_bars = lambda: self.bars.append("several")
        self.pump.start()

    def add(self, rank_id: int = 0, *, is_shown: bool = False) -> int:
        """Add a rank; return its write end."""
        cutter = LineCutter(b"%d> " % rank_id) if is_shown else None
        return self.add_writer(rank_id, cutter)

    def add_writer(self, rank_id: int, cutter: LineCutter | None, disk: Disk | None = None) -> int:
        """Add a rank whose log is on a disk of its own; return its write end."""
        warnings = DiskWarnings(print)
        file = LogFile(str(self.folder / str(rank_id)), Rotation(), warnings, disk)
        self.writers.append(LogWriter(file, QUEUE, Activity(self.now), warnings, now=lambda: self.now))
        self.streams[rank_id] = Stream(rank_id, self.writers[-1], cutter)
        return self.pump.add(self.streams[rank_id])

    def pass_time(self, seconds: float) -> None:
        """Wait until everything written so far has been read, then advance the clock."""
        self.pump.settle(LIMIT)
        self.now += seconds
        self.pump.settle(LIMIT)

    def finish(self) -> bool:
        """Read and store everything; return whether it was read."""
        is_read = self.pump.finish(LIMIT, lambda: False)
        drain(self.writers, LIMIT, lambda: False)
        return is_read

    def log(self, rank_id: int = 0) -> bytes:
        """Return the content of a log file."""
        return (self.folder / str(rank_id)).read_bytes()


@pytest.fixture
def console() -> Console:
    """Return a console that is not started."""
    return Console(lambda lines: b"%d skipped\n" % lines, lambda error: b"stdout: %d\n" % (error.errno or 0))


@pytest.fixture
def pumping(tmp_path: Path, console: Console) -> Iterator[Pumping]:
    """Yield a running pump, and check that its thread ends."""
    pumping = Pumping(tmp_path, console)
    yield pumping
    assert pumping.finish()
    for writer in pumping.writers:
        writer.file.close()


def write_all(fd: int, data: bytes) -> None:
    """Write all of `data`, and close."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]
    os.close(fd)


@pytest.mark.parametrize("seed", range(3))
def test_files_are_exact_under_random_writes_of_several_ranks(pumping: Pumping, seed: int) -> None:
    """Under concurrent writes of any size each log file has exactly the bytes of its rank."""
    dice = random.Random(seed)  # noqa: S311  not a secret
    written = {rank_id: [dice.randbytes(dice.randrange(100_000)) for _ in range(20)] for rank_id in range(5)}

    def write(fd: int, chunks: list[bytes]) -> None:
        for chunk in chunks:
            write_all(os.dup(fd), chunk)
        os.close(fd)

    writers = [
        threading.Thread(target=write, args=(pumping.add(rank_id), chunks)) for rank_id, chunks in written.items()
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(LIMIT)
    assert pumping.finish()

    for rank_id, chunks in written.items():
        data = b"".join(chunks)
        assert (data == pumping.log(rank_id)) is True
        assert len(data) == pumping.streams[rank_id].activity.size
        assert data[-TAIL_SIZE:] == pumping.streams[rank_id].tail


def test_lines_are_shown_and_kept(pumping: Pumping, console: Console, screen: Screen) -> None:
    """The console shows whole prefixed lines; the log file has the bytes."""
    with screen:
        console.start()
        write_all(pumping.add(0, is_shown=True), b"a\nb")
        write_all(pumping.add(1, is_shown=False), b"hidden\n")
        assert pumping.finish()
        console.close()

    assert b"0> a\n0> b\n" == screen.out.data
    assert (b"a\nb", b"hidden\n") == (pumping.log(0), pumping.log(1))


def test_hung_disk_holds_back_neither_the_console_nor_other_ranks(
    pumping: Pumping, console: Console, screen: Screen
) -> None:
    """While the disk of one rank hangs, its lines are shown, and the logs of others are written."""
    disk = FakeDisk()
    disk.answers.clear()
    with screen:
        console.start()
        hung = pumping.add_writer(0, LineCutter(b"0> "), disk)
        write_all(hung, b"the cause\n")
        assert disk.is_hanging.wait(LIMIT)
        write_all(pumping.add(1), b"other\n")
        screen.out.read(len(b"0> the cause\n"))
        wait_until(lambda: pumping.log(1) == b"other\n")

        assert b"the cause\n" == pumping.streams[0].tail
        disk.answers.set()
        assert pumping.finish()
        console.close()
    assert b"the cause\n" == pumping.log(0)


def test_hung_disk_does_not_stall_its_rank(pumping: Pumping) -> None:
    """A rank that writes more than pipe and queue hold goes on, and what its log file lacks is counted."""
    disk = FakeDisk()
    disk.answers.clear()
    size = 16 << 20
    thread = threading.Thread(target=write_all, args=(pumping.add_writer(0, None, disk), b"x" * size), daemon=True)
    thread.start()
    while thread.is_alive():
        pumping.pass_time(STALL_LIMIT)
    disk.answers.set()
    assert pumping.finish()

    lost = sum(gap.size for gap in pumping.writers[0].gaps)
    assert size == len(pumping.log()) + lost
    assert lost > size // 2


def test_rank_with_a_full_queue_is_not_read_until_there_is_room(pumping: Pumping) -> None:
    """A slow disk slows its own rank instead of losing its output; other ranks are read."""
    disk = FakeDisk()
    disk.answers.clear()
    writer = pumping.add_writer(0, None, disk)
    thread = threading.Thread(target=write_all, args=(os.dup(writer), b"x" * (QUEUE + 1)))
    thread.start()
    wait_until(lambda: pumping.streams[0].activity.size == QUEUE + 1)
    pumping.pump.settle(LIMIT)
    os.write(writer, b"two")
    write_all(pumping.add(1), b"other")
    wait_until(lambda: pumping.streams[1].activity.size == 5)
    pumping.pump.settle(LIMIT)

    assert QUEUE + 1 == pumping.streams[0].activity.size
    disk.answers.set()
    wait_until(lambda: pumping.streams[0].activity.size == QUEUE + 4)
    assert [] == pumping.writers[0].gaps
    os.close(writer)
    thread.join(LIMIT)


def test_outsider_that_reads_a_pipe_does_not_stop_the_pump(pumping: Pumping) -> None:
    """`cat /proc/PID/fd/1` may take output of a rank; the output of all ranks is read on."""
    writer = pumping.add()
    outsider = os.open(f"/proc/self/fd/{writer}", os.O_RDONLY | os.O_NONBLOCK)
    for _ in range(2000):
        os.write(writer, b"x")
        with contextlib.suppress(BlockingIOError):
            os.read(outsider, 1)
    os.close(outsider)
    write_all(writer, b"end")

    wait_until(lambda: pumping.streams[0].tail.endswith(b"end"))


def test_stalled_console_does_not_stall_the_ranks(pumping: Pumping, console: Console, screen: Screen) -> None:
    """While the console is not read, ranks continue to write and their log files are complete."""
    data = (b"x" * 99 + b"\n") * 50_000
    with screen:
        console.start()
        write_all(pumping.add(is_shown=True), data)
        assert pumping.finish()
        screen.out.leave()
        console.close()

    assert (data == pumping.log()) is True


def test_lines_beyond_the_queue_are_counted(pumping: Pumping, console: Console, screen: Screen) -> None:
    """If the queue of the console is full, lines are dropped and counted, and the log file has them."""
    filling = (b"x" * 63 + b"\n") * (QUEUE_LIMIT // 64)
    with screen:
        console.show(1, [filling])
        write_all(pumping.add(is_shown=True), b"a\nb\nc")
        assert pumping.finish()
        console.start()
        screen.out.read(len(filling))
        console.close()

    assert b"a\nb\nc" == pumping.log()
    assert b"3 skipped\n" == screen.err.data


def test_finish_reads_what_is_there_and_waits_for_nobody(pumping: Pumping) -> None:
    """An outsider that holds a pipe open costs no time; what was written before finish() is in the log file."""
    kept = pumping.add()
    data = b"x" * 60_000 + b"last words\n"
    try:
        write_all(os.dup(kept), data)
        assert pumping.finish()

        assert (data == pumping.log()) is True
    finally:
        os.close(kept)


class HeldCutter(LineCutter):
    """Takes data for the console only when it may."""

    def __init__(self) -> None:
        super().__init__(b"0> ")
        self.may_feed = threading.Semaphore(0)

    def feed(self, data: bytes) -> list[bytes | memoryview]:
        """Wait until this is allowed once more."""
        assert self.may_feed.acquire(timeout=LIMIT)
        return super().feed(data)


def test_output_is_stored_before_it_is_cut_for_the_console(pumping: Pumping) -> None:
    """However long that takes, the log file has all that was read, also if nobody waits for the console any longer."""
    cutter = HeldCutter()
    writer = pumping.add_writer(0, cutter)
    os.write(writer, b"a\nb\n")
    os.close(writer)
    wait_until(lambda: pumping.log() == b"a\nb\n")
    is_read = pumping.pump.finish(0.01, lambda: False)
    cutter.may_feed.release()

    assert not is_read
    assert pumping.finish()


def test_finish_waits_while_output_is_read(pumping: Pumping) -> None:
    """Much output takes its time: only if nothing was read for a while, finish() gives up."""
    cutter = HeldCutter()
    writer = pumping.add_writer(0, cutter)
    os.write(writer, b"x\n" * READ_SIZE)
    os.close(writer)
    activity = pumping.streams[0].activity

    def release_one() -> bool:
        size = activity.size
        cutter.may_feed.release()
        wait_until(lambda: activity.size > size or size == 2 * READ_SIZE)
        return False

    wait_until(lambda: activity.size == READ_SIZE)
    is_read = pumping.pump.finish(0.01, release_one)
    cutter.may_feed.release()

    assert not is_read
    assert 2 * READ_SIZE == activity.size
    assert pumping.finish()


def test_finish_can_be_cut_short(pumping: Pumping) -> None:
    """After a second stop signal, nothing is waited for."""
    cutter = HeldCutter()
    writer = pumping.add_writer(0, cutter)
    os.write(writer, b"x\n")
    os.close(writer)
    is_read = pumping.pump.finish(0.01, lambda: True)
    cutter.may_feed.release()

    assert not is_read
    assert pumping.finish()


def test_output_left_in_the_pipes_is_counted(pumping: Pumping) -> None:
    """While the thread hangs, nobody reads: what is in the pipes then is neither read later nor forgotten."""
    cutter = HeldCutter()
    hanging, waiting = pumping.add_writer(0, cutter), pumping.add(1)
    os.write(hanging, b"x\n")
    wait_until(lambda: pumping.log() == b"x\n")
    os.write(hanging, b"y\n")
    os.write(waiting, b"last words\n")
    os.close(hanging)
    os.close(waiting)
    is_read = pumping.pump.finish(0.01, lambda: False)
    pumping.pump.give_up()
    cutter.may_feed.release()

    assert not is_read
    assert [2, 11] == [stream.unread for stream in pumping.streams.values()]
    assert pumping.finish()
    assert [2, 0] == [stream.activity.size for stream in pumping.streams.values()]


def test_finish_ends_while_an_outsider_writes(pumping: Pumping) -> None:
    """A process that writes without end does not keep the runner from exiting."""
    writer = pumping.add()
    has_begun = threading.Event()

    def write_for_ever() -> None:
        with contextlib.suppress(BrokenPipeError):
            while True:
                os.write(writer, b"x" * 4096)
                has_begun.set()

    thread = threading.Thread(target=write_for_ever)
    thread.start()
    assert has_begun.wait(LIMIT)
    assert pumping.finish()

    thread.join(LIMIT)
    assert not thread.is_alive()
    os.close(writer)


def test_settle_waits_for_what_was_written_before(pumping: Pumping) -> None:
    """Everything that is in the pipes before settle() was read when it returns."""
    writers = [pumping.add(rank_id) for rank_id in range(3)]
    for writer in writers:
        os.write(writer, b"x" * 1000)
    pumping.pump.settle(LIMIT)
    sizes = [stream.activity.size for stream in pumping.streams.values()]
    for writer in writers:
        os.close(writer)

    assert [1000, 1000, 1000] == sizes


def test_lines_of_calm_ranks_are_collected(pumping: Pumping) -> None:
    """Lines are read after a pause, which `settle` cuts short; a flood is read without pauses."""
    pumping.pump.nap = 10000.0
    writer = pumping.add()
    stream = pumping.streams[0]
    pumping.pass_time(CALM_AFTER)
    os.write(writer, b"1\n")
    os.write(writer, b"2\n" * FLOOD)
    collected = stream.tail
    pumping.pump.settle(LIMIT)
    os.write(writer, b"3\n")
    wait_until(lambda: stream.tail.endswith(b"3\n"))
    os.write(writer, b"4\n")
    wait_until(lambda: stream.tail.endswith(b"4\n"))
    os.close(writer)
    pumping.finish()

    assert b"" == collected


def test_write_end_is_not_inherited(pumping: Pumping) -> None:
    """A process that is started meanwhile does not hold the pipe open."""
    writer = pumping.add()

    assert not os.get_inheritable(writer)
    os.close(writer)


# --- Unfinished lines -------------------------------------------------------------------------------------------------


def test_unfinished_line_is_shown_and_continued(pumping: Pumping, console: Console, screen: Screen) -> None:
    """A prompt appears without its newline after a second, and what follows goes on behind it."""
    with screen:
        console.start()
        writer = pumping.add(0, is_shown=True)
        os.write(writer, b"a\nname: ")
        pumping.pass_time(SHOW_AFTER)
        screen.out.read(len(b"0> a\n0> name: "))
        write_all(writer, b"x\nend")
        assert pumping.finish()
        console.close()

    assert b"0> a\n0> name: x\n0> end\n" == screen.out.data


def test_unfinished_line_that_another_rank_has_left(pumping: Pumping, console: Console, screen: Screen) -> None:
    """If another rank has written in between, the rest of the line is a line with a prefix of its own."""
    with screen:
        console.start()
        first, second = pumping.add(0, is_shown=True), pumping.add(1, is_shown=True)
        os.write(first, b"name: ")
        pumping.pass_time(SHOW_AFTER)
        write_all(second, b"other\n")
        pumping.pump.settle(LIMIT)
        write_all(first, b"x\n")
        assert pumping.finish()
        console.close()

    assert b"0> name: \n1> other\n0> x\n" == screen.out.data


def test_line_that_goes_on_is_not_shown_yet(pumping: Pumping, console: Console, screen: Screen) -> None:
    """The second begins with the line: one that is finished in time is shown as a whole."""
    with screen:
        console.start()
        writer = pumping.add(0, is_shown=True)
        other = pumping.add(1, is_shown=True)
        os.write(writer, b"first")
        pumping.pass_time(SHOW_AFTER / 2)
        os.write(writer, b"\nsecond ")
        pumping.pass_time(SHOW_AFTER / 2)
        write_all(other, b"other\n")
        pumping.pump.settle(LIMIT)
        write_all(writer, b"line\n")
        assert pumping.finish()
        console.close()

    assert b"0> first\n1> other\n0> second line\n" == screen.out.data


def test_progress_bar_is_shown_once_a_second(pumping: Pumping, console: Console, screen: Screen) -> None:
    """Of a folded bar the state after each second is shown, and its last state always."""
    with screen:
        console.start()
        writer = pumping.add_writer(0, LineCutter(b"0> ", folds=True))
        for percent in range(0, 100, 5):
            os.write(writer, b"\r%d%%" % percent)
            pumping.pass_time(SHOW_AFTER / 4)
        write_all(writer, b"\r100%\n")
        assert pumping.finish()
        console.close()

    assert b"0> 15%\r0> 35%\r0> 55%\r0> 75%\r0> 95%\r0> 100%\n" == screen.out.data


def test_progress_bar_without_a_terminal(pumping: Pumping, console: Console, screen: Screen) -> None:
    """Each state takes a line there, so even a single bar is shown only every ten seconds, and at its end."""
    pumping.pump.is_redrawn = False
    with screen:
        console.start()
        writer = pumping.add_writer(0, LineCutter(b"0> ", folds=True))
        for percent in range(1, 25):
            os.write(writer, b"\r%d%%" % percent)
            pumping.pass_time(1.0)
        write_all(writer, b"\r100%\n")
        assert pumping.finish()
        console.close()

    assert ["1", "11", "21", "100"] == re.findall("0> (\\d+)%", screen.out.data.decode())


def test_progress_bars_of_several_ranks(pumping: Pumping, console: Console, screen: Screen) -> None:
    """Each is shown every ten seconds, and at its end; a hint is given once."""
    with screen:
        console.start()
        writers = [pumping.add_writer(rank_id, LineCutter(b"%d> " % rank_id, folds=True)) for rank_id in (0, 1)]
        for percent in range(1, 25):
            for writer in writers:
                os.write(writer, b"\r%d%%" % percent)
                pumping.pump.settle(LIMIT)
            pumping.pass_time(1.0)
        for writer in writers:
            write_all(writer, b"\r100%\n")
            pumping.pump.settle(LIMIT)
        assert pumping.finish()
        console.close()

    shown = [int(percent) for percent in re.findall(rb"0> (\d+)%", screen.out.data)]
    assert [10, 10] == [after - before for before, after in zip(shown[1:], shown[2:-1])]  # the first one was alone
    assert 100 == shown[-1]
    assert ["several"] == pumping.bars


def test_silent_rank_wakes_nobody(pumping: Pumping) -> None:
    """After an unfinished line was shown, the pump sleeps until a rank writes again."""
    writer = pumping.add(0, is_shown=True)
    os.write(writer, b"name: ")
    pumping.pump.settle(LIMIT)
    had_timers = pumping.pump.has_timers
    pumping.pass_time(SHOW_AFTER)
    has_timers = pumping.pump.has_timers
    os.close(writer)

    assert (True, False) == (had_timers, has_timers)

"""The pump: every byte of every rank in its file, whatever the disk, the console and the rank's children do."""

from __future__ import annotations

import os
import random
import threading
from typing import TYPE_CHECKING

import pytest

from ascend_runner.linux.console import QUEUE_LIMIT, Console
from ascend_runner.linux.lines import LineCutter
from ascend_runner.linux.log_file import LogFile, Rotation
from ascend_runner.linux.pump import TAIL_SIZE, Pump, Stream
from tests.conftest import LIMIT, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.linux.conftest import Screen


class Pumping:
    """A pump with a log file per rank, and what it complained of."""

    def __init__(self, folder: Path, console: Console) -> None:
        self.folder = folder
        self.complaints: list[str] = []
        self.streams: dict[int, Stream] = {}
        self.pump = Pump(console)
        self.pump.start()

    def add(self, rank_id: int = 0, *, is_shown: bool = False) -> int:
        """Begin a rank; its write end."""
        log = LogFile(str(self.folder / str(rank_id)), Rotation(), self.complaints.append)
        cutter = LineCutter(b"%d> " % rank_id) if is_shown else None
        self.streams[rank_id] = Stream(rank_id, log, cutter)
        return self.pump.add(self.streams[rank_id])

    def log(self, rank_id: int = 0) -> bytes:
        """Read a rank's log file."""
        return (self.folder / str(rank_id)).read_bytes()


@pytest.fixture
def console() -> Console:
    """Give a console that is not started yet."""
    return Console(lambda lines: b"%d skipped\n" % lines, lambda error: b"stdout: %d\n" % (error.errno or 0))


@pytest.fixture
def pumping(tmp_path: Path, console: Console) -> Iterator[Pumping]:
    """Give a running pump, and see that its thread ends."""
    pumping = Pumping(tmp_path, console)
    yield pumping
    assert pumping.pump.finish(LIMIT), "a test has left a write end open"


def write_all(fd: int, data: bytes) -> None:
    """Write as a rank does, and end."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]
    os.close(fd)


@pytest.mark.parametrize("seed", range(3))
def test_files_are_exact_under_random_writes_of_several_ranks(pumping: Pumping, seed: int) -> None:
    """Whatever ranks write, in writes of any size at the same time, each file holds its rank's bytes and no other."""
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
    assert pumping.pump.finish(LIMIT)

    for rank_id, chunks in written.items():
        data = b"".join(chunks)
        assert (data == pumping.log(rank_id)) is True
        assert len(data) == pumping.streams[rank_id].size
        assert data[-TAIL_SIZE:] == pumping.streams[rank_id].tail


def test_lines_are_shown_and_kept(pumping: Pumping, console: Console, screen: Screen) -> None:
    """The console has the rank's lines with prefix, the last one ended; the file has the bytes."""
    with screen:
        console.start()
        write_all(pumping.add(0, is_shown=True), b"a\nb")
        write_all(pumping.add(1, is_shown=False), b"hidden\n")
        assert pumping.pump.finish(LIMIT)
        console.close()

    assert b"0> a\n0> b\n" == screen.out.data
    assert (b"a\nb", b"hidden\n") == (pumping.log(0), pumping.log(1))


def test_disk_that_hangs_does_not_keep_the_last_words(
    pumping: Pumping, console: Console, screen: Screen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a rank wrote is shown, and remembered for the report, before its file is written."""
    answers = threading.Event()
    monkeypatch.setattr(LogFile, "write", lambda _log, _data: answers.wait(LIMIT))
    with screen:
        console.start()
        write_all(pumping.add(is_shown=True), b"the cause\n")
        screen.out.read(len(b"0> the cause\n"))

        assert b"the cause\n" == pumping.streams[0].tail
        answers.set()
        assert pumping.pump.finish(LIMIT)
        console.close()


def test_stalled_console_does_not_stall_the_ranks(pumping: Pumping, console: Console, screen: Screen) -> None:
    """While nobody reads the console, ranks write on and their files are complete."""
    data = (b"x" * 99 + b"\n") * 50_000
    with screen:
        console.start()
        write_all(pumping.add(is_shown=True), data)
        assert pumping.pump.finish(LIMIT)
        screen.out.leave()
        console.close()

    assert (data == pumping.log()) is True


def test_lines_without_room_on_the_console_are_counted(pumping: Pumping, console: Console, screen: Screen) -> None:
    """With the queue full lines are left out and told, and the file has them."""
    filling = (b"x" * 63 + b"\n") * (QUEUE_LIMIT // 64)
    with screen:
        console.show(1, [filling])
        write_all(pumping.add(is_shown=True), b"a\nb\nc")
        assert pumping.pump.finish(LIMIT)
        console.start()
        screen.out.read(len(filling))
        console.close()

    assert b"a\nb\nc" == pumping.log()
    assert b"3 skipped\n" == screen.err.data


def test_child_that_keeps_the_pipe_is_not_waited_for(pumping: Pumping) -> None:
    """Where the end of file does not come, finish() ends at its limit with all that was written in the file."""
    kept = pumping.add()
    write_all(os.dup(kept), b"last words\n")
    wait_until(lambda: pumping.streams[0].size)
    try:
        assert not pumping.pump.finish(0.05)
        assert b"last words\n" == pumping.log()
    finally:
        os.close(kept)


def test_finish_waits_for_the_end_of_every_pipe(pumping: Pumping) -> None:
    """Ranks that end while finish() waits are read to their end."""
    writer = pumping.add()
    thread = threading.Thread(target=write_all, args=(writer, b"x" * (1 << 22)))
    thread.start()

    assert pumping.pump.finish(LIMIT)
    thread.join(LIMIT)
    assert 1 << 22 == len(pumping.log())


def test_pipe_of_a_rank_is_no_other_ranks(pumping: Pumping) -> None:
    """The write end is not inherited by whoever is spawned meanwhile: end of file would never come."""
    writer = pumping.add()

    assert not os.get_inheritable(writer)
    os.close(writer)


@pytest.mark.parametrize(
    ("written", "tail"),
    [
        ([b""], b""),
        ([b"ab", b"cd"], b"abcd"),
        ([b"a" * TAIL_SIZE, b"b"], b"a" * (TAIL_SIZE - 1) + b"b"),
        ([b"a", b"b" * TAIL_SIZE], b"b" * TAIL_SIZE),
        ([b"a" * (TAIL_SIZE + 1)], b"a" * TAIL_SIZE),
        ([b"%d," % number for number in range(50_000)], b"".join(b"%d," % n for n in range(50_000))[-TAIL_SIZE:]),
    ],
    ids=["nothing", "little", "one-over", "all-new", "one-read", "many-reads"],
)
def test_tail_is_the_last_64_kib(written: list[bytes], tail: bytes, tmp_path: Path) -> None:
    """For the report, the end of what a rank wrote is remembered, and its size counted."""
    stream = Stream(0, LogFile(str(tmp_path / "log"), Rotation(), print), None)
    for data in written:
        stream.remember(data)
    stream.log.close()

    assert (tail == stream.tail) is True
    assert sum(map(len, written)) == stream.size

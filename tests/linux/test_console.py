"""The console: in order, whole, bounded, and never a reason for the runner to hang."""

from __future__ import annotations

import errno
import os
import threading
import time
from typing import TYPE_CHECKING

import pytest

from ascend_runner.linux.console import QUEUE_LIMIT, STDERR, STDOUT, Console
from tests.conftest import LIMIT

if TYPE_CHECKING:
    from tests.linux.conftest import Screen

MEBIBYTE = (b"x" * 63 + b"\n") * (1 << 14)
LINES_PER_MEBIBYTE = 1 << 14
PIPE_CAPACITY = 1 << 16  # bytes, pipe(7)


@pytest.fixture
def console() -> Console:
    """Give a console that is not started yet."""
    return Console(lambda lines: b"%d skipped\n" % lines, lambda error: b"stdout: %d\n" % (error.errno or 0))


def close(console: Console) -> None:
    """Close it, and fail where that takes for ever."""
    thread = threading.Thread(target=console.close, daemon=True)
    thread.start()
    thread.join(LIMIT)

    assert not thread.is_alive(), "close() hangs"


def test_lines_come_out_in_order(console: Console, screen: Screen) -> None:
    """Ranks' lines go to stdout and the runner's to stderr; where both are one terminal, in the order given."""
    with screen:
        screen.join()
        console.start()
        console.show(0, [b"a\n", b"b\n"])
        console.say(b"own\n")
        console.show(1, [memoryview(b"c\n")])
        close(console)

    assert b"a\nb\nown\nc\n" == screen.out.data


def test_outputs_are_told_apart(console: Console, screen: Screen) -> None:
    """`2>file` has the runner's own lines and nothing else."""
    with screen:
        console.start()
        console.show(0, [b"a\n"])
        console.say(b"own\n")
        close(console)

    assert (b"a\n", b"own\n") == (screen.out.data, screen.err.data)


def test_what_was_given_just_before_the_end_is_shown(screen: Screen) -> None:
    """However soon close() follows the first lines after a long silence, they are shown."""
    with screen:
        for number in range(50):
            console = Console(lambda _: b"", lambda _: b"")
            console.start()
            console.show(number, [b"%d\n" % number])
            close(console)

    assert b"".join(b"%d\n" % number for number in range(50)) == screen.out.data


def test_close_may_be_called_twice(console: Console, screen: Screen) -> None:
    """The second time nothing is left to do."""
    with screen:
        console.start()
        console.show(0, [b"a\n"])
        close(console)
        close(console)

    assert b"a\n" == screen.out.data


def test_threads_of_several_ranks_do_not_mix_lines(console: Console, screen: Screen) -> None:
    """Whoever writes at the same time, each line is whole and each rank's are in order."""
    with screen:
        console.start()

        def write(rank_id: int) -> None:
            for number in range(500):
                console.show(rank_id, [b"%d " % rank_id, b"%d\n" % number])

        writers = [threading.Thread(target=write, args=(rank_id,)) for rank_id in range(4)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        close(console)

    lines = screen.out.data.splitlines(keepends=True)
    for rank_id in range(4):
        own = [line for line in lines if line.startswith(b"%d " % rank_id)]
        assert [b"%d %d\n" % (rank_id, number) for number in range(500)] == own


# --- Progress bars ----------------------------------------------------------------------------------------------------


def test_progress_bar_is_drawn_on_one_line(console: Console, screen: Screen) -> None:
    """A rank's own next line overwrites its bar, as on a terminal of its own."""
    with screen:
        console.start()
        console.show(0, [b"10%\r"])
        console.show(0, [b"20%\r"])
        console.show(0, [b"done\n"])
        close(console)

    assert b"10%\r20%\rdone\n" == screen.out.data


def test_progress_bar_is_not_overwritten_by_others(console: Console, screen: Screen) -> None:
    """Another rank's line, and the runner's own, begin on a new line."""
    with screen:
        screen.join()
        console.start()
        console.show(0, [b"10%\r"])
        console.show(1, [b"other\n"])
        console.show(0, [b"20%\r"])
        console.say(b"own\n")
        close(console)

    assert b"10%\r\nother\n20%\r\nown\n" == screen.out.data


# --- Readers that are slow, gone or asleep ----------------------------------------------------------------------------


def test_slow_console_loses_whole_lines_and_counts_them(console: Console, screen: Screen) -> None:
    """Beyond 64 MiB in the queue lines are left out, and a line on stderr says how many; nobody who shows waits."""
    with screen:
        console.start()
        blocks = QUEUE_LIMIT // len(MEBIBYTE) + 3
        for _ in range(blocks):
            console.show(0, [MEBIBYTE])
        screen.out.read(QUEUE_LIMIT)
        close(console)

    assert QUEUE_LIMIT == len(screen.out.data)
    assert b"%d skipped\n" % (3 * LINES_PER_MEBIBYTE) == screen.err.data


def test_skipped_lines_are_told_where_they_are_missing(console: Console, screen: Screen) -> None:
    """The count stands before the first line that had room again."""
    with screen:
        screen.join()
        console.show(0, [MEBIBYTE] * (QUEUE_LIMIT // len(MEBIBYTE) - 1))
        console.show(0, [MEBIBYTE, MEBIBYTE])
        console.show(0, [b"room again\n"])
        console.start()
        screen.out.read(QUEUE_LIMIT - len(MEBIBYTE))
        close(console)

    assert screen.out.data.endswith(b"x\n%d skipped\nroom again\n" % (2 * LINES_PER_MEBIBYTE))


def test_own_lines_always_have_room(console: Console, screen: Screen) -> None:
    """However full the queue, the runner's own lines are kept."""
    with screen:
        console.show(0, [MEBIBYTE] * (QUEUE_LIMIT // len(MEBIBYTE)))
        console.say(b"own\n")
        console.start()
        screen.out.read(QUEUE_LIMIT)
        close(console)

    assert b"own\n" == screen.err.data


def test_reader_that_has_gone_costs_its_lines_only(console: Console, screen: Screen) -> None:
    """`| head` that has seen enough ends nothing: EPIPE on stdout, and stderr goes on."""
    with screen:
        screen.out.leave()
        console.start()
        for _ in range(100):
            console.show(0, [b"a\n"])
        console.say(b"own\n")
        close(console)

    assert b"own\n" == screen.err.data


def test_stalled_stdout_does_not_keep_the_cause_from_stderr(console: Console, screen: Screen) -> None:
    """With stdout under Ctrl-S close() gives up on ranks' lines, and own lines still come out."""
    with screen:
        console.start()
        console.show(0, [MEBIBYTE])
        console.say(b"the cause\n")
        close(console)

        screen.out.leave()
    assert b"the cause\n" == screen.err.data


def test_stalled_terminal_does_not_keep_the_runner(console: Console, screen: Screen) -> None:
    """With both outputs stalled close() comes to an end all the same."""
    with screen:
        screen.join()
        console.start()
        console.show(0, [MEBIBYTE])
        console.say(b"the cause\n")
        close(console)

        screen.out.leave()


@pytest.mark.parametrize("room", [0, 5000])
def test_stalled_stderr_does_not_keep_the_runner(console: Console, screen: Screen, room: int) -> None:
    """Last words that are longer than the room left in a pipe that nobody reads are not waited for."""
    with screen:
        os.write(STDERR, b"." * (PIPE_CAPACITY - room))
        console.start()
        console.show(0, [MEBIBYTE])
        console.say(b"y" * 20_000 + b"\n")
        close(console)

        screen.out.leave()
        screen.err.leave()


def test_stdout_that_cannot_be_written_is_told_once(console: Console, screen: Screen) -> None:
    """A full disk behind it, say: ranks' lines are left out, and that is said before whatever comes next."""
    with screen:
        full = os.open("/dev/full", os.O_WRONLY)
        os.dup2(full, STDOUT)
        os.close(full)
        console.start()
        for _ in range(3):
            console.show(0, [b"a\n"])
        console.say(b"own\n")
        close(console)

    assert b"stdout: %d\nown\n" % errno.ENOSPC == screen.err.data


def test_stderr_that_has_room_again(console: Console, screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a full disk did not take is lost, what comes later is not."""
    write = os.write

    def refuse(*_: object) -> int:
        monkeypatch.setattr(os, "write", write)
        raise OSError(errno.ENOSPC, "full")

    with screen:
        console.say(b"lost\n")
        console.say(b"the cause\n")
        monkeypatch.setattr(os, "write", refuse)
        console.start()
        close(console)

    assert b"the cause\n" == screen.err.data


@pytest.mark.parametrize(("number", "told"), [(errno.EIO, b"stdout: 5\n"), (errno.EPIPE, b"")])
def test_reader_that_has_gone_is_told_from_a_disk_that_fails(
    console: Console, screen: Screen, monkeypatch: pytest.MonkeyPatch, number: int, told: bytes
) -> None:
    """EIO is what a terminal that has gone gives, and a bad disk behind a file, which somebody will miss."""
    write = os.write

    def refuse(*_: object) -> int:
        monkeypatch.setattr(os, "write", write)
        raise OSError(number, "odd")

    with screen:
        console.print("a\n")
        monkeypatch.setattr(os, "write", refuse)
        console.start()
        close(console)

    assert (told, bool(told)) == (screen.err.data, console.has_lost_text)


def test_thread_that_fails_does_not_take_the_cause_with_it(
    console: Console, screen: Screen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever has ended the thread, the runner's own lines still come out."""
    write = console._write  # noqa: SLF001  nothing that a test can do from outside makes it fail

    def fail(*_: object) -> None:
        monkeypatch.setattr(console, "_write", write)
        raise MemoryError

    monkeypatch.setattr(console, "_write", fail)
    monkeypatch.setattr("sys.excepthook", lambda *_: None)
    with screen:
        console.show(0, [b"a\n"])
        console.show(0, [b"b\n"])
        console.say(b"the cause\n")
        console.start()
        close(console)

    assert b"\n1 skipped\nthe cause\n" == screen.err.data


@pytest.mark.parametrize("fd", [STDOUT, STDERR])
def test_nonblocking_outputs_are_waited_for(console: Console, screen: Screen, fd: int) -> None:
    """Somebody else with the same terminal may have set O_NONBLOCK: no line is lost for that."""
    with screen:
        os.set_blocking(fd, False)
        console.start()
        console.show(0, [MEBIBYTE])
        console.say(MEBIBYTE)
        screen.out.read(len(MEBIBYTE))
        screen.err.read(len(MEBIBYTE))
        close(console)

    assert MEBIBYTE == screen.out.data
    assert MEBIBYTE == screen.err.data


def read_slowly(screen: Screen, size: int, pause: float) -> threading.Thread:
    """Read stdout in pieces with pauses between, as a remote terminal does, while the console is closed."""

    def run() -> None:
        for _ in range(size // PIPE_CAPACITY):
            screen.out.chunks.append(os.read(screen.out.fd, PIPE_CAPACITY))
            time.sleep(pause)

    thread = threading.Thread(target=run, name="reader", daemon=True)
    thread.start()
    return thread


def test_slow_reader_at_the_end_gets_all(console: Console, screen: Screen) -> None:
    """While a console takes something every now and then it is waited for, longer than for one that stalls."""
    with screen:
        console.start()
        console.show(0, [MEBIBYTE] * 3)
        console.say(b"own\n")
        reader = read_slowly(screen, len(MEBIBYTE) * 2, 0.05)  # 1.6 s in all; the rest fits into the pipe
        close(console)
        reader.join()

    assert (MEBIBYTE * 3 == screen.out.data) is True
    assert b"own\n" == screen.err.data


def test_reader_too_slow_at_the_end_misses_lines(console: Console, screen: Screen) -> None:
    """It is waited for five seconds; then what it misses is counted, and the runner's own lines still come."""
    with screen:
        console.start()
        console.show(0, [MEBIBYTE] * 8)
        console.say(b"the cause\n")
        reader = read_slowly(screen, len(MEBIBYTE) * 2, 0.2)
        close(console)

        assert screen.err.fd >= 0
        reader.join()
        screen.out.leave()
    skipped, _, rest = screen.err.data.lstrip(b"\n").partition(b" skipped\n")
    assert 0 < int(skipped) < 8 * LINES_PER_MEBIBYTE
    assert b"the cause\n" == rest

"""The console writes whole lines in order, is bounded, and never makes the runner hang."""

from __future__ import annotations

import errno
import os
import select
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ascend_runner.node.terminal import STDERR, STDOUT
from ascend_runner.ranks.console import PIPE_SIZE, QUEUE_LIMIT, ROOM_LIMIT, Console, grow_pipe
from tests.helpers.screen import Screen
from tests.helpers.waiting import LIMIT

MEBIBYTE = (b"x" * 63 + b"\n") * (1 << 14)
LINES_PER_MEBIBYTE = 1 << 14
PIPE_CAPACITY = 1 << 16  # bytes, pipe(7)


def make_console(write: Callable[[int, memoryview], int] = os.write, room_limit: float = ROOM_LIMIT) -> Console:
    """Return a console that is not started."""
    return Console(
        lambda lines: b"%d skipped\n" % lines,
        lambda error: b"stdout: %d\n" % (error.errno or 0),
        write=write,
        room_limit=room_limit,
    )


def fail_once(error: BaseException) -> Callable[[int, memoryview], int]:
    """Return an os.write of which the first call fails."""
    errors = [error]

    def write(fd: int, data: memoryview) -> int:
        if errors:
            raise errors.pop()
        return os.write(fd, data)

    return write


@pytest.fixture
def console() -> Console:
    """Return a console that is not started."""
    return make_console()


def close(console: Console) -> None:
    """Close the console; fail if that takes too long."""
    thread = threading.Thread(target=console.close, daemon=True)
    thread.start()
    thread.join(LIMIT)

    assert not thread.is_alive(), "close() hangs"


def test_lines_come_out_in_order(console: Console, screen: Screen) -> None:
    """Lines of ranks and messages of the runner reach a terminal in the order in which they were queued."""
    with screen:
        screen.join()
        console.start()
        console.show(0, [b"a\n", b"b\n"])
        console.show_message(b"own\n")
        console.show(1, [memoryview(b"c\n")])
        close(console)

    assert b"a\nb\nown\nc\n" == screen.out.data


def test_ranks_write_to_stdout_and_the_runner_to_stderr(console: Console, screen: Screen) -> None:
    """Standard error has the runner's own messages and nothing else."""
    with screen:
        console.start()
        console.show(0, [b"a\n"])
        console.show_message(b"own\n")
        close(console)

    assert (b"a\n", b"own\n") == (screen.out.data, screen.err.data)


def test_lines_queued_just_before_the_end_are_shown(screen: Screen) -> None:
    """Lines are shown however soon close() follows."""
    with screen:
        for number in range(50):
            console = Console(lambda _: b"", lambda _: b"")
            console.start()
            console.show(number, [b"%d\n" % number])
            close(console)

    assert b"".join(b"%d\n" % number for number in range(50)) == screen.out.data


def test_close_may_be_called_twice(console: Console, screen: Screen) -> None:
    """The second close() does nothing."""
    with screen:
        console.start()
        console.show(0, [b"a\n"])
        close(console)
        close(console)

    assert b"a\n" == screen.out.data


def test_threads_of_several_ranks_do_not_mix_lines(console: Console, screen: Screen) -> None:
    """Under concurrent calls each line is whole, and the lines of each rank are in order."""
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
    """The next line of the same rank overwrites its progress bar."""
    with screen:
        console.start()
        console.show(0, [b"10%\r"])
        console.show(0, [b"20%\r"])
        console.show(0, [b"done\n"])
        close(console)

    assert b"10%\r20%\rdone\n" == screen.out.data


def test_progress_bar_is_not_overwritten_by_others(console: Console, screen: Screen) -> None:
    """A line of another rank or of the runner begins below a progress bar."""
    with screen:
        screen.join()
        console.start()
        console.show(0, [b"10%\r"])
        console.show(1, [b"other\n"])
        console.show(0, [b"20%\r"])
        console.show_message(b"own\n")
        close(console)

    assert b"10%\r\nother\n20%\r\nown\n" == screen.out.data


# --- Readers that are slow, gone or stalled ---------------------------------------------------------------------------


def test_slow_console_loses_whole_lines_and_counts_them(console: Console, screen: Screen) -> None:
    """Lines beyond the limit of the queue are dropped and counted on stderr, and show() does not block."""
    blocks = QUEUE_LIMIT // len(MEBIBYTE) + 8  # more than the queue and a pipe hold together
    with screen:
        console.start()
        for _ in range(blocks):
            console.show(0, [MEBIBYTE])
        screen.out.read(QUEUE_LIMIT)
        close(console)

    shown = len(screen.out.data.splitlines())
    skipped = sum(int(notice.split()[0]) for notice in screen.err.data.splitlines())
    assert QUEUE_LIMIT <= len(screen.out.data)
    assert skipped > 0
    assert blocks * LINES_PER_MEBIBYTE == shown + skipped


def test_console_that_moves_is_waited_for(screen: Screen) -> None:
    """Ranks that print faster than a working console takes it lose no line there."""
    console = make_console(room_limit=LIMIT)
    blocks = QUEUE_LIMIT // len(MEBIBYTE) + 8

    def show() -> None:
        for _ in range(blocks):
            console.show(0, [MEBIBYTE])

    with screen:
        console.start()
        showing = threading.Thread(target=show, daemon=True)
        showing.start()
        screen.out.read(blocks * len(MEBIBYTE))
        showing.join(LIMIT)
        close(console)

    assert blocks * LINES_PER_MEBIBYTE == len(screen.out.data.splitlines())
    assert not screen.err.data


def test_notice_of_skipped_lines_is_in_their_place(console: Console, screen: Screen) -> None:
    """The notice precedes the first line that was queued again."""
    with screen:
        screen.join()
        console.show(0, [MEBIBYTE] * (QUEUE_LIMIT // len(MEBIBYTE) - 1))
        console.show(0, [MEBIBYTE, MEBIBYTE])
        console.show(0, [b"room again\n"])
        console.start()
        screen.out.read(QUEUE_LIMIT - len(MEBIBYTE))
        close(console)

    assert screen.out.data.endswith(b"x\n%d skipped\nroom again\n" % (2 * LINES_PER_MEBIBYTE))


def test_messages_are_queued_even_if_the_queue_is_full(console: Console, screen: Screen) -> None:
    """A full queue drops no message of the runner."""
    with screen:
        console.show(0, [MEBIBYTE] * (QUEUE_LIMIT // len(MEBIBYTE)))
        console.show_message(b"own\n")
        console.start()
        screen.out.read(QUEUE_LIMIT)
        close(console)

    assert b"own\n" == screen.err.data


def test_closed_stdout_does_not_affect_stderr(console: Console, screen: Screen) -> None:
    """After EPIPE on stdout, as with `| head`, messages are still written to stderr."""
    with screen:
        screen.out.leave()
        console.start()
        for _ in range(100):
            console.show(0, [b"a\n"])
        console.show_message(b"own\n")
        close(console)

    assert b"own\n" == screen.err.data


def test_stalled_stdout_does_not_hold_back_messages(console: Console, screen: Screen) -> None:
    """If stdout is stalled, close() gives up on lines of ranks and still writes the messages to stderr."""
    with screen:
        console.start()
        console.show(0, [MEBIBYTE])
        console.show_message(b"the cause\n")
        close(console)

        screen.out.leave()
    assert b"the cause\n" == screen.err.data


def test_stalled_terminal_does_not_block_close(console: Console, screen: Screen) -> None:
    """If both outputs are stalled, close() returns."""
    with screen:
        screen.join()
        console.start()
        console.show(0, [MEBIBYTE])
        console.show_message(b"the cause\n")
        close(console)

        screen.out.leave()


@pytest.mark.deep(quick=1)
@pytest.mark.parametrize("room", [0, 5000])
def test_stalled_stderr_does_not_block_close(console: Console, screen: Screen, room: int) -> None:
    """close() returns although a message is longer than the room left in a pipe without a reader."""
    with screen:
        os.write(STDERR, b"." * (PIPE_CAPACITY - room))
        console.start()
        console.show(0, [MEBIBYTE])
        console.show_message(b"y" * 20_000 + b"\n")
        close(console)

        screen.out.leave()
        screen.err.leave()


def test_failure_of_stdout_is_reported_once(console: Console, screen: Screen) -> None:
    """After an error on stdout, such as a full disk, the notice comes next, once, and lines are dropped."""
    with screen:
        full = os.open("/dev/full", os.O_WRONLY)
        os.dup2(full, STDOUT)
        os.close(full)
        console.start()
        for _ in range(3):
            console.show(0, [b"a\n"])
        console.show_message(b"own\n")
        close(console)

    assert b"stdout: %d\nown\n" % errno.ENOSPC == screen.err.data


def test_stderr_that_has_room_again(screen: Screen) -> None:
    """A message that a full disk did not take is lost, and the next one is written."""
    console = make_console(fail_once(OSError(errno.ENOSPC, "full")))
    with screen:
        console.show_message(b"lost\n")
        console.show_message(b"the cause\n")
        console.start()
        close(console)

    assert b"the cause\n" == screen.err.data


@pytest.mark.parametrize(("number", "notice"), [(errno.EIO, b"stdout: 5\n"), (errno.EPIPE, b"")])
def test_closed_reader_is_distinguished_from_a_failing_disk(screen: Screen, number: int, notice: bytes) -> None:
    """Text that a disk has not accepted is reported as lost; text without a reader is not."""
    console = make_console(fail_once(OSError(number, "odd")))
    with screen:
        console.print("a\n")
        console.start()
        close(console)

    assert (notice, bool(notice)) == (screen.err.data, console.has_lost_text)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_messages_survive_the_failure_of_the_thread(screen: Screen) -> None:
    """The runner's own messages are still written if the console's thread has ended, for any reason."""
    console = make_console(fail_once(MemoryError()))
    with screen:
        console.show(0, [b"a\n"])
        console.show(0, [b"b\n"])
        console.show_message(b"the cause\n")
        console.start()
        close(console)

    assert b"\n1 skipped\nthe cause\n" == screen.err.data


@pytest.mark.parametrize("fd", [STDOUT, STDERR])
def test_nonblocking_outputs_are_waited_for(console: Console, screen: Screen, fd: int) -> None:
    """No line is lost if another process has set O_NONBLOCK on the same terminal."""
    with screen:
        os.set_blocking(fd, False)
        console.start()
        console.show(0, [MEBIBYTE])
        console.show_message(MEBIBYTE)
        screen.out.read(len(MEBIBYTE))
        screen.err.read(len(MEBIBYTE))
        close(console)

    assert MEBIBYTE == screen.out.data
    assert MEBIBYTE == screen.err.data


@contextmanager
def read_slowly(screen: Screen, size: int, pause: float) -> Iterator[None]:
    """Read stdout in pieces of a size with pauses between them, as a remote terminal does."""
    is_over = threading.Event()

    def run() -> None:
        while not is_over.wait(pause):
            left = size
            while left and select.select([screen.out.fd], [], [], 0)[0]:
                screen.out.chunks.append(os.read(screen.out.fd, left))
                left -= len(screen.out.chunks[-1])

    thread = threading.Thread(target=run, name="reader", daemon=True)
    thread.start()
    yield
    is_over.set()
    thread.join()


def test_slow_reader_is_awaited_at_the_end(console: Console, screen: Screen) -> None:
    """close() waits for a console that still moves, longer than for one that is stalled."""
    with screen:
        console.start()
        console.show(0, [MEBIBYTE] * 3)
        console.show_message(b"own\n")
        with read_slowly(screen, len(MEBIBYTE) // 4, 0.2):  # until the last mebibyte fits into the pipe: 1.6 s
            close(console)

    assert (MEBIBYTE * 3 == screen.out.data) is True
    assert b"own\n" == screen.err.data


def test_reader_too_slow_at_the_end_misses_lines(console: Console, screen: Screen) -> None:
    """close() waits five seconds for a slow console; then it counts the lines left and writes the messages."""
    with screen:
        console.start()
        console.show(0, [MEBIBYTE] * 8)
        console.show_message(b"the cause\n")
        with read_slowly(screen, PIPE_CAPACITY, 0.2):
            close(console)

        screen.out.leave()
    skipped, _, rest = screen.err.data.lstrip(b"\n").partition(b" skipped\n")
    assert 0 < int(skipped) < 8 * LINES_PER_MEBIBYTE
    assert b"the cause\n" == rest


# --- Pipes ------------------------------------------------------------------------------------------------------------


def test_pipe_is_grown() -> None:
    """A grown pipe takes `PIPE_SIZE` bytes without a reader."""
    reader, writer = os.pipe()
    grow_pipe(writer)
    written = os.write(writer, bytes(PIPE_SIZE))
    os.close(reader)
    os.close(writer)

    assert PIPE_SIZE == written


def test_file_is_left_alone(tmp_path: Path) -> None:
    """A file that is not a pipe stays as it is."""
    with (tmp_path / "console").open("wb") as file:
        grow_pipe(file.fileno())

"""The board: what a runner stores of a job comes back as records, and no content of it does any harm."""

from __future__ import annotations

import os
import random
import stat
import struct
from pathlib import Path
from signal import SIGKILL, SIGTERM
from typing import Final

import attrs
import pytest

from ascend_runner import activity
from ascend_runner.board import board, layout, reader
from ascend_runner.board.board import Board
from ascend_runner.board.reader import View
from ascend_runner.members import LATEST
from ascend_runner.observations.facts import LimitChanged, RankOutput, SignalsSent
from ascend_runner.observations.rank_record import RankState
from ascend_runner.supervision.causes import Ending, Exited
from ascend_runner.supervision.events import Spawned
from ascend_runner.supervision.state import Phase, State
from tests.helpers.plans import job_spec, rank_spec

RANKS: Final = tuple(rank_spec(rank_id, local_rank=rank_id - 8) for rank_id in (8, 9, 10))
JOB: Final = job_spec(RANKS, beside=(rank_spec(-1, name="scheduler"),))
FUZZED: Final = 10_000


class Shown:
    """A board, with times in seconds after the start of the attempt."""

    def __init__(self) -> None:
        self.room = memoryview(bytearray(board.size_of(JOB)))
        self.limit: float | None = None
        self.board = Board(lambda: self.limit, self.room)
        self.board.begin(JOB)
        self.began: float = layout.HEAD.unpack_from(self.room)[-1]

    def observe(self, after: float, *facts: object) -> None:
        """Store facts."""
        for fact in facts:
            self.board.observe(fact, self.began + after)  # type: ignore[arg-type]  # facts of several types

    def write(self, rank_id: int, data: bytes, after: float) -> None:
        """Count the output of a rank."""
        self.board.activities[rank_id].add(data, self.began + after)

    def view(self) -> View:
        """Decode it, 100 s after the start."""
        return reader.decode(bytes(self.room), self.began + 100.0)


@pytest.fixture(name="shown")
def fixture_shown() -> Shown:
    """Return an empty board."""
    return Shown()


def test_before_the_start(shown: Shown) -> None:
    """All ranks are there, in order, and none is started."""
    view = shown.view()

    assert (Phase.STARTING, os.getpid(), None) == (view.phase, view.runner_pid, view.limit_at)
    assert [(-1, "scheduler"), (8, ""), (9, ""), (10, "")] == [(rank.rank_id, rank.name) for rank in view.ranks]
    assert {RankState.NOT_STARTED} == {rank.state for rank in view.ranks}
    assert 2 == view.local_ranks[10]


def test_heartbeats_leave_the_other_figures(shown: Shown) -> None:
    """A heartbeat gives only the step; the number of steps and the time of one stay those of the last line."""
    shown.board.store_step(shown.began + 1.0, 7, 100, 1.5)
    shown.board.store_step(shown.began + 2.0, 8)
    shown.board.store_step(shown.began + 3.0, None, None, 2.5)
    last = shown.view().last_step

    assert last
    assert (8, 100, 2.5) == (last["step"], last["steps"], last["seconds"])


def test_facts_come_back(shown: Shown) -> None:
    """Each fact of a rank is in its record, with times since the start of the attempt."""
    failed = Exited(8, Ending(exit_code=7))
    shown.observe(1.0, Spawned(8, 4711), Spawned(9, 4712), Spawned(10, 4713))
    shown.observe(2.0, State(grace=1.0, phase=Phase.RUNNING))
    shown.observe(50.0, failed)
    shown.observe(51.0, State(grace=1.0, phase=Phase.TERMINATING, cause=failed, stopped=frozenset({8, 9, 10})))
    for after in (51.0, 52.0):
        shown.observe(after, SignalsSent({9: SIGTERM, 10: SIGTERM}))
    shown.observe(53.0, SignalsSent({9: SIGKILL}))
    shown.observe(54.0, Exited(9, Ending(signum=SIGKILL, core_dumped=True)))
    view = shown.view()
    _scheduler, first, second, third = view.ranks

    assert Phase.TERMINATING is view.phase
    assert pytest.approx(100.0) == view.seconds
    assert [RankState.FAILED, RankState.STOPPED, RankState.RUNNING] == [rank.state for rank in view.ranks[1:]]
    assert (4711, Ending(exit_code=7)) == (first.pid, first.ending)
    assert [1.0, 49.0, 99.0] == pytest.approx([first.started_after, first.seconds, third.seconds])
    assert Ending(signum=SIGKILL, core_dumped=True) == second.ending
    assert [SIGTERM, SIGKILL] == [signum for signum, _after in second.signals]
    assert [51.0, 53.0] == pytest.approx([after for _signum, after in second.signals])
    assert () == first.signals


def test_output_comes_back(shown: Shown) -> None:
    """Bytes, times, lost bytes and the last line of a rank are there while it writes, without secrets."""
    long, last = b"x" * 200 + b"\n", b"\x1b[31mstep 7\x1b[0m\tloss 2.3 --token hidden\n"
    shown.write(8, long, 3.1)
    shown.write(8, last, 60.1)
    shown.observe(61.0, RankOutput(rank_id=8, lost=5))
    rank = shown.view().ranks[1]

    assert (len(long + last), 5) == (rank.log_size, rank.log_lost)
    assert [3.1, 60.1] == pytest.approx([rank.first_output_after, rank.last_output_after])
    assert ("step 7 loss 2.3 --token ***",) == rank.last_lines
    assert 1.0 == rank.cell_seconds
    assert {3: len(long), 60: len(last)} == {index: count for index, count in enumerate(rank.activity) if count}


@pytest.mark.parametrize(
    "begin",
    [
        b"token=" + b"s" * 120 + b" at the",
        b"my password = " + b"s" * 113,
        b"token:" + b" " * 98 + b"s3cretvalue99abc at",
        b"token:\t \t" + b" " * 95 + b"s3cretvalue99abc at",
    ],
)
def test_start_of_a_long_line_is_left_out(shown: Shown, begin: bytes) -> None:
    """The first words of a line that is cut off could be part of a secret and of its name."""
    shown.write(8, begin + b" 5 steps", 1.0)

    assert ("5 steps",) == shown.view().ranks[1].last_lines


def test_limit(shown: Shown) -> None:
    """The time limit is on the wall clock, and follows its changes."""
    shown.limit = shown.began + 3600.0
    shown.observe(1.0, LimitChanged(3600.0))
    view = shown.view()

    assert pytest.approx(view.began + 3600.0) == view.limit_at


def test_more_signals_than_there_is_room_for(shown: Shown) -> None:
    """The first ones stay."""
    for signum in range(1, 20):
        shown.observe(1.0, SignalsSent({8: signum}))

    assert list(range(1, layout.SIGNALS + 1)) == [signum for signum, _after in shown.view().ranks[1].signals]


def test_activity_of_a_long_job(shown: Shown) -> None:
    """However long a job takes, no byte is lost from the count, and cells get as long as they have to."""
    dice, moment, written = random.Random(1), 0.0, 0  # noqa: S311  not a secret
    for _ in range(200):
        moment += dice.choice([0.0, 0.01, 1.0, 100.0, 100_000.0])
        size = dice.randrange(1000)
        shown.write(8, b"x" * size, moment)
        written += size
    rank = shown.view().ranks[1]

    assert (written, written) == (sum(rank.activity), rank.log_size)
    assert moment < rank.cell_seconds * activity.CELLS < max(4 * moment, activity.FIRST_CELL * activity.CELLS)


def test_board_is_a_private_file_in_memory(in_memory: Path, tmp_path: Path) -> None:
    """It is complete from the start and only its owner can read it; without a tmpfs or room there is none."""
    made = board.opened(str(in_memory), JOB, lambda: None)
    made.observe(Spawned(8, 4711), 0.0)
    file = in_memory / layout.NAME
    status = file.stat()
    view = reader.decode(file.read_bytes(), 0.0)
    board.opened("", JOB, lambda: None)
    board.opened(str(tmp_path), JOB, lambda: None)

    assert (0o400, board.size_of(JOB)) == (stat.S_IMODE(status.st_mode), status.st_size)
    assert status.st_blocks * 512 >= status.st_size
    assert 4711 == view.ranks[1].pid
    assert [] == list(tmp_path.iterdir())


def test_hostile_boards() -> None:
    """Whatever is in a board, it is refused, or what comes of it is in range and has no control character."""
    dice = random.Random(17)  # noqa: S311  not a secret
    shown = Shown()
    shown.observe(1.0, Spawned(8, 4711), Spawned(9, 4712), SignalsSent({8: SIGTERM}), Exited(9, Ending(signum=9)))
    shown.write(8, b"line\n", 2.0)
    good = bytes(shown.room)
    read = 0
    for number in range(FUZZED):
        data = damaged(good, dice, number)
        try:
            view = reader.decode(data, shown.began + dice.choice([0.0, 10.0, -1e9, 1e6]))
        except ValueError:
            continue
        read += 1
        texts = [text for rank in view.ranks for text in (rank.name, *rank.last_lines)]
        assert all(text.isprintable() for text in texts)
        for rank in view.ranks:
            check_numbers(attrs.asdict(rank, recurse=False))

    assert read > FUZZED // 2


def damaged(good: bytes, dice: random.Random, number: int) -> bytes:
    """Return a board with random bytes somewhere behind its head, or anywhere, or of another length."""
    data = bytearray(good)
    first = layout.PHASE_AT + layout.PHASE.size if number % 4 else 0
    for _ in range(dice.choice([1, 8, 64])):
        noise = dice.choice([dice.randbytes(8), b"\xff" * 8, struct.pack("=d", float("nan")), b"\x1b]0;\x07\n\r\t"])
        place = dice.randrange(first, len(data) - 8)
        data[place : place + 8] = noise
    return bytes(data[: dice.randrange(len(data))] if number % 16 == 0 else data)


def check_numbers(members: dict[str, object]) -> None:
    """Check that the times of a record are finite and not negative, and can be shown."""
    for name, value in members.items():
        for number in value if isinstance(value, tuple) else (value,):
            if isinstance(number, float):
                assert 0.0 <= number <= 3 * LATEST, name

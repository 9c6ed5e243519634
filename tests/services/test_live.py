"""What a runner shows of a running attempt comes back as records, and no answer does any harm."""

from __future__ import annotations

import fcntl
import os
import random
import tempfile
from collections.abc import Mapping
from signal import SIGKILL, SIGTERM
from typing import Final

import attrs
import pytest

from ascend_runner import activity
from ascend_runner.members import LATEST
from ascend_runner.record.facts import Fact, SignalsSent
from ascend_runner.record.rank_record import RankRecord, RankState
from ascend_runner.report.recorder import Recorder
from ascend_runner.services import live
from ascend_runner.services.live import Live, View
from ascend_runner.supervision.causes import Ending, Exited
from ascend_runner.supervision.events import Spawned
from ascend_runner.supervision.state import Phase, State
from tests.helpers.plans import job_spec, rank_spec

RANKS: Final = tuple(rank_spec(rank_id, local_rank=rank_id - 8) for rank_id in (8, 9, 10))
JOB: Final = job_spec(RANKS, beside=(rank_spec(-1, local_rank=0, name="scheduler"),))
FUZZED: Final = 10_000
VALUES: Final = (b"-7", b"1e308", b"1e999", b"NaN", b"[]", b'"\\u001b]0;\\u0007"', b"null", b"{}", b"9" * 20)
NOISE: Final = (
    b"\xff" * 8,
    b"\x1b]0;\\u0007",
    b"NaN",
    b"1e999",
    b"-1",
    b"[]",
    b"{}",
    b'"',
    b",",
    b"null",
    b"99999999999",
)


class Shown:
    """An attempt that shows itself, with times in seconds after its start."""

    def __init__(self) -> None:
        self.limit: float | None = None
        self.recorder = Recorder(JOB)
        self.live = Live(JOB, self.recorder, lambda: self.limit)
        self.began = 0.0
        self.observe(0.0, State(grace=1.0))

    def observe(self, after: float, *facts: Fact) -> None:
        """Pass on facts."""
        for fact in facts:
            for observer in (self.recorder, self.live):
                observer.observe(fact, self.began + after)

    def write(self, rank_id: int, data: bytes, after: float) -> None:
        """Count the output of a rank."""
        self.live.activities[rank_id].add(data, self.began + after)

    def view(self) -> View:
        """Return what a viewer sees."""
        return live.decode(self.live.encode())


@pytest.fixture(name="shown")
def fixture_shown(monkeypatch: pytest.MonkeyPatch) -> Shown:
    """Return an attempt that has begun 100 s ago."""
    monkeypatch.setattr("time.monotonic", lambda: 100.0)
    return Shown()


def test_before_the_start(shown: Shown) -> None:
    """All ranks are there, in order, and none is started."""
    view = shown.view()

    assert (Phase.STARTING, None, None) == (view.phase, view.limit_at, view.last_step)
    assert [(-1, "scheduler"), (8, ""), (9, ""), (10, "")] == [(rank.rank_id, rank.name) for rank in view.ranks]
    assert {RankState.NOT_STARTED} == {rank.state for rank in view.ranks}
    assert 2 == view.ranks[-1].local_rank


def test_heartbeats_leave_the_other_figures(shown: Shown) -> None:
    """A heartbeat gives only the step; the number of steps and the time of one stay those of the last line."""
    shown.live.note_step(shown.began + 1.0, 7, 100, 1.5)
    shown.live.note_step(shown.began + 2.0, 8)
    shown.live.note_step(shown.began + 3.0, None, None, 2.5)
    last = shown.view().last_step

    assert last
    assert (8, 100, 2.5) == (last.step, last.steps, last.seconds)


def test_facts_come_back(shown: Shown) -> None:
    """Each fact of a rank is in its record, with times since the start of the attempt."""
    failed = Exited(8, Ending(exit_code=7))
    shown.observe(1.0, Spawned(8, 4711), Spawned(9, 4712), Spawned(10, 4713))
    shown.observe(2.0, State(grace=1.0, phase=Phase.RUNNING))
    before = shown.view()
    shown.observe(50.0, failed)
    shown.observe(51.0, State(grace=1.0, phase=Phase.TERMINATING, cause=failed, stopped=frozenset({8, 9, 10})))
    for after in (51.0, 52.0):
        shown.observe(after, SignalsSent({9: SIGTERM, 10: SIGTERM}))
    shown.observe(53.0, SignalsSent({9: SIGKILL}))
    shown.observe(54.0, Exited(9, Ending(signum=SIGKILL, core_dumped=True)))
    view = shown.view()
    _scheduler, first, second, third = view.ranks

    assert [RankState.RUNNING] * 3 == [rank.state for rank in before.ranks[1:]]
    assert Phase.TERMINATING is view.phase
    assert pytest.approx(100.0) == view.seconds
    assert [RankState.FAILED, RankState.STOPPED, RankState.RUNNING] == [rank.state for rank in view.ranks[1:]]
    assert (4711, Ending(exit_code=7)) == (first.pid, first.ending)
    assert [1.0, 49.0, 99.0] == pytest.approx([first.started_after, first.seconds, third.seconds], abs=0.002)
    assert Ending(signum=SIGKILL, core_dumped=True) == second.ending
    assert [SIGTERM, SIGKILL] == [signum for signum, _after in second.signals]
    assert [51.0, 53.0] == pytest.approx([after for _signum, after in second.signals], abs=0.002)
    assert () == first.signals


def test_output_comes_back(shown: Shown) -> None:
    """Bytes, times, lost bytes and the last line of a rank are there while it writes, without secrets."""
    long, last = b"x" * 200 + b"\n", b"\x1b[31mstep 7\x1b[0m\tloss 2.3 --token hidden\n"
    began = 100.0  # that of the count
    shown.write(8, long, began + 3.1)
    shown.write(8, last, began + 60.1)
    shown.live.activities[8].lose(5)
    rank = shown.view().ranks[1]

    assert (len(long + last), 5) == (rank.log_size, rank.log_lost)
    assert [103.1, 160.1] == pytest.approx([rank.first_output_after, rank.last_output_after], abs=0.002)
    assert ("step 7 loss 2.3 --token ***",) == rank.last_lines
    assert 1.0 == rank.cell_seconds
    assert {3: len(long), 60: len(last)} == {index: count for index, count in enumerate(rank.activity) if count}


def test_views_agree(shown: Shown) -> None:
    """What `--summary` reads in the process is what a viewer gets."""
    shown.observe(1.0, Spawned(8, 4711), Spawned(9, 4712), SignalsSent({8: 15}), Exited(9, Ending(signum=9)))
    shown.write(8, b"step 7\n", 130.0)
    here, there = shown.live.view(), shown.view()

    assert attrs.evolve(here, ranks=()) == attrs.evolve(there, ranks=())
    assert [described(rank) for rank in here.ranks] == [described(rank) for rank in there.ranks]


def described(rank: RankRecord) -> Mapping[str, object]:
    """Return the fields of a record, times rounded as in a report."""
    fields = attrs.asdict(rank, recurse=False)
    return {name: round(value, 1) if isinstance(value, float) else str(value) for name, value in fields.items()}


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
    shown.write(8, begin + b" 5 steps", 101.0)

    assert ("5 steps",) == shown.view().ranks[1].last_lines


def test_limit(shown: Shown) -> None:
    """The time limit is on the wall clock, and follows its changes."""
    shown.limit = shown.began + 3600.0
    view = shown.view()

    assert pytest.approx(view.began + 3600.0) == view.limit_at


def test_activity_of_a_long_job(shown: Shown) -> None:
    """However long a job takes, no byte is lost from the count, and cells get as long as they have to."""
    dice, moment, written = random.Random(1), 0.0, 0  # noqa: S311  not a secret
    for _ in range(200):
        moment += dice.choice([0.0, 0.01, 1.0, 100.0, 100_000.0])
        size = dice.randrange(1000)
        shown.write(8, b"x" * size, 100.0 + moment)
        written += size
    rank = shown.view().ranks[1]

    assert (written, written) == (sum(rank.activity), rank.log_size)
    assert moment < rank.cell_seconds * activity.CELLS < max(4 * moment, activity.FIRST_CELL * activity.CELLS)


def test_sealed_answers() -> None:
    """Nobody can change an answer, and a viewer refuses one that somebody could change or delay."""
    fd = live.sealed(b"content")
    with pytest.raises(PermissionError):
        os.pwrite(fd, b"x", 0)
    assert b"content" == live.read_sealed(fd)
    reader, writer = os.pipe()
    os.close(writer)
    unsealed = os.memfd_create("view", os.MFD_ALLOW_SEALING)
    fcntl.fcntl(unsealed, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW)
    with tempfile.TemporaryFile() as file:
        for other in (reader, unsealed, os.dup(file.fileno())):
            with pytest.raises((OSError, ValueError)):
                live.read_sealed(other)


@pytest.mark.deep
def test_hostile_answers() -> None:
    """Whatever is in an answer, it is refused, or what comes of it is in range and has no control character."""
    dice = random.Random(17)  # noqa: S311  not a secret
    shown = Shown()
    shown.observe(1.0, Spawned(8, 4711), Spawned(9, 4712), SignalsSent({8: SIGTERM}), Exited(9, Ending(signum=9)))
    shown.write(8, b"line\n", shown.live.activities[8]._began + 2.0)  # noqa: SLF001  the clock of the count
    good = shown.live.encode()
    read = 0
    for number in range(FUZZED):
        try:
            view = live.decode(damaged(good, dice, number))
        except ValueError:
            continue
        read += 1
        for rank in view.ranks:
            assert all(text.isprintable() for text in (rank.name, *rank.last_lines))
            check_numbers(attrs.asdict(rank, recurse=False))

    assert read > FUZZED // 4


def damaged(good: bytes, dice: random.Random, number: int) -> bytes:
    """Return an answer with noise instead of some of its values, or anywhere, or of another length."""
    data = bytearray(good)
    for _ in range(dice.choice([1, 2, 4])):
        place = dice.randrange(len(data) - 8)
        if number % 4:  # a value
            place = data.find(b":", place) + 1
            end = min(found for found in (data.find(b",", place), data.find(b"}", place), len(data)) if found >= 0)
            data[place:end] = dice.choice(
                [b"-7", b"1e308", b"1e999", b"NaN", b"[]", b'"\\u001b]0;\\u0007"', b"null", b"{}"]
            )
        else:
            data[place : place + dice.randrange(8)] = dice.choice(NOISE)
    return bytes(data[: dice.randrange(len(data))] if number % 16 == 0 else data)


def check_numbers(members: dict[str, object]) -> None:
    """Check that the times of a record are finite and not negative, and can be shown."""
    for name, value in members.items():
        for number in value if isinstance(value, tuple) else (value,):
            if isinstance(number, float):
                assert 0.0 <= number <= 3 * LATEST, name

"""What ranks that hang wait for, from the dumps of their flight recorders."""

from __future__ import annotations

import itertools
import os
import pickle
import pickletools
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascend_runner.diagnosis import flight_recorder
from ascend_runner.diagnosis.finding import CollectiveGroup
from ascend_runner.diagnosis.flight_recorder import Question, Recording, compare, decode, is_own_log, loads
from tests.helpers.flight_recorders import dump, entry, waiting
from tests.helpers.waiting import wait_until

TOLD = "0 (default_pg)"
TENSOR = 4 * 3  # elements


def places(*dumps: bytes, others: tuple[int, ...] = ()) -> list[CollectiveGroup]:
    """Return where the ranks with these dumps are, from rank 0 on."""
    return list(compare(dict(enumerate(map(decode, dumps))), others))


def place(ranks: tuple[int, ...], number: int, name: str = "all_reduce", **others: Any) -> CollectiveGroup:
    """Return a place in the default process group."""
    size = TENSOR if name in flight_recorder.EQUAL_SIZES else None
    known = {"group": TOLD, "elements": size, "is_waiting": True, **others}
    return CollectiveGroup(rank_ids=ranks, number=number, name=name, **known)


# --- Comparing --------------------------------------------------------------------------------------------------------

IN_IT = dump([entry(6), waiting(7)])
BEFORE_IT = dump([entry(5), entry(6)])


def test_rank_that_has_not_joined() -> None:
    """A rank whose last collective is an earlier one is not in that of the others."""
    assert [place((0, 1, 3), 7), place((2,), 6, is_waiting=False)] == places(IN_IT, IN_IT, BEFORE_IT, IN_IT)


def test_mismatch() -> None:
    """A rank that has called another collective with the same number waits in that."""
    broadcast = dump([entry(6), waiting(7, "hccl:broadcast")])

    assert [place((0, 1), 7), place((2,), 7, "broadcast")] == places(IN_IT, IN_IT, broadcast)


@pytest.mark.parametrize(
    ("name", "sizes", "expected"),
    [
        ("hccl:all_reduce", [[8]], [((0, 1), TENSOR), ((2,), 8)]),
        ("hccl:all_reduce", [[8], [2, 2]], [((0, 1, 2), TENSOR)]),  # in two tensors
        ("hccl:all_reduce", [], [((0, 1), TENSOR), ((2,), None)]),
        ("hccl:all_gather", [[8]], [((0, 1, 2), None)]),  # it permits parts of different sizes
    ],
)
def test_sizes_that_differ(name: str, sizes: list[list[int]], expected: list[Any]) -> None:
    """In a collective that needs equal tensors, a rank with another number of elements is elsewhere."""
    usual, other = dump([waiting(7, name)]), dump([waiting(7, name, input_sizes=sizes)])

    assert expected == [(one.rank_ids, one.elements) for one in places(usual, usual, other)]


def test_all_ranks_wait() -> None:
    """If nobody is missing on this node, all ranks are in one place."""
    assert [place((0, 1), 7)] == places(IN_IT, IN_IT)


def test_first_collective_that_is_not_complete_counts() -> None:
    """A program runs ahead of its device: the ones that it has called since wait for the first."""
    ahead = dump([entry(6), waiting(7), waiting(8, "hccl:broadcast"), waiting(9)])

    assert [place((0, 1), 7)] == places(ahead, IN_IT)


def test_rank_that_has_completed_it() -> None:
    """A rank may be through with a collective in which others wait, such as the source of a broadcast."""
    through = dump([entry(6), entry(7, "hccl:broadcast")])
    inside = dump([entry(6), waiting(7, "hccl:broadcast")])

    expected = [place((1, 2), 7, "broadcast"), place((0,), 7, "broadcast", is_waiting=False)]
    assert expected == places(through, inside, inside)


def test_nobody_waits() -> None:
    """Without a rank in a collective there is nothing to tell, not even of ranks without a dump."""
    assert [] == places(BEFORE_IT, dump([]), others=(2,))


def test_rank_without_a_dump() -> None:
    """Of a rank that has dumped nothing, nothing is known, which is told beside the others."""
    assert [place((0, 1), 7), CollectiveGroup(rank_ids=(3,))] == places(IN_IT, IN_IT, others=(3,))


@pytest.mark.parametrize(
    ("entries", "groups", "expected"),
    [
        ([], {"0": "[0, 1]"}, 0),
        ([], {}, 0),  # gloo does not say which ranks a group has, but all are in the default one
        ([waiting(1, process_group=("1", "tp"))], {}, 0),
        ([entry(40, process_group=("1", "tp"))], {}, None),  # the buffer is full, so it may have been in it
    ],
)
def test_rank_that_has_called_nothing(entries: list[dict[str, Any]], groups: dict[str, str], expected: object) -> None:
    """A rank without any collective of its process group has joined none, unless older ones were dropped."""
    others = [one for one in places(dump([waiting(1)], groups), dump(entries, groups)) if one.group == TOLD][1:]

    assert ([] if expected is None else [((1,), expected)]) == [(one.rank_ids, one.number) for one in others]


def test_rank_outside_of_a_process_group() -> None:
    """A rank without collectives of a group that is not known to have it is not missing there."""
    tp = dump([waiting(3, process_group=("4", "tp"))], {"4": "[0, 1]"})

    assert [(0, 1)] == [one.rank_ids for one in places(tp, tp, dump([entry(1)]))]


def test_process_groups_of_one_name() -> None:
    """Groups that torch has split from one share a name; ranks of one are not missing in another."""
    first, second = ({"1": ranks} for ranks in ("[0, 1]", "[2, 3]"))
    at: dict[str, Any] = {"process_group": ("1", "tp")}
    dumps = [dump([waiting(3, **at)], first), dump([], {}), *[dump([waiting(9, **at)], second)] * 2]

    assert [
        ("1 (tp) of ranks 2, 3", (2, 3), 9),
        ("1 (tp) of ranks 0, 1", (0,), 3),
        ("1 (tp) of ranks 0, 1", (1,), 0),
    ] == [(one.group, one.rank_ids, one.number) for one in places(*dumps)]


def test_several_process_groups() -> None:
    """Each group has its own numbers, and a rank can wait in one while it is missing in another."""
    dp, tp = waiting(9, process_group=("1", "dp")), waiting(4, process_group=("2", "tp"))
    found = places(dump([dp]), dump([dp]), dump([entry(8, process_group=("1", "dp")), tp]))

    assert [("1 (dp)", (0, 1), 9), ("1 (dp)", (2,), 8), ("2 (tp)", (2,), 4)] == [
        (one.group, one.rank_ids, one.number) for one in found
    ]


def test_transfers() -> None:
    """A rank that waits in a transfer between two ranks is told, and nobody is missing there."""
    recv = waiting(1, "nccl:recv 1<-0", is_p2p=True, p2p_seq_id=12)
    found = places(dump([entry(1), entry(2, is_p2p=True, p2p_seq_id=11)]), dump([entry(1), recv]))

    assert [place((1,), 12, "recv 1<-0", is_transfer=True)] == found


def test_only_so_many_process_groups_are_told() -> None:
    """A dump with very many groups does not flood the screen; those where most ranks wait come first."""
    many = [waiting(1, process_group=(str(number), "")) for number in range(100)]
    found = places(dump(many), dump(many[-1:]))

    assert flight_recorder.MOST_TOLD == len(found)
    assert ("99", (0, 1)) == (found[0].group, found[0].rank_ids)


# --- Reading ----------------------------------------------------------------------------------------------------------


def test_name_without_a_profile() -> None:
    """torch_npu records no names, so that the function of torch in the stack tells what was called."""
    frames = [
        {"name": "all_gather", "filename": "/x/torch/distributed/distributed_c10d.py", "line": 1},
        {"name": "wrapper", "filename": "/x/torch/distributed/c10d_logger.py", "line": 2},
    ]

    assert ["all_gather"] == [one.name for one in places(dump([waiting(1, "", frames=frames)]))]
    assert [""] == [one.name for one in places(dump([waiting(1, "", frames=frames[1:])]))]


def test_collectives_of_gloo_that_are_over() -> None:
    """They are never "completed", but retired."""
    assert [] == places(dump([entry(1, state="scheduled")]))


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=300),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(max_size=3), inner)
    ),
)


@given(PLAIN, st.integers(2, 5))
def test_plain_values(value: object, protocol: int) -> None:
    """Values of the kinds that a recorder writes are read as pickle reads them."""
    assert value == loads(pickle.dumps(value, protocol))


class Called:
    """Something that pickle.loads() would call."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Callable[[str], object], tuple[str]]:
        return os.mkdir, (str(self._path),)


@pytest.mark.parametrize("protocol", range(6))
def test_nothing_is_executed(protocol: int, tmp_path: Path) -> None:
    """A pickle that imports and calls is refused, and nothing has been called."""
    with pytest.raises(ValueError, match="instruction"):
        loads(pickle.dumps({"entries": [Called(tmp_path / "called")]}, protocol))

    assert [] == list(tmp_path.iterdir())


INSTRUCTIONS = st.sampled_from([ord(code.code) for code in pickletools.opcodes])


@given(st.binary(max_size=400) | st.lists(INSTRUCTIONS).map(bytes))
def test_any_bytes(data: bytes) -> None:
    """Whatever the bytes are, they are a recording or refused."""
    for read in (loads, decode):
        try:
            read(data)
        except ValueError:
            continue


REAL = dump([entry(number) for number in range(1, 9)] + [waiting(9)], {"0": "[0, 1]"})


@given(st.lists(st.tuples(st.integers(0, len(REAL) - 1), st.integers(0, 255)), max_size=4), st.integers(0, len(REAL)))
def test_damaged_dump(changes: list[tuple[int, int]], length: int) -> None:
    """A dump that was cut off or changed anywhere is a recording that can be compared, or refused."""
    data = bytearray(REAL)
    for at, value in changes:
        data[at] = value
    try:
        found = decode(bytes(data[:length]))
    except ValueError:
        return
    for group in compare({0: found, 1: decode(REAL)}):
        assert isinstance(group.name, str)
        assert isinstance(group.number, int)


DEEP = b"(" * 500_000 + b"t" * 500_000


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"}" * 3_000_000 + b".", "too many"),  # more values than any dump has
        (b"(I" + b"9" * 3_000_000 + b"\nt.", "no plain value"),  # C's unpickler takes minutes for these digits
        (b"]r\xff\xff\xff\xff0.", "no plain value"),  # and 64 GB for this place in its memo
        (b"X\xff\xff\xff\xff.", "the end is missing"),
        (DEEP + b".", "not a dump"),
        (b"}" + DEEP + b"Ns.", "names that are not strings"),  # its hash needs more than the C stack
    ],
    ids=["values", "digits", "memo", "string", "depth", "name"],
)
def test_hostile_dump_is_refused_at_once(data: bytes, problem: str) -> None:
    """What would take pickle.loads() minutes, gigabytes or the process takes seconds at most."""
    began = time.process_time()
    with pytest.raises(ValueError, match=problem):
        decode(data)

    assert 10 > time.process_time() - began


def test_long_list_that_all_entries_share() -> None:
    """A few bytes can refer to a long list again and again, which is not read again and again."""
    long = [1] * 50_000
    shared: dict[str, Any] = {
        "process_group": long,
        "frames": long,
        "input_sizes": [long] * 16,
        "profiling_name": "x" * 50_000,
    }
    data = dump([{**waiting(1), **shared}] * 20_000)
    began = time.process_time()
    decode(data)

    assert 10 > time.process_time() - began


# --- Asking -----------------------------------------------------------------------------------------------------------


@attrs.frozen
class Rank:
    """The paths of a rank's recorder."""

    pipe: Path
    dump: Path

    @property
    def paths(self) -> tuple[tuple[str, str], ...]:
        """These paths, as they are asked for."""
        return ((str(self.pipe), str(self.dump)),)

    @contextmanager
    def answering(self, data: bytes) -> Iterator[Callable[[], bool]]:
        """Make a pipe. Each call of the value, after somebody has written to it, writes a larger part of this dump."""
        os.mkfifo(self.pipe)
        fd = os.open(self.pipe, os.O_RDWR | os.O_NONBLOCK)
        calls = itertools.count(1)
        asked = b""

        def answer() -> bool:
            nonlocal asked
            with suppress(BlockingIOError):  # nobody has written to it
                asked = asked or os.read(fd, 128)
            if asked:
                self.dump.write_bytes(data[: len(data) * next(calls) // 3])
            return False

        yield answer
        os.close(fd)


@pytest.fixture
def ranks(tmp_path: Path) -> dict[int, Rank]:
    """Return four ranks, which have no pipes yet."""
    return {number: Rank(tmp_path / f"{number}.pipe", tmp_path / f"dump-{number}") for number in range(4)}


def paths(ranks: Mapping[int, Rank]) -> dict[int, tuple[tuple[str, str], ...]]:
    """Return the paths of all ranks."""
    return {number: rank.paths for number, rank in ranks.items()}


def test_rank_that_answers(ranks: dict[int, Rank]) -> None:
    """A dump is read when it is complete."""
    ranks[0].dump.write_bytes(IN_IT)
    with ranks[0].answering(BEFORE_IT) as answer:
        found = Question(paths(ranks), 60.0, answer).answers()

    assert {0: decode(BEFORE_IT)} == found


def test_dump_that_was_there_before(ranks: dict[int, Rank]) -> None:
    """It does not count: it is about another moment."""
    ranks[0].dump.write_bytes(IN_IT)
    with ranks[0].answering(b""):
        assert {0: None} == Question(paths(ranks), 0.3).answers()


def test_ranks_without_readers_cost_nothing(ranks: dict[int, Rank]) -> None:
    """A pipe that nobody reads, a missing one and a file in its place are not waited for, nor written to."""
    os.mkfifo(ranks[0].pipe)
    ranks[1].pipe.write_bytes(b"mine")
    began = time.monotonic()
    found = Question(paths(ranks), 60.0).answers()

    assert {} == found
    assert b"mine" == ranks[1].pipe.read_bytes()
    assert 30 > time.monotonic() - began


def test_nothing_to_ask() -> None:
    """Ranks without a recorder cost not even a thread."""
    before = threading.active_count()

    assert ({}, before) == (Question({0: (), 1: ()}).answers(), threading.active_count())


def test_reader_that_is_stopped(ranks: dict[int, Rank]) -> None:
    """A rank that does not read its pipe is not waited for long, and not at all if its pipe is full."""
    began = time.monotonic()
    os.mkfifo(ranks[0].pipe)
    script = 'exec 3<>"$0"; echo ready >"$1"; exec cat <&3 >/dev/null'
    command = ["/bin/sh", "-c", script, str(ranks[0].pipe), str(ranks[1].dump)]
    with subprocess.Popen(command) as reader, ranks[2].answering(IN_IT) as answer:
        wait_until(lambda: ranks[1].dump.exists() and ranks[1].dump.read_bytes())
        reader.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, reader.pid, os.WSTOPPED | os.WNOWAIT)  # until then, it might read
        found = Question(paths(ranks), 60.0, answer).answers()
        with ranks[0].pipe.open("r+b", buffering=0) as pipe:
            os.set_blocking(pipe.fileno(), False)
            while pipe.write(bytes(4096)):
                pass
            full = Question({0: ranks[0].paths}, 60.0).answers()
        reader.kill()

    assert {0: None, 2: decode(IN_IT)} == found
    assert {} == full
    assert 30 > time.monotonic() - began


def test_rank_that_ends(ranks: dict[int, Rank]) -> None:
    """A rank that has read its pipe is not waited for after its end."""
    os.mkfifo(ranks[0].pipe)
    script = 'exec 3<>"$0"; echo ready >"$1"; read -r line <&3'
    command = ["/bin/sh", "-c", script, str(ranks[0].pipe), str(ranks[1].dump)]
    began = time.monotonic()
    with subprocess.Popen(command):
        wait_until(lambda: ranks[1].dump.exists() and ranks[1].dump.read_bytes())
        found = Question(paths(ranks), 60.0).answers()

    assert {0: None} == found
    assert 30 > time.monotonic() - began


def test_rank_that_never_dumps(ranks: dict[int, Rank]) -> None:
    """A rank that has read its pipe, but cannot have the GIL, gets little longer than the ranks that have answered."""
    began = time.monotonic()
    with ranks[0].answering(IN_IT) as one, ranks[1].answering(IN_IT) as other, ranks[2].answering(b"") as stuck:
        found = Question(paths(ranks), 60.0, lambda: one() or other() or stuck()).answers()

    assert {0: decode(IN_IT), 1: decode(IN_IT), 2: None} == found
    assert 30 > time.monotonic() - began


def test_rank_that_dumps_later_than_most(ranks: dict[int, Rank]) -> None:
    """The last rank is waited for as long again as the others needed."""
    with ranks[0].answering(IN_IT) as one, ranks[1].answering(IN_IT) as other, ranks[2].answering(BEFORE_IT) as last:
        found = Question(paths(ranks), 60.0, lambda: one() or other() or (ranks[1].dump.exists() and last())).answers()

    assert {0: decode(IN_IT), 1: decode(IN_IT), 2: decode(BEFORE_IT)} == found


def test_dumps_until_somebody_waits(ranks: dict[int, Rank]) -> None:
    """Asked before the limit of a hang, ranks have all of the time until then: a dump of most of them cuts none short.

    A rank that has not dumped by then is not waited for any more, if the others have needed less than half of it.
    """
    with ranks[0].answering(IN_IT) as one, ranks[1].answering(BEFORE_IT) as late:
        answers = [one]
        question = Question(paths(ranks), 60.0, lambda: all(answer() for answer in answers))
        wait_until(lambda: ranks[0].dump.exists() and IN_IT == ranks[0].dump.read_bytes())
        began = time.monotonic()
        wait_until(lambda: time.monotonic() > began + 2 * flight_recorder.READ_INTERVAL)
        answers.append(late)
        answers.remove(one)
        wait_until(lambda: ranks[1].dump.exists() and BEFORE_IT == ranks[1].dump.read_bytes())
        found = question.answers()

    assert {0: decode(IN_IT), 1: decode(BEFORE_IT)} == found


def test_question_that_is_closed(ranks: dict[int, Rank]) -> None:
    """If the silence is over, nobody waits for dumps any more."""
    before = threading.active_count()
    with ranks[0].answering(b""):
        question = Question(paths(ranks), 60.0)
        question.close()
        wait_until(lambda: before == threading.active_count())

        assert {0: None} == question.answers()


LOG = b"[rank3]:[E703 15:37:17.178677976 ProcessGroupNCCL.cpp:1700] [PG ID 0 PG GUID 0 Rank 3] preparing to dump\n"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (LOG, True),
        (LOG * 2, True),
        (LOG.replace(b"[rank3]:", b"").replace(b"NCCL", b"HCCL"), True),
        (LOG + b"step 1\n", False),
        (LOG + LOG[:-1], False),
        (b"step 1\r" + LOG, False),
        (b"10%|# | ETA 0:10\r", False),
        (b"ProcessGroupNCCL.cpp:1700] at a line of the rank's own\n", False),
    ],
)
def test_what_recorders_log(data: bytes, expected: bool) -> None:  # noqa: FBT001
    """A line of the files that dump is known by its beginning; anything else may be the program's own."""
    assert expected is is_own_log(data)


def test_dumps_are_made_meanwhile(ranks: dict[int, Rank]) -> None:
    """Recorders are asked at once; by the time that somebody waits for them, they may have dumped."""
    with ranks[0].answering(IN_IT) as answer:
        question = Question(paths(ranks), 0.0)
        asked = [answer(), ranks[0].dump.exists()]

    assert ([False, True], {0: None}) == (asked, question.answers()), "and no time is left"


@pytest.mark.parametrize(
    "data",
    [b"", b"not a pickle", dump([waiting(1)]).replace(b"2.4", b"9.4"), bytes(flight_recorder.MOST_BYTES + 1)],
    ids=["empty", "garbage", "version", "huge"],
)
def test_dump_that_cannot_be_read(data: bytes, ranks: dict[int, Rank]) -> None:
    """A dump that is no dump, or larger than any that is read, is none."""
    with ranks[0].answering(data) as answer:
        assert {0: None} == Question(paths(ranks), 0.5, answer).answers()


def test_cut(ranks: dict[int, Rank]) -> None:
    """A job that is being stopped does not wait for dumps."""
    began = time.monotonic()
    with ranks[0].answering(b""):
        Question(paths(ranks), 60.0, lambda: True).answers()

    assert 30 > time.monotonic() - began


def test_two_recorders_of_a_rank(ranks: dict[int, Rank]) -> None:
    """A process may have that of torch and that of torch_npu; it is where either says."""
    gloo = dump([waiting(1, "gloo:barrier", process_group=("7", ""))])
    with ranks[0].answering(IN_IT) as one, ranks[1].answering(gloo) as other:
        found = Question({5: (*ranks[0].paths, *ranks[1].paths)}, 60.0, lambda: one() or other()).answers()

    assert {("0", 7), ("7", 1)} == {(channel.name, place.number) for channel, place in _places(found[5])}


def _places(recording: Recording | None) -> list[Any]:
    assert recording
    return list(recording.places.items())

"""What ranks that hang wait for, from the dumps of their flight recorders."""

from __future__ import annotations

import itertools
import math
import os
import pickle
import pickletools
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
from ascend_runner.node import bounded
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


def ask(
    ranks: Mapping[int, Rank], answer: Callable[[], bool] = bounded.never, before: Mapping[int, float] | None = None
) -> dict[int, Recording | None]:
    """Ask ranks that have answered before, all of them unless it is said which, and return their answers."""
    question = Question(paths(ranks), answer)
    question.start()
    question.await_asked()
    return question.answers(dict.fromkeys(ranks, flight_recorder.QUICK) if before is None else before)


def test_rank_that_answers(ranks: dict[int, Rank]) -> None:
    """A dump is read when it is complete."""
    ranks[0].dump.write_bytes(IN_IT)
    with ranks[0].answering(BEFORE_IT) as answer:
        assert {0: decode(BEFORE_IT)} == ask(ranks, answer)


def test_dump_that_was_there_before(ranks: dict[int, Rank]) -> None:
    """It does not count: it is about another moment."""
    ranks[0].dump.write_bytes(IN_IT)
    with ranks[0].answering(b""):
        assert {0: None} == ask(ranks, before={0: 0.0})


@pytest.mark.parametrize("before", [{}, {0: math.inf}], ids=["never", "late"])
def test_ranks_that_are_not_waited_for(before: dict[int, float], ranks: dict[int, Rank]) -> None:
    """A rank that has not answered before, or not quickly, is not waited for, even if it reads its pipe."""
    with ranks[0].answering(IN_IT):
        assert {0: None} == ask(ranks, before=before)


def test_ranks_without_readers(ranks: dict[int, Rank]) -> None:
    """A pipe that nobody reads, a missing one and a file in its place are not waited for, nor written to."""
    os.mkfifo(ranks[0].pipe)
    ranks[1].pipe.write_bytes(b"mine")

    assert {} == ask(ranks)
    assert b"mine" == ranks[1].pipe.read_bytes()


def test_pipe_that_is_full(ranks: dict[int, Rank]) -> None:
    """A rank that has not read its pipe for long is not asked."""
    os.mkfifo(ranks[0].pipe)
    with ranks[0].pipe.open("r+b", buffering=0) as pipe:
        os.set_blocking(pipe.fileno(), False)
        while pipe.write(bytes(4096)):
            pass

        assert {} == ask(ranks)


def test_nothing_to_ask() -> None:
    """Ranks without a recorder cost not even a thread."""
    before = threading.active_count()
    question = Question({0: (), 1: ()})
    question.start()
    question.await_asked()

    assert ({}, before) == (question.answers({0: 1.0}), threading.active_count())


def test_no_thread_can_be_started(ranks: dict[int, Rank], monkeypatch: pytest.MonkeyPatch) -> None:
    """Then nobody is asked, and nobody waits."""
    monkeypatch.setattr(threading.Thread, "start", _refuse)
    with ranks[0].answering(IN_IT) as answer:
        assert {} == ask(ranks, answer)


def _refuse(_thread: object) -> None:
    raise RuntimeError("can't start new thread")


def test_dumps_are_made_meanwhile(ranks: dict[int, Rank]) -> None:
    """Before anybody waits, dumps are collected, and it is measured how long they take."""
    with ranks[0].answering(IN_IT) as one, ranks[1].answering(BEFORE_IT) as late:
        may_answer = threading.Event()
        question = Question(paths(ranks), lambda: one() or (may_answer.is_set() and late()))
        question.start()
        wait_until(lambda: question.seconds)
        late_from = time.monotonic() + flight_recorder.QUICK
        wait_until(lambda: time.monotonic() > late_from)
        may_answer.set()
        wait_until(lambda: not question.is_open)

    assert {0: decode(IN_IT), 1: decode(BEFORE_IT)} == question.answers({})
    assert question.seconds[0] < flight_recorder.QUICK < question.seconds[1]


def test_question_that_is_closed(ranks: dict[int, Rank]) -> None:
    """If the ranks have gone on, dumps are neither collected nor kept, but who has answered is known."""
    with ranks[0].answering(IN_IT) as answer, ranks[1].answering(b""):
        question = Question(paths(ranks), answer)
        question.start()
        wait_until(lambda: question.seconds)
        question.close()
        wait_until(lambda: not question.is_open, limit=flight_recorder.DUMP_LIMIT / 2)

    assert {} == question.answers({1: 1.0})
    assert [0] == list(question.seconds)


@pytest.mark.parametrize(
    "data",
    [b"", b"not a pickle", dump([waiting(1)]).replace(b"2.4", b"9.4"), bytes(flight_recorder.MOST_BYTES + 1)],
    ids=["empty", "garbage", "version", "huge"],
)
def test_dump_that_cannot_be_read(data: bytes, ranks: dict[int, Rank]) -> None:
    """A dump that is no dump, or larger than any that is read, is none."""
    with ranks[0].answering(data) as answer:
        assert {0: None} == ask(ranks, answer, {0: 0.0})


def test_cut(ranks: dict[int, Rank]) -> None:
    """A job that is being stopped does not wait for dumps."""
    with ranks[0].answering(b""):
        question = Question(paths(ranks), lambda: True)
        question.start()
        wait_until(lambda: not question.is_open, limit=flight_recorder.DUMP_LIMIT / 2)


def test_two_recorders_of_a_rank(ranks: dict[int, Rank]) -> None:
    """A process may have that of torch and that of torch_npu; it is where either says."""
    gloo = dump([waiting(1, "gloo:barrier", process_group=("7", ""))])
    with ranks[0].answering(IN_IT) as one, ranks[1].answering(gloo) as other:
        question = Question({5: (*ranks[0].paths, *ranks[1].paths)}, lambda: one() or other())
        question.start()
        wait_until(lambda: not question.is_open)
        found = question.answers({})

    assert {("0", 7), ("7", 1)} == {(channel.name, place.number) for channel, place in _places(found[5])}


HEAD = b"[rank3]:[E703 15:37:17.178677976 ProcessGroupNCCL.cpp:1700] [PG ID 0 PG GUID 0(default_pg) Rank 3] "
LOG = HEAD + b"ProcessGroupNCCL preparing to dump debug info. Include stack trace: 1, only active collectives: 0\n"


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
        (HEAD + b"ProcessGroupNCCL dumping nccl trace to /log/dump-3\n", True),
        (HEAD + b"Finished writing Flight Recorder debug info to /log/dump-3\n", True),
        (HEAD + b"Dump signal received through pipe, triggering FR dump.\n", True),
        (HEAD + b"using GPU 1 to perform barrier as devices used by this process are currently unknown.\n", False),
        (HEAD + b"Watchdog caught collective operation timeout: we will try our best to dump the debug info\n", False),
        (b"preparing to dump debug info\n", False),
    ],
)
def test_what_recorders_log(data: bytes, expected: bool) -> None:  # noqa: FBT001
    """Only whole messages about a dump that was asked for are no sign of life."""
    assert expected is is_own_log(data)


def _places(recording: Recording | None) -> list[Any]:
    assert recording
    return list(recording.places.items())

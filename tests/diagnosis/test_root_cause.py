"""The rank that is named as the cause, and the certainty of that."""

from __future__ import annotations

import itertools
from signal import SIGKILL, SIGSEGV, SIGTERM

import pytest

from ascend_runner.diagnosis import log_evidence, root_cause
from ascend_runner.diagnosis.finding import Certainty, Peer, RootCause
from ascend_runner.diagnosis.root_cause import Death
from ascend_runner.supervision.causes import Ending

FAILED, STOPPED = Ending(exit_code=1), Ending(signum=SIGTERM)
NAN = b'Traceback (most recent call last):\n  File "train.py", line 5, in step\nValueError: loss is nan at step 17\n'
LOST = (
    b'Traceback (most recent call last):\n  File "train.py", line 7, in step\n    dist.all_reduce(loss)\n'
    b"RuntimeError: [/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.4]:5012\n"
)
CLOSED = (
    b'Traceback (most recent call last):\n  File "train.py", line 7, in step\nRuntimeError: Connection closed by peer\n'
)
PASSED_ON = (
    b'Traceback (most recent call last):\n  File "serve.py", line 9, in start\n'
    b"RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}\n"
)
INTERRUPTED = b'Traceback (most recent call last):\n  File "train.py", line 9, in step\nKeyboardInterrupt\n'
SIGNALLED = (
    b'Traceback (most recent call last):\n  File "run.py", line 9, in f\nx.SignalException: Process 7 got signal: 15\n'
)
ROCE = b"EI0013: [PID: 7] An error CQE occurred during operator execution.\n"
TRAINING = b"step 16 loss 2.31\n"


def failed(rank_id: int, log: bytes, ending: Ending = FAILED) -> Death:
    """Make a rank that ended by itself."""
    return Death(rank_id=rank_id, ending=ending, evidence=log_evidence.read(log, ending))


def stopped(rank_id: int, log: bytes, ending: Ending = STOPPED) -> Death:
    """Make a rank that the runner stopped after it had written `log`."""
    return Death(rank_id=rank_id, ending=ending, evidence=log_evidence.read(log), is_stopped=True)


def find(*deaths: Death, suspected: Peer | None = None) -> RootCause:
    """Find the root cause of a job whose first exit is the first of these."""
    return root_cause.find(deaths, deaths[0].rank_id, suspected)


def named(cause: RootCause) -> tuple[int, str]:
    """Return the rank and how sure it is."""
    return cause.rank_id, cause.certainty.value


@pytest.mark.parametrize(
    ("expected", "deaths"),
    [
        ((0, "certain"), [failed(0, NAN), stopped(1, LOST), stopped(2, TRAINING)]),
        ((2, "certain"), [failed(0, LOST), failed(2, NAN), stopped(1, TRAINING)]),
        ((2, "certain"), [failed(0, LOST), stopped(1, TRAINING), stopped(2, NAN, FAILED)]),
        ((2, "likely"), [failed(0, LOST), stopped(1, TRAINING), stopped(2, NAN)]),
        ((2, "likely"), [failed(0, b""), stopped(1, TRAINING), stopped(2, NAN)]),
        ((0, "likely"), [failed(0, b""), stopped(1, TRAINING)]),
        ((0, "likely"), [failed(0, NAN), stopped(1, NAN.replace(b"loss is nan", b"bad value"))]),
        ((0, "likely"), [failed(0, b"", Ending(signum=SIGKILL)), stopped(1, NAN), failed(2, LOST)]),
        ((0, "certain"), [failed(0, b"", Ending(signum=SIGSEGV)), failed(1, LOST)]),
        ((0, "open"), [failed(0, LOST), failed(1, LOST), stopped(2, TRAINING)]),
        ((1, "likely"), [failed(0, LOST), failed(1, ROCE), stopped(2, TRAINING)]),
        ((0, "open"), [failed(0, ROCE), failed(1, ROCE)]),
        ((0, "open"), [failed(0, CLOSED), stopped(1, TRAINING), stopped(2, TRAINING)]),
        ((0, "likely"), [failed(0, CLOSED)]),
        ((1, "likely"), [failed(0, LOST), stopped(1, TRAINING, Ending(signum=SIGSEGV)), stopped(2, TRAINING)]),
        ((0, "open"), [failed(0, ROCE), stopped(1, TRAINING, Ending(signum=SIGSEGV))]),
        ((0, "certain"), [failed(0, NAN), stopped(1, TRAINING, Ending(signum=SIGSEGV))]),
        ((2, "certain"), [failed(0, INTERRUPTED), failed(2, NAN), stopped(1, TRAINING)]),
        ((1, "likely"), [failed(0, LOST), stopped(1, INTERRUPTED), stopped(2, TRAINING)]),
        ((2, "certain"), [failed(0, SIGNALLED), failed(2, NAN), stopped(1, TRAINING)]),
        ((2, "likely"), [failed(0, PASSED_ON), stopped(1, TRAINING), stopped(2, NAN)]),
        ((0, "likely"), [failed(0, PASSED_ON), stopped(1, TRAINING)]),
        ((0, "certain"), [failed(0, NAN + PASSED_ON), stopped(1, TRAINING)]),
    ],
)
def test_strongest_evidence_is_named(expected: tuple[int, str], deaths: list[Death]) -> None:
    """A rank's own error beats a rank that only lost a peer; the first to end stays where nothing is stronger."""
    assert expected == named(find(*deaths))


def test_later_ends_in_any_order() -> None:
    """The order in which victims end changes nothing: the rank with the error of its own is named."""
    victims = [failed(1, LOST), failed(3, LOST), stopped(4, LOST), stopped(2, NAN)]
    for order in itertools.permutations(victims):
        assert (2, "likely") == named(find(failed(0, LOST), *order))


def test_the_first_to_end_is_kept() -> None:
    """What the rank whose exit status counts has said is not lost."""
    cause = find(failed(0, LOST), failed(2, NAN))

    assert "Connection closed by peer" in cause.first_summary
    assert "ValueError: loss is nan at step 17" == cause.summary


def test_same_cause_on_several_ranks_is_one_cause() -> None:
    """Errors that differ only in numbers are alike, and no doubt about each other."""
    cause = find(*(failed(rank_id, NAN.replace(b"17", b"%d" % rank_id)) for rank_id in range(4)))

    assert ((0, "certain"), (0, 1, 2, 3)) == (named(cause), cause.alike)


def test_candidates_of_an_open_cause() -> None:
    """At most three ranks are candidates, each with another error: the suspected peer, then the rarest error first."""
    deaths = [failed(rank_id, LOST) for rank_id in range(5)]
    resets = [failed(rank_id, LOST.replace(b"closed", b"reset")) for rank_id in (5, 6)]
    refused = [failed(rank_id, LOST.replace(b"closed", b"refused")) for rank_id in (8,)]
    cause = find(*deaths, *resets, *refused, suspected=Peer(rank_id=7, reported_by=(0, 1)))

    assert (Certainty.OPEN, (7, 8, 5)) == (cause.certainty, cause.candidates)


def test_no_candidate_is_singled_out() -> None:
    """Of ranks that report the same, only the first to end is a candidate."""
    cause = find(*(failed(rank_id, LOST) for rank_id in (3, 0, 1, 2)))

    assert ((3, "open"), (3,)) == (named(cause), cause.candidates)


GONE = (
    b'Traceback (most recent call last):\n  File "/job/mesh.py", line 7, in send\n    raise LinkDown(port)\n'
    b"mesh.LinkDown: port 5012 of 10.0.0.4 does not answer\n"
)
DECODE = GONE.replace(b"mesh.LinkDown: port 5012 of 10.0.0.4 does not answer", b"data.DecodeError: block 7 is cut off")


def gone(rank_id: int) -> Death:
    """Make a rank that ended because another one did, in words that nobody knows."""
    return failed(rank_id, GONE.replace(b"5012", b"50%d" % rank_id))


@pytest.mark.parametrize(
    ("expected", "deaths"),
    [
        ((2, "likely"), [gone(0), gone(1), failed(2, DECODE), gone(3)]),
        ((2, "likely"), [gone(0), gone(1), stopped(2, DECODE), gone(3)]),
        ((2, "likely"), [gone(0), gone(1), stopped(2, DECODE, FAILED), stopped(3, TRAINING)]),
        ((2, "likely"), [gone(0), gone(1), failed(2, b"", Ending(signum=SIGKILL)), gone(3)]),
        ((2, "likely"), [failed(0, b"lost the mesh\n"), failed(1, b"lost the mesh\n"), failed(2, b"bad block\n")]),
        ((0, "likely"), [gone(0), failed(2, DECODE)]),  # nobody says the same
        ((0, "likely"), [gone(0), gone(1), failed(2, DECODE), failed(3, DECODE)]),
        ((0, "certain"), [gone(0), gone(1), gone(2)]),
        ((0, "likely"), [failed(0, b"step 7\n"), failed(1, b"step 8\n"), failed(2, b"saving\n")]),
        ((0, "likely"), [gone(0), gone(1), failed(2, LOST), stopped(3, TRAINING)]),
    ],
)
def test_words_that_only_one_rank_has(expected: tuple[int, str], deaths: list[Death]) -> None:
    """Where several ranks fail with the same unknown words, one that says something else precedes them."""
    assert expected == named(find(*deaths))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (b"port 5012 of 10.0.0.4", b"port 5099 of 10.0.0.17"),
        (b"worker3", b"worker12"),
        (b"link 0xffff7f3ab010", b"link 0xfffe00c4d928"),
        (b"stream 3fa9c07e11d2", b"stream b41e6c5a90f3"),
        (b"mesh, 2026-11-22 09:47:36.123,", b"mesh, 2026-11-22 9:47:37.5,"),
    ],
    ids=["decimal", "name", "address", "hexadecimal", "time"],
)
def test_words_that_differ_in_what_every_rank_has(first: bytes, second: bytes) -> None:
    """Numbers, addresses, ids and times do not make the words of two ranks different."""
    lost = [failed(0, GONE.replace(b"port 5012 of 10.0.0.4", first))]
    lost += [failed(1, GONE.replace(b"port 5012 of 10.0.0.4", second))]

    assert (2, "likely") == named(find(*lost, failed(2, DECODE)))


def test_known_words_that_several_ranks_have() -> None:
    """Ranks that report a known error of their own do not yield: all of them may have it."""
    full = NAN.replace(b"ValueError: loss is nan at step 17", b"OSError: [Errno 28] No space left on device")

    assert (0, "likely") == named(find(failed(0, full), failed(1, full), failed(2, DECODE)))


@pytest.mark.parametrize(
    ("candidates", "others"),
    [
        ((2, 0), [b"step 15 loss 2.5\n", b"step 16 loss 2.31\ncleaning up\n", TRAINING]),
        ((2, 0), [b"", b"cleaning up\n", b""]),
        ((0,), [TRAINING, b"", b""]),  # the rank that logs
        ((0,), [TRAINING, b"", TRAINING]),  # no output differs
        ((0,), [TRAINING, b"saving\n", b"cleaning up\n"]),
        ((0,), [b"loading\n", b"cleaning up\n"]),
    ],
)
def test_stopped_rank_that_did_something_else_is_a_candidate(candidates: tuple[int, ...], others: list[bytes]) -> None:
    """After a lost connection, a stopped rank whose last line differs from that of the others may be the cause."""
    cause = find(failed(0, CLOSED), *(stopped(rank_id, log) for rank_id, log in enumerate(others, 1)))

    assert (Certainty.OPEN, candidates) == (cause.certainty, cause.candidates)


@pytest.mark.parametrize(
    ("is_open", "log", "others"),
    [
        (True, LOST, [TRAINING]),
        (True, LOST, [TRAINING, LOST]),
        (False, LOST, [TRAINING, NAN]),
        (False, NAN, [TRAINING]),
        (True, PASSED_ON, [TRAINING]),
        (False, b"", [TRAINING]),
    ],
)
def test_what_is_worth_a_wait(is_open: bool, log: bytes, others: list[bytes]) -> None:  # noqa: FBT001  a parameter
    """Only after a consequence, and until one of the others reports an error of its own."""
    living = [stopped(rank_id, other) for rank_id, other in enumerate(others, 1)]

    assert is_open == root_cause.is_open(failed(0, log), living)


@pytest.mark.parametrize(("log", "unread"), [(NAN, 3), (LOST, 1)])
def test_output_that_decides_nothing_is_not_searched(log: bytes, unread: int) -> None:
    """The output of living ranks is read only after a consequence, up to the first error of its own."""
    living = (stopped(rank_id, other) for rank_id, other in enumerate((TRAINING, NAN, TRAINING), 1))

    root_cause.is_open(failed(0, log), living)

    assert unread == len(list(living))

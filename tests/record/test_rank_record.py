"""The outcome of a job: whether the cause of a failure is on this node."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from signal import SIGKILL, SIGSEGV, SIGTERM

import attrs
import pytest

from ascend_runner.diagnosis.finding import Certainty, Peer, RootCause
from ascend_runner.errors import JobFailedError
from ascend_runner.members import Members
from ascend_runner.record import rank_record
from ascend_runner.record.rank_record import Outcome, RankRecord, RankState
from ascend_runner.supervision.causes import Cause, Ending, Exited, HangDetected, SpawnFailed

FAILED = Exited(0, Ending(exit_code=1))


def root(*, may_be_a_peer: bool = True, is_a_consequence: bool = False) -> RootCause:
    """Return what is known of the cause."""
    return RootCause(
        rank_id=0,
        summary="",
        certainty=Certainty.OPEN,
        may_be_a_peer=may_be_a_peer,
        is_a_consequence=is_a_consequence,
    )


@pytest.mark.parametrize(
    ("cause", "found", "peer", "expected"),
    [
        (FAILED, root(may_be_a_peer=False), None, True),
        (FAILED, root(), None, None),
        (FAILED, root(is_a_consequence=True), None, False),
        (FAILED, root(is_a_consequence=True), Peer(rank_id=9), False),
        (FAILED, root(is_a_consequence=True), Peer(rank_id=1), None),  # the lost peer is on this node
        (HangDetected(60.0), None, None, None),
        (SpawnFailed(0, "no memory", 125), None, None, True),
    ],
)
def test_place_of_the_cause(cause: Cause, found: RootCause | None, peer: Peer | None, *, expected: bool | None) -> None:
    """It is elsewhere only if all that the ranks report is a peer on another node."""
    ranks = (RankRecord(rank_id=0), RankRecord(rank_id=1))

    assert expected is Outcome(cause=cause, ranks=ranks, root=found, suspected_peer=peer).is_local


@pytest.mark.parametrize(
    ("cause", "found", "expected"),
    [
        (None, None, "succeeded; the job took 2 s"),
        (FAILED, None, "rank 0 failed: exit status 1; the job took 2 s"),
        (FAILED.explained("OSError: no"), None, "rank 0 failed: OSError: no (exit status 1); the job took 2 s"),
        (
            attrs.evolve(FAILED, rank_id=1),
            attrs.evolve(root(), summary="OSError: no"),
            "rank 0 caused the failure: OSError: no; rank 1 failed: exit status 1; the job took 2 s",
        ),
    ],
)
def test_printed(cause: Cause | None, found: RootCause | None, expected: str) -> None:
    """Printed, an outcome of many ranks is one line on how the job ended, which an exception has as well."""
    outcome = Outcome(cause=cause, root=found, ranks=(RankRecord(rank_id=0),) * 512, seconds=2.0)

    assert (expected, f"<Outcome: {expected}>") == (str(outcome), repr(outcome))
    with pytest.raises(JobFailedError) if cause else nullcontext() as caught:
        outcome.check()
    assert not caught or f"{caught.value}; the job took 2 s" == expected


@pytest.mark.parametrize(
    ("state", "ending", "words"),
    [
        (RankState.RUNNING, None, "running"),
        (RankState.NOT_STARTED, None, "not started"),
        (RankState.NOT_KILLED, None, "still alive after SIGKILL"),
        (RankState.SUCCEEDED, Ending(), "succeeded"),
        (RankState.FAILED, Ending(exit_code=7), "failed (exit status 7)"),
        (RankState.FAILED, Ending(signum=SIGSEGV, core_dumped=True), "failed (SIGSEGV, core dumped)"),
        (RankState.STOPPED, Ending(), "stopped by the runner (exit status 0)"),
        (RankState.STOPPED, Ending(signum=SIGTERM), "stopped by the runner (SIGTERM)"),
        (RankState.STOPPED, Ending(exit_code=143), "stopped by the runner (exit status 143)"),
        (RankState.STOPPED, Ending(signum=SIGKILL), "killed by the runner (SIGKILL)"),
        (RankState.STOPPED, Ending(exit_code=7), "ended after being asked to stop (exit status 7)"),
        (RankState.STOPPED, Ending(signum=SIGSEGV), "ended after being asked to stop (SIGSEGV)"),
    ],
)
def test_screen_and_report_use_the_same_words(state: RankState, ending: Ending | None, words: str) -> None:
    """The words also say that a rank was stopped by the runner, not by the platform or by itself."""
    members = {
        "exit_code": ending.exit_code if ending and not ending.signum else None,
        "signal": int(ending.signum) if ending and ending.signum else None,
        "core_dumped": bool(ending and ending.core_dumped),
    }

    assert words == rank_record.described(state, ending)
    assert words == words_of({**members, "state": state.value})


def words_of(members: Mapping[str, object]) -> str:
    """Return the words for a rank of a report."""
    return RankRecord.decode(Members({"rank_id": 0, **members}), 0.0).words


def test_unknown_state() -> None:
    """A report of a later version may have further states."""
    assert "unknown" == words_of({"signal": 15, "state": "parked"})
    assert "failed" == words_of({"signal": "x", "state": "failed"})

"""The outcome of a job: whether the cause of a failure is on this node."""

from __future__ import annotations

import pytest

from ascend_runner.diagnosis.finding import Certainty, Peer, RootCause
from ascend_runner.observations.rank_record import Outcome, RankRecord
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


def test_repr() -> None:
    """The representation is short enough to be read: the long report is not part of it."""
    assert "clock=" not in repr(Outcome(cause=None))
    assert "report=" not in repr(Outcome(cause=None, report={"status": "succeeded"}))

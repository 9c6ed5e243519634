"""The sentences about what came of a request for a checkpoint."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from ascend_runner.record.facts import CheckpointEnded, SavedCheckpoint
from ascend_runner.record.job_record import CheckpointRecord
from ascend_runner.supervision.causes import Ending
from ascend_runner.views import wording

SAVED = SavedCheckpoint(at=12.0, path="checkpoint-7", step=7)
NOT_SAVED = SavedCheckpoint(at=13.0, step=7)


@pytest.mark.parametrize(
    ("saved", "missing", "failed", "sentence"),
    [
        ({0: SAVED, 1: SAVED}, (), {}, "checkpoint at step 7 by ranks 0, 1 in 2 s"),
        ({0: SAVED, 1: NOT_SAVED}, (), {}, "checkpoint at step 7 by rank 0 in 2 s"),
        ({0: NOT_SAVED, 1: NOT_SAVED}, (), {}, "no rank has reported a checkpoint for step 7"),
        ({0: NOT_SAVED}, (1,), {}, "rank 1 has not reported a checkpoint within 5 s"),
        ({1: NOT_SAVED}, (), {0: Ending(1)}, "rank 0 failed before it had saved (exit status 1)"),
        ({}, (), {}, ""),
    ],
)
def test_only_ranks_with_a_path_have_saved(
    saved: dict[int, SavedCheckpoint], missing: tuple[int, ...], failed: dict[int, Ending], sentence: str
) -> None:
    """A rank that has gone on without saving has answered, but is not named as one that has saved."""
    fact = CheckpointEnded(asked_at=10.0, seconds=5.0, saved=saved, missing=missing, failed=failed)

    assert sentence == wording.ended(fact)


def test_wait_that_was_cut_short_was_not_the_limit() -> None:
    """The time that had passed at a second stop signal is not that which the ranks had to save."""
    fact = CheckpointEnded(asked_at=10.0, seconds=2.3, is_cut=True, missing=(0, 1))

    assert "ranks 0, 1 had not reported a checkpoint when the ranks were stopped after 2.3 s" == wording.ended(fact)


def test_rank_that_cannot_report_and_has_failed_is_named() -> None:
    """Whether it had saved is unknown."""
    fact = CheckpointEnded(asked_at=10.0, seconds=5.0, saved={0: SAVED}, failed_since={1: Ending(1)})

    assert wording.ended(fact).endswith("; rank 1 failed after it was asked for a checkpoint (exit status 1)")


@pytest.mark.parametrize(
    ("failed", "failed_since", "sentence"),
    [
        (range(8), (), "ranks 0-7 failed before they had saved (exit status 1)"),
        ((), range(8), "ranks 0-7 failed after they were asked for a checkpoint (exit status 1)"),
    ],
)
def test_ranks_that_fail_alike_share_a_sentence(
    failed: Iterable[int], failed_since: Iterable[int], sentence: str
) -> None:
    """All ranks of a node fail if the disk is full; another end of one of them is told beside that."""
    ends = [dict.fromkeys(rank_ids, Ending(1)) for rank_ids in (failed, failed_since)]
    for own in filter(None, ends):
        own[8] = Ending(signum=9)
    fact = CheckpointEnded(asked_at=10.0, seconds=5.0, failed=ends[0], failed_since=ends[1])

    alike, other = wording.ended(fact).split("; ")
    assert sentence == alike
    assert other.startswith("rank 8 failed ")


@pytest.mark.parametrize(
    ("unasked", "sentence"),
    [
        ((1,), "rank 1 was not asked, because it does not handle the signal"),
        ((1, 2), "ranks 1, 2 were not asked, because they do not handle the signal"),
    ],
)
def test_ranks_that_were_not_asked_are_named(unasked: tuple[int, ...], sentence: str) -> None:
    """They are named beside those that have saved."""
    fact = CheckpointEnded(asked_at=10.0, seconds=5.0, saved={0: SAVED}, unasked=unasked)

    assert f"checkpoint at step 7 by rank 0 in 2 s; {sentence}" == wording.ended(fact)


def test_report_has_the_ranks_that_have_saved() -> None:
    """Those that failed instead are missing."""
    fact = CheckpointEnded(
        asked_at=10.0, seconds=5.0, saved={0: NOT_SAVED, 1: SAVED}, missing=(3,), failed={2: Ending(1)}, unasked=(4,)
    )

    expected = CheckpointRecord(at=9.0, step=7, path="checkpoint-7", ranks=(1,), missing=(2, 3, 4), seconds=5.0)

    assert expected == wording.checkpoint_record(fact, 9.0)

"""The rows of the table of ranks: one for each of few ranks, and for the odd ones of many."""

from __future__ import annotations

from typing import Any

import pytest

from ascend_runner.members import Members
from ascend_runner.record.job_record import CauseRecord, JobRecord
from ascend_runner.views import page_ranks
from tests.views.conftest import FAILED, document, rank


def rows(count: int, *odd: dict[str, object]) -> list[page_ranks.Row]:
    """Return the rows about a job of so many ranks, of which some are odd."""
    report = document(count)
    found = {one["rank_id"]: one for one in report["ranks"]}  # type: ignore[attr-defined]  # as `document` has made it
    found.update({one["rank_id"]: one for one in odd})
    record = JobRecord.decode(Members({**report, "ranks": list(found.values())}))
    marks = page_ranks.marks_of(record.cause)
    return list(page_ranks.rows(page_ranks.in_order(record.ranks, marks), marks))


@pytest.mark.parametrize(
    ("cause", "marks"),
    [
        ({"rank_id": 5, "certainty": "certain", "alike": [5]}, {5: "cause"}),
        ({"rank_id": 5, "certainty": "likely", "candidates": [3]}, {5: "likely cause"}),
        ({"rank_id": 5, "certainty": "certain", "alike": [3, 5]}, {5: "cause", 3: "same failure"}),
        ({"rank_id": 5, "certainty": "open", "candidates": [3, 5]}, {5: "possible cause", 3: "possible cause"}),
        ({"kind": "rank_not_started", "rank_id": 5, "certainty": ""}, {5: "cause"}),
        ({"rank_id": 5, "is_a_consequence": True}, {}),
        ({"rank_id": 5, "is_a_consequence": True, "suspected_peer": {"rank_id": 9}}, {9: "check first"}),
        ({"kind": "hang", "rank_id": None}, {}),
        ({}, {}),
    ],
)
def test_marks(cause: dict[str, object], marks: dict[int, str]) -> None:
    """A rank is marked as sure as its cause is, the one that caused the failure first, and no victim is."""
    assert list(marks.items()) == list(page_ranks.marks_of(CauseRecord.decode(Members(cause))).items())


def test_few_ranks() -> None:
    """Each has its row, the one that failed first."""
    found = rows(64)

    assert ["rank 5", "rank 0", "rank 1"] == [row.title for row in found[:3]]
    assert 64 == len(found)
    assert ("0", "4711", "12 s", "3.6 GiB") == (found[1].device, found[1].pid, found[1].took, found[1].memory)


def test_many_ranks() -> None:
    """The rank that failed and those in a rare state have their rows, the others one with the ranges."""
    odd = [rank(one, state="not_killed", ended_at="", seconds=0.0) for one in (7, 900)]
    failed, *others, alike = rows(1024, *odd, rank(8, log_lost=100), rank(-1, name="scheduler"))

    assert ["rank 7", "rank 900", "scheduler", "rank 8"] == [row.title for row in others]
    assert ("rank 5", "failed (exit status 1)", "5", "4716") == (failed.title, failed.words, failed.device, failed.pid)
    assert ("ranks 0-4, 6, 9-899, 901-1023", "stopped by the runner (SIGTERM)") == (alike.title, alike.words)
    assert ("12 s", "3.6 GiB to 13.2 GiB", "11 s to 17 min 14 s") == (alike.took, alike.memory, alike.cpu)
    assert ("", "", "") == (alike.device, alike.pid, alike.log)
    assert others[-1].output.endswith(", 100 bytes missing")


def test_all_ranks_have_failed() -> None:
    """Of many ranks that fail in the same way, one row has the cause and another all others."""
    ends: dict[str, Any] = {"state": "failed", "exit_code": 1, "signal": None, "ended_at": FAILED}
    found = rows(1024, *(rank(one, **ends) for one in range(1024)))

    assert ["rank 5", "ranks 0-4, 6-1023"] == [row.title for row in found]

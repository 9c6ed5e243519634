"""The strips of a timeline, in thousandths of its width."""

from __future__ import annotations

from typing import Any

from ascend_runner.members import Members
from ascend_runner.record.job_record import JobRecord
from ascend_runner.views import page_ranks
from tests.views.conftest import Write, document, rank, rendered

STOPPED: dict[str, Any] = {"activity": [0, 0, 100, 100, 25, 0], "cell_seconds": 2.0}
FAILS: dict[str, Any] = {"state": "failed", "exit_code": 1, "signal": None, "signals": [], "activity": []}


def drawing(report: dict[str, object]) -> page_ranks.Timeline:
    """Return the timeline of a job, whose first rank failed."""
    record = JobRecord.decode(Members(report))
    marks = page_ranks.marks_of(record.cause)
    ranks = page_ranks.in_order(record.ranks, marks)
    drawn = page_ranks.draw(ranks, marks, 12.0, ranks[0])

    assert drawn
    return drawn


def test_strips() -> None:
    """A strip begins with the rank, is thin before and after its output, and hatched from when it was asked to stop."""
    failed = rank(2, **FAILS, ended_at="2026-11-22T09:47:46.000+08:00", seconds=10.0)
    members = [rank(1, **STOPPED), failed, rank(5, **STOPPED, started_at="2026-11-22T09:47:39.000+08:00", seconds=9.0)]
    drawn = drawing(document(3, ranks=members))
    culprit, one, late = drawn.strips

    assert (833, True) == (drawn.failure, drawn.has_activity)
    assert ["0 s", "3 s", "6 s", "9 s", "12 s"] == [text for _place, text in drawn.ticks]
    assert ("rank 2", "failed (exit status 1)", 0, 833, 0) == (
        culprit.title,
        culprit.words,
        culprit.x,
        culprit.width,
        culprit.stopping,
    )
    assert [True, False, False] == [strip.is_unknown for strip in drawn.strips]
    assert (0, 1000, 167, 167, 167, 1000) == (one.x, one.width, one.quiet, one.silent, one.stopping, one.killed)
    assert "M167 20V20H333V0H667V10H833V20H1000V20Z" == one.activity
    assert (250, 750, 0) == (late.x, late.width, late.quiet)
    assert "last output after 10 s; asked to stop after 10 s; killed after 12 s; ended after 12 s" in one.times


def test_many_ranks_share_strips() -> None:
    """Beyond some ranks, those that have ended alike share a strip; one that failed has its own."""
    drawn = drawing(document(1024))

    assert ["rank 5", "ranks 0-4, 6-1023"] == [strip.title for strip in drawn.strips]


def test_long_list_of_ranks() -> None:
    """Ranks whose list would fill the page beside their strip are counted."""
    report = document(1024)
    report["ranks"] = [rank(one, **(FAILS if one % 7 == 0 else {})) for one in range(1024)]
    drawn = drawing(report)

    assert ["rank 5", "147 ranks", "876 ranks"] == [strip.title for strip in drawn.strips]


def test_hang(write: Write) -> None:
    """The last output before a hang is marked, and the rank with another stack than the others has a label."""
    stacks = [
        {"rank_ids": [2], "state": "S", "frames": ["load (data.py:3)"]},
        {"rank_ids": [0, 1], "state": "S", "frames": ["all_reduce (train.py:7)"]},
    ]
    ranks = [rank(one, last_output_at="2026-11-22T09:47:42.000+08:00") for one in range(3)]
    cause = {"kind": "hang", "sentence": "no rank wrote any output for 30 min"}
    text = rendered(write(document(3, cause=cause, ranks=ranks, hang=stacks)))

    assert "The dashed line marks the last output before the hang, 6 s after the start." in text
    assert 3 == text.count('class="hang"')
    assert "hangs elsewhere</em>" in text


def test_hang_without_output(write: Write) -> None:
    """The start is marked if no rank has ever written anything."""
    members: dict[str, Any] = {"first_output_at": None, "last_output_at": None, "activity": []}
    cause = {"kind": "hang", "sentence": "no rank wrote any output for 30 min"}
    text = rendered(write(document(3, cause=cause, ranks=[rank(one, **members) for one in range(3)])))

    assert "The dashed line marks the start of the job, which hangs without any output." in text
    assert 3 == text.count('class="hang" d="M0 ')

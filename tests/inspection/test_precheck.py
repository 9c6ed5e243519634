"""The check before the start: when it begins, and when the start waits for it."""

from __future__ import annotations

import threading

import pytest

from ascend_runner import problems
from ascend_runner.errors import AscendRunnerError
from ascend_runner.inspection.precheck import Precheck, Subjects
from ascend_runner.supervision.findings import NodeFinding
from tests.helpers.waiting import LIMIT

FULL = ("space", problems.error("the disk is full"))


def go_on(_seconds: float) -> None:
    """Wait without a stop signal."""


def test_check_that_takes_too_long_is_told() -> None:
    """With --precheck stop the job starts if the check takes longer than its limit, which is told."""
    is_over, warnings = threading.Event(), list[str]()

    def look() -> Subjects:
        is_over.wait(LIMIT)
        return ()

    precheck = Precheck(look, print, warnings.append, can_stop=True, limit=0.2)
    precheck.end(go_on)
    is_over.set()

    assert ["the pre-check has not ended within 0.2 s; the job starts without its result"] == warnings


def test_error_prevents_the_start() -> None:
    """With --precheck stop the start waits for the check, which begins then at the latest, and fails with its error."""
    found, warnings = list[NodeFinding](), list[str]()
    precheck = Precheck(lambda: [FULL], found.append, warnings.append, can_stop=True)

    with pytest.raises(AscendRunnerError):
        precheck.end(go_on)
    assert (1, 1) == (len(found), len(warnings))


def test_start_without_a_wait_is_not_checked() -> None:
    """With --precheck warn nothing is checked unless the runner has to wait, and no later wait begins a check."""
    found = list[NodeFinding]()
    precheck = Precheck(lambda: [FULL], found.append, print, can_stop=False)
    precheck.end(go_on)
    precheck.begin()

    assert [] == found

"""The check before the start: when it begins, and when the start waits for it."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from ascend_runner import problems
from ascend_runner.errors import AscendRunnerError
from ascend_runner.job.precheck import Precheck, Subjects
from ascend_runner.problems import Problem
from ascend_runner.supervision.causes import FindingKind, NodeFinding
from tests.helpers.messages import KeptMessages
from tests.helpers.waiting import LIMIT, wait_until

FULL = ("space", True, [problems.error("the disk is full")])


def go_on(_seconds: float) -> None:
    """Wait without a stop signal."""


def test_check_that_takes_too_long_is_reported() -> None:
    """With --precheck stop the job starts if the check takes longer than its limit, which is reported."""
    is_over, messages = threading.Event(), KeptMessages()

    def look() -> Subjects:
        is_over.wait(LIMIT)
        return ()

    precheck = Precheck(look, print, messages, can_stop=True, limit=0.2)
    precheck.end(go_on)
    is_over.set()

    assert ["the pre-check did not finish within 0.2 s; the job starts without its result"] == messages.of("warning")


def test_error_prevents_the_start() -> None:
    """With --precheck stop the start waits for the check, which begins then at the latest, and fails with its error."""
    findings: list[NodeFinding] = []
    messages = KeptMessages()
    precheck = Precheck(lambda: [FULL], findings.append, messages, can_stop=True)

    with pytest.raises(AscendRunnerError):
        precheck.end(go_on)
    assert (2, 1) == (len(findings), len(messages.of("warning")))


def test_start_without_a_wait_is_checked_beside_the_ranks() -> None:
    """If the runner need not wait, the check begins later, with what the ranks do not change."""
    findings: list[NodeFinding] = []
    subjects = [("ports", False, [problems.error("port 1 is in use")]), FULL]
    precheck = Precheck(lambda: subjects, findings.append, KeptMessages(), can_stop=False, delay=0.5)
    precheck.end(go_on)
    wait_until(lambda: len(findings) == 2)

    assert ["space: the disk is full", "the pre-check found 1 error (not checked: ports)"] == [
        found.sentence for found in findings
    ]


def test_short_job_is_not_checked() -> None:
    """A check that has not begun when the job ends never does."""
    findings: list[NodeFinding] = []
    precheck = Precheck(lambda: [FULL], findings.append, KeptMessages(), can_stop=False, delay=LIMIT)
    precheck.end(go_on)
    precheck.close()
    wait_until(lambda: "pre-check" not in {thread.name for thread in threading.enumerate()})

    assert [] == findings


def test_check_ends_with_the_job() -> None:
    """What it finds later is neither shown nor recorded."""
    has_begun, is_over, findings = threading.Event(), threading.Event(), list[NodeFinding]()
    messages = KeptMessages()

    def look() -> Subjects:
        has_begun.set()
        is_over.wait(LIMIT)
        yield FULL
        findings_seen.set()

    findings_seen = threading.Event()
    precheck = Precheck(look, findings.append, messages, can_stop=False)
    precheck.begin()
    assert has_begun.wait(LIMIT)
    precheck.close()
    is_over.set()

    assert findings_seen.wait(LIMIT)
    assert ([], []) == (findings, messages.of("warning"))


def test_clean_result_is_an_event() -> None:
    """Whoever reads the events knows that the node was checked."""
    findings: list[NodeFinding] = []
    precheck = Precheck(lambda: [("space", True, ())], findings.append, KeptMessages(), can_stop=True)
    precheck.end(go_on)

    assert [(FindingKind.PRECHECKED, "the pre-check found no problems")] == [
        (found.kind, found.sentence) for found in findings
    ]


def test_subjects_that_ranks_change() -> None:
    """Once the ranks start, a check goes on only with what they do not change, and says what it has left out."""
    has_begun, has_started = threading.Event(), threading.Event()
    findings: list[NodeFinding] = []
    messages = KeptMessages()

    def ports() -> Iterator[Problem]:
        yield problems.warning("port 1 is in use")
        has_begun.set()
        has_started.wait(LIMIT)
        yield problems.warning("port 2 is in use")

    def look() -> Subjects:
        yield "ports", False, ports()
        yield "health", False, iter([problems.error("not checked")])
        yield FULL

    precheck = Precheck(look, findings.append, messages, can_stop=False)
    precheck.begin()
    assert has_begun.wait(LIMIT)
    precheck.end(go_on)
    has_started.set()
    wait_until(lambda: len(findings) == 3)

    assert ["ports: port 1 is in use", "space: the disk is full"] == [found.sentence for found in findings[:2]]
    assert "the ranks started before the pre-check had covered ports, health" == messages.of("debug")[-1]
    assert ["pre-check: space: the disk is full"] == messages.of("warning")


@pytest.mark.parametrize("can_stop", [False, True])
def test_check_without_a_thread(monkeypatch: pytest.MonkeyPatch, *, can_stop: bool) -> None:
    """Where no thread can be started the job is not checked, which one warning says."""

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")  # as threading does at the limit of processes

    monkeypatch.setattr(threading.Thread, "start", refuse)
    findings: list[NodeFinding] = []
    messages = KeptMessages()
    precheck = Precheck(lambda: [FULL], findings.append, messages, can_stop=can_stop)
    precheck.begin()
    precheck.begin()
    precheck.end(go_on)

    assert ([], []) == (findings, messages.of("debug"))
    assert ["pre-check skipped"] == [text.partition(":")[0] for text in messages.of("warning")]

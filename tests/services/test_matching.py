"""Lines are searched for the user's expression in a child process, which is given up if that takes too long."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ascend_runner.guardian import process_tree
from ascend_runner.services.pace import MOST_AT_ONCE, Matcher
from ascend_runner.training.steps import LONGEST

STEP = r"step (?P<step>\d+) took (?P<ms>\d+)"
ENDLESS = r"iteration (?P<step>\d+) (a+)+$"


@contextmanager
def matching(pattern: str) -> Iterator[tuple[Matcher, list[str]]]:
    """Yield a matcher, and its warnings."""
    warnings: list[str] = []
    matcher = Matcher(pattern, warnings.append)
    try:
        yield matcher, warnings
    finally:
        matcher.close()


def test_lines_at_once() -> None:
    """Each line has its own match, in the order of the lines; a group that is not in the match is left out."""
    with matching(r"loss \d+ at (?P<step>\d+)( in (?P<seconds>\S+))?") as (matcher, warnings):
        matches = matcher.search([b"loss 2 at 5", b"nothing", b"loss 1 at all", b"loss 1 at 9 in 3s", b"\xff\0"])

    assert [] == warnings
    assert [{"step": b"5"}, None, None, {"step": b"9", "seconds": b"3s"}, None] == matches


def test_longest_lines_at_once() -> None:
    """They and their answers are larger than the buffer of a pipe."""
    line = b"took " + b"\xff" * LONGEST
    with matching("took (?P<ms>.+)") as (matcher, warnings):
        found = [match and len(match["ms"]) for match in matcher.search([line] * MOST_AT_ONCE)]

    assert ([LONGEST] * MOST_AT_ONCE, []) == (found, warnings)


def test_bytes_that_are_no_text() -> None:
    """A group has the bytes of the line, and an expression may have any byte."""
    with matching("took \udcff (?P<ms>.+)") as (matcher, _warnings):
        assert [{"ms": b"\xfe\0"}] == matcher.search([b"took \xff \xfe\0"])


@pytest.mark.deep
def test_search_that_does_not_end() -> None:
    """The expression is not used again, which is reported once."""
    with matching(ENDLESS) as (matcher, warnings):
        found = [matcher.search([b"iteration 7 " + b"a" * 60 + b"!"]) for _ in range(2)]

    assert [[None]] * 2 == found
    assert [f"--perf-pattern '{ENDLESS}' is no longer used: a search took more than 1 s"] == warnings


def test_no_child_without_a_line_for_it() -> None:
    """Nor after the end."""
    before = process_tree.children(os.getpid())
    with matching(STEP) as (matcher, _warnings):
        assert [None] == matcher.search([b"nothing"])
        assert before == process_tree.children(os.getpid())
        matcher.stop()
        assert [None] == matcher.search([b"step 7 took 12"])
        assert before == process_tree.children(os.getpid())

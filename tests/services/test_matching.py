"""Lines are searched for the user's expressions in a child process, which is given up if that takes too long."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

from ascend_runner.guardian import process_tree
from ascend_runner.services.matching import MOST_AT_ONCE, Matcher
from ascend_runner.training.steps import LONGEST

STEP = r"step (?P<step>\d+) took (?P<ms>\d+)"
ENDLESS = r"iteration (?P<step>\d+) (a+)+$"


def groups(matcher: Matcher, line: bytes) -> Mapping[str, bytes] | None:
    """Return the groups of a match, or None if there is no match."""
    (match,) = matcher.search([line])
    return match and match[1]


@contextmanager
def matching(*patterns: str) -> Iterator[tuple[Matcher, list[str]]]:
    """Yield a matcher, and its warnings."""
    warnings: list[str] = []
    matcher = Matcher(patterns, warnings.append)
    try:
        yield matcher, warnings
    finally:
        matcher.close()


def test_groups_of_the_first_match() -> None:
    """Expressions are tried in their order; a group that is not in the match is left out, and so is any other line."""
    with matching(STEP, r"loss \d+ at (?P<step>\d+)( in (?P<seconds>\S+))?") as (matcher, warnings):
        lines = (b"step 7 took 12 ms", b"loss 2 at 5", b"step 7 of 12", b"\xff\0")
        found = [groups(matcher, line) for line in lines]

    assert ([{"step": b"7", "ms": b"12"}, {"step": b"5"}, None, None], []) == (found, warnings)


def test_lines_at_once() -> None:
    """Each line has its own match, in the order of the lines."""
    with matching(STEP, r"loss \d+ at (?P<step>\d+)") as (matcher, warnings):
        step, loss = matcher.patterns
        matches = matcher.search([b"loss 2 at 5", b"nothing", b"step 7 took 12", b"step 8 of 12", b"loss 1 at 9"])

    assert [] == warnings
    assert [
        (loss, {"step": b"5"}),
        None,
        (step, {"step": b"7", "ms": b"12"}),
        None,
        (loss, {"step": b"9"}),
    ] == matches


def test_longest_lines_at_once() -> None:
    """They and their answers are larger than the buffer of a pipe."""
    line = b"took " + b"\xff" * LONGEST
    with matching("took (?P<ms>.+)") as (matcher, warnings):
        found = [match and len(match[1]["ms"]) for match in matcher.search([line] * MOST_AT_ONCE)]

    assert ([LONGEST] * MOST_AT_ONCE, []) == (found, warnings)


@pytest.mark.deep
def test_other_lines_beside_a_search_that_does_not_end() -> None:
    """They are searched for the other expressions."""
    with matching(ENDLESS, STEP) as (matcher, warnings):
        lines = (b"step 6 took 11", b"iteration 7 " + b"a" * 60 + b"!", b"step 8 took 13")
        found = [match and match[1] for match in matcher.search(lines)]

    assert [{"step": b"6", "ms": b"11"}, None, {"step": b"8", "ms": b"13"}] == found
    assert 1 == len(warnings)


def test_bytes_that_are_no_text() -> None:
    """A group has the bytes of the line, and an expression may have any byte."""
    with matching("took \udcff (?P<ms>.+)") as (matcher, _warnings):
        assert {"ms": b"\xfe\0"} == groups(matcher, b"took \xff \xfe\0")


def test_search_that_does_not_end() -> None:
    """The expression is not used again, which is reported once, and the others are."""
    with matching(ENDLESS, STEP) as (matcher, warnings):
        line = b"iteration 7 " + b"a" * 60 + b"! step 7 took 12"
        found = [groups(matcher, line), groups(matcher, line)]

    assert [{"step": b"7", "ms": b"12"}] * 2 == found
    assert [f"--perf-pattern '{ENDLESS}' is no longer used: a search took more than 1 s"] == warnings


def test_no_child_without_a_line_for_it() -> None:
    """Nor after the end."""
    before = process_tree.children(os.getpid())
    with matching(STEP) as (matcher, _warnings):
        assert groups(matcher, b"nothing") is None
        assert before == process_tree.children(os.getpid())
        matcher.stop()
        assert groups(matcher, b"step 7 took 12") is None
        assert before == process_tree.children(os.getpid())

"""The judgement of regular expressions: their literals, and whether a search may take exponential time."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascend_runner.diagnosis.catalogue import ours
from ascend_runner.diagnosis.expressions import faults, literals, open_ends


@pytest.mark.parametrize(
    ("expected", "pattern"),
    [
        (["no space left"], "No space left"),
        (["[errno 28]", "disk full"], r"\[Errno 28\]|disk full"),
        (["abc"], "abcd?ef"),
        (["abcd"], "abcd+e"),
        (["def"], "ab?def"),
        (["ile"], r"[Ff]ile (?:not found|missing)"),
        (["(a.b)"], r"\(a\.b\)"),
        ([": error"], r"\w+: error(?! code)"),
        ([""], r"(?:one|two)"),
        (["end"], r"\u4e2dend"),
        (["ab", ""], r"ab|\d{3}"),
        (["x]y"], r"x\]y[]ab]"),
    ],
)
def test_literals(expected: list[str], pattern: str) -> None:
    """For each alternative, the longest text without which it cannot match."""
    assert expected == [literal.strip() for literal in literals(pattern)]


EXPRESSIONS = [pattern for rules in ours().rules.values() for entry, _literals in rules for pattern in entry.match]


@given(st.sampled_from(EXPRESSIONS).flatmap(lambda pattern: st.tuples(st.just(pattern), st.from_regex(pattern))))
def test_what_matches_has_a_literal(found: tuple[str, str]) -> None:
    """Whatever one of our expressions matches contains one of its literals."""
    pattern, text = found

    assert any(literal in text.lower() for literal in literals(pattern))


@pytest.mark.parametrize(
    "pattern",
    ["(a+)+b", "(?:a*)*b", r"(\w+\s?)+x", "(?:.*a){9}b", "(?:a|a)*b", "(.*,)*x", r"(?:\d+|[a-z0-9]+)+x", "(?:a?b?)+c"],
)
def test_expression_that_may_take_for_ever(pattern: str) -> None:
    """A repetition inside of another one, or alternatives that begin alike, match one text in many ways."""
    assert ["it may take exponential time"] == [reason.partition(":")[0] for reason in faults(pattern)]


@pytest.mark.parametrize("pattern", [r"(?:\w+\.)*\w+ x", r"(?:[\w-]+ ){0,4}x", "(?:a|b)+c", "(?:(?!ab).)*c", "a.*b.*c"])
def test_expression_that_ends(pattern: str) -> None:
    """What follows a repetition in a repeated group ends it."""
    assert [] == list(faults(pattern))


@pytest.mark.parametrize("pattern", ["(a", "(?i)a", "a(?i:b)", "a*"])
def test_useless_expression(pattern: str) -> None:
    """An invalid expression, one with flags of its own, and one that matches nothing at all are refused."""
    assert 1 == len(list(faults(pattern)))


@pytest.mark.parametrize(
    ("expected", "pattern"),
    [
        (3, ".*a.*a.*b"),
        (4, r"\w*\w*\w*\w*x"),
        (4, r"(?:a.*b|c.*d\s*.+e.*f)"),
        (2, "a.{0,80}b.{0,80}c"),
        (1, r"licence \w+ of \S+ .* refused"),
        (0, r"rank \d+ lost \w+ a.{0,9}b"),
    ],
)
def test_open_ends(expected: int, pattern: str) -> None:
    """A repetition counts if it also matches the character after it, unless it is short."""
    assert expected == open_ends(pattern)


def test_our_expressions_end() -> None:
    """No expression of ours takes long for a line of one character."""
    for pattern in EXPRESSIONS:
        for char in "a 0:/.'":
            re.search(pattern, char * 1000, re.IGNORECASE)

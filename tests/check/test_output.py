"""How findings are shown: columns, summary, JSON."""

from __future__ import annotations

import json

import pytest

from ascend_runner.check.output import Found, format_finding, format_json, format_summary
from ascend_runner.problems import error, warning


def test_columns() -> None:
    """Verdict, subject and sentence are aligned, with the remedy below the sentence."""
    assert "ok       grace        15 s\n" == format_finding("grace", "15 s")
    assert "WARNING  other nodes  odd\n                      fix: that\n" == format_finding(
        "other nodes", warning("odd", "that")
    )


def test_nothing_steers_the_terminal() -> None:
    """Names from tables and tools are escaped, and stay on their line."""
    assert "ok       space        a\\x1b[31m b\n" == format_finding("space", "a\x1b[31m\nb")


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([], "node-3: no problems found"),
        ([("a", "x")], "node-3: no problems found"),
        ([("a", warning("x"))], "node-3: 1 warning (a)"),
        (
            [("b", warning("x")), ("a", warning("x")), ("a", warning("y")), ("c", error("z"))],
            "node-3: 1 error (c); 3 warnings (b, a)",
        ),
    ],
)
def test_summary(found: list[Found], expected: str) -> None:
    """The last line begins with the host name, which one searches for in the logs of 64 nodes."""
    assert expected == format_summary(found, "node-3")


@pytest.mark.parametrize(
    ("found", "expected"),
    [([], "ok"), ([("a", "x")], "ok"), ([("a", "x"), ("b", warning("x"))], "warning"), ([("b", error("x"))], "error")],
)
def test_worst_verdict_of_a_document(found: list[Found], expected: str) -> None:
    """A program need not look through the list."""
    assert expected == json.loads(format_json(found, "x"))["verdict"]


def test_findings_of_a_document() -> None:
    """Each finding has its subject, verdict, sentence and remedy."""
    document = json.loads(format_json([("a", "x"), ("b", error("y", "z"))], "node-3"))

    assert [
        {"subject": "a", "verdict": "ok", "found": "x", "to_do": ""},
        {"subject": "b", "verdict": "error", "found": "y", "to_do": "z"},
    ] == document["checks"]

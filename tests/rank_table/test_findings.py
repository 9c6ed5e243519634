"""Findings as sentences and as errors."""

from __future__ import annotations

from ascend_runner.rank_table.findings import BAD_VALUE, ERROR, Finding, as_error


def _finding(sentence: str, path: str = "", source: str = "") -> Finding:
    return Finding(severity=ERROR, sentence=sentence, path=path, source=source, code=BAD_VALUE)


def test_finding_is_said_with_its_place() -> None:
    """As far as the place is known."""
    assert "it is odd, in 'a[0].b' of t.json" == str(_finding("it is odd", "a[0].b", "t.json"))
    assert "it is odd, in t.json" == str(_finding("it is odd", source="t.json"))
    assert "it is odd, in 'a'" == str(_finding("it is odd", "a"))
    assert "it is odd" == str(_finding("it is odd"))


def test_findings_as_an_error() -> None:
    """The error tells the first finding and how many there are more, and carries them."""
    error = as_error([_finding("one", "a", "t.json"), _finding("two", "b", "t.json")])

    assert "one, in 'a' of t.json (and 1 more)" == str(error)
    assert [("two, in 'b' of t.json", BAD_VALUE)] == [(str(other), other.code) for other in error.others]
    assert ("one", "a", "t.json", BAD_VALUE) == (error.sentence, error.path, error.source, error.code)
    assert "one" == str(as_error([_finding("one")]))

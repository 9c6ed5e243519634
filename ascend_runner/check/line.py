"""What a check says of one subject."""

from __future__ import annotations

import enum
from typing import NamedTuple


class Verdict(enum.Enum):
    """How it stands with a subject."""

    OK = "ok"
    WARNING = "warning"  # odd, but a job may well run
    ERROR = "error"  # a job would fail, or not do what it should


class Line(NamedTuple):
    """One verdict: what was found, and what to do about it ("" where nothing is to be done)."""

    verdict: Verdict
    found: str
    to_do: str = ""


def ok(found: str) -> Line:
    """Say that nothing is to be done."""
    return Line(Verdict.OK, found)


def warning(found: str, to_do: str = "") -> Line:
    """Say what is odd."""
    return Line(Verdict.WARNING, found, to_do)


def error(found: str, to_do: str = "") -> Line:
    """Say what a job would fail of."""
    return Line(Verdict.ERROR, found, to_do)

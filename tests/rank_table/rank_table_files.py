"""The files of fixtures/, by name."""

from __future__ import annotations

from pathlib import Path

FIXTURES = Path(__file__).parents[2] / "fixtures"


def valid(name: str) -> bytes:
    """Return the content of fixtures/valid/<name>.json."""
    return (FIXTURES / "valid" / f"{name}.json").read_bytes()


def invalid(name: str) -> bytes:
    """Return the content of fixtures/invalid/<name>.json."""
    return (FIXTURES / "invalid" / f"{name}.json").read_bytes()

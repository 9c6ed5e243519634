"""Fixture files by name."""

from __future__ import annotations

from pathlib import Path
from typing import Callable

import pytest

FIXTURES = Path(__file__).parents[2] / "fixtures"


@pytest.fixture
def valid() -> Callable[[str], bytes]:
    """Give the content of fixtures/valid/<name>.json."""
    return lambda name: (FIXTURES / "valid" / f"{name}.json").read_bytes()


@pytest.fixture
def invalid() -> Callable[[str], bytes]:
    """Give the content of fixtures/invalid/<name>.json."""
    return lambda name: (FIXTURES / "invalid" / f"{name}.json").read_bytes()

"""This process's standard output and error, redirected to pipes that a test reads."""

from __future__ import annotations

import pytest

from tests.helpers.screen import Screen


@pytest.fixture
def screen() -> Screen:
    """Return pipes for the outputs of this process."""
    return Screen()

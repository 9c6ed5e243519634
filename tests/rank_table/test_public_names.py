"""The public names of `ascend_runner.rank_table`, and the price of importing the package."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ascend_runner import rank_table


@pytest.mark.parametrize("name", rank_table.__all__)
def test_public_name(name: str) -> None:
    """Every public name exists and has a docstring."""
    assert getattr(rank_table, name).__doc__


def test_package_without_tables_stays_light() -> None:
    """`import ascend_runner`, which the guardian does, does not import this package."""
    program = f"import sys; sys.path[:] = {sys.path!r}; import ascend_runner; print('orjson' in sys.modules)"
    ran = subprocess.run([sys.executable, "-S", "-c", program], check=True, capture_output=True, text=True)

    assert "False\n" == ran.stdout

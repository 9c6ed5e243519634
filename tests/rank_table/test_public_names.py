"""What `ascend_runner.rank_table` promises, and what importing it costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ascend_runner import rank_table


@pytest.mark.parametrize("name", rank_table.__all__)
def test_public_name(name: str) -> None:
    """Every name is handed out when it is asked for, and its docstring says what holds."""
    assert getattr(rank_table, name).__doc__


def test_unknown_name() -> None:
    """A name that is not there is an AttributeError, as of any module."""
    with pytest.raises(AttributeError, match=r"^module 'ascend_runner\.rank_table' has no attribute 'open'$"):
        getattr(rank_table, "open")  # noqa: B009 - mypy sees that it is not there


def test_import_brings_nothing_heavy() -> None:
    """The package itself brings no library in, and reading a table only attrs and orjson."""
    program = """
import sys
import ascend_runner.rank_table
print(sorted({"attr", "orjson"} & sys.modules.keys()))
ascend_runner.rank_table.read
print(sorted({"asyncio", "logging", "pathlib", "psutil", "tempfile"} & sys.modules.keys()))
"""
    ran = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path[:] = {sys.path!r}\n{program}"],
        check=True,
        capture_output=True,
        text=True,
    )

    assert "[]\n[]\n" == ran.stdout

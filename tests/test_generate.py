"""The files that scripts/generate writes are up to date."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[1] / "scripts"


@pytest.mark.parametrize(
    "script",
    [
        "static_options",
        "compatibility",
        "completions",
        "promise",
        "report_schema",
        pytest.param("state_diagram", marks=pytest.mark.deep),
    ],
)
def test_generated_files_are_up_to_date(script: str) -> None:
    """What is static follows from the tables of options and of transitions, and from the records of the report."""
    done = subprocess.run(
        [sys.executable, "-m", script, "--check"], cwd=SCRIPTS, stderr=subprocess.PIPE, text=True, check=False
    )

    assert (0, "") == (done.returncode, done.stderr)

"""The rank that caused a failure, under torch with gloo, where its peers notice before it has ended."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.clients.conftest import PROGRAMS, RUNNER, run
from tests.helpers.reports import read_report

RANKS = 4


@pytest.mark.parametrize("run_number", range(10))
@pytest.mark.parametrize("kind", ["", "finally", "workers", "slow"])
@pytest.mark.parametrize("culprit", [0, 2])
def test_rank_that_raised_is_named(culprit: int, kind: str, run_number: int, tmp_path: Path) -> None:
    """It is named wherever it could print its exception; else the cause is open, never wrong and certain."""
    program = (sys.executable, str(PROGRAMS / "one_fails.py"), str(culprit), kind)
    ended = run(*RUNNER, "--nproc-per-node", str(RANKS), "--log-dir", "log", *program, cwd=tmp_path)
    (report,) = (tmp_path / "log").glob("*-report*.json")
    cause = read_report(report)["cause"]

    assert ended.status
    if cause["rank_id"] != culprit:
        assert "open" == cause["certainty"], f"run {run_number}:\n{ended.screen}"
    else:
        assert "ValueError: loss is nan at step 20" in cause["sentence"]

"""What ranks that hang wait for, with torch's own recorder of the collectives of gloo."""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path

import pytest

from ascend_runner.diagnosis.flight_recorder import loads
from tests.clients.conftest import PROGRAMS, RUNNER, run


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("nothing", "rank 2 has not joined it (its last one is all_reduce #3)"),
        ("broadcast", "rank 2 waits in broadcast #4 (24 elements) instead"),
    ],
)
def test_rank_that_the_others_wait_for(kind: str, expected: str, tmp_path: Path) -> None:
    """A rank that does not join a collective is told of, and so is one that has called another."""
    program = (sys.executable, str(PROGRAMS / "joins.py"), "2", kind)
    options = ("--nproc-per-node", "4", "--log-dir", "log", "--hang-timeout", "20")
    ended = run(*RUNNER, *options, *program, cwd=tmp_path)
    dumps = sorted((tmp_path / "log").glob("*-flight-recorder-torch-rank-*"))
    (report,) = (tmp_path / "log").glob("*-report.json")

    assert 124 == ended.status
    group = "process group 0 (default_pg)"
    assert f"ranks 0, 1, 3 wait in all_reduce #4 (24 elements) of {group}; {expected}\n" in ended.screen
    assert 2 == len(json.loads(report.read_bytes())["collectives"])
    assert 4 == len(dumps)
    for dump in dumps:
        data = dump.read_bytes()
        assert pickle.loads(data) == loads(data)  # noqa: S301  written by this test

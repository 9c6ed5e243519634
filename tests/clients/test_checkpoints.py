"""Recipes: frameworks that are asked for a checkpoint by SIGUSR1 save it at one step, and resume with the next one."""

from __future__ import annotations

import re
import signal
import sys
from pathlib import Path

import pytest

import ascend_runner
from tests.clients.conftest import LIMIT, PROGRAMS, RUNNER, Started
from tests.helpers.waiting import wait_until


@pytest.mark.parametrize("framework", ["torch", "accelerate", "lightning", "transformers", "mindspore"])
def test_saved_when_asked_and_resumed(tmp_path: Path, framework: str, request: pytest.FixtureRequest) -> None:
    """Two ranks save after the same step; the next run starts from the newest complete checkpoint, with step + 1."""
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    options = ("--nproc-per-node", "2", "--log-dir", str(tmp_path / "log"))
    python = request.getfixturevalue("numpy_1") if framework == "mindspore" else sys.executable
    command = (*RUNNER, *options, python, str(PROGRAMS / f"resumes_{framework}.py"), str(folder))
    env = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(ascend_runner.__file__).parents[1])}
    first = Started(command, env, tmp_path)
    wait_until(lambda: all((tmp_path / f"ready-{rank}").exists() for rank in (0, 1)), limit=LIMIT)
    first.send(signal.SIGUSR1)
    saved = first.finish()
    resumed = Started(command, env, tmp_path).finish()
    steps = [int(step) for step in re.findall(r"saved after step (\d+)", saved.screen)]

    assert 0 == saved.status, saved.screen
    assert 2 == len(steps)
    assert 1 == len(set(steps))
    assert (0, 2) == (resumed.status, resumed.screen.count(f"first step {steps[0] + 1}\n")), resumed.screen

"""The directory that the runner and its ranks share while they run."""

from __future__ import annotations

import os
import re
import signal
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ascend_runner.services import run_folder
from tests.helpers.package_source import PACKAGE
from tests.helpers.program import WORKERS, Program


@pytest.fixture(name="tmp_path")
def short_folder() -> Iterator[Path]:
    """Return a directory with a path that is short enough for sockets."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def test_directory_is_private_and_goes_with_the_run(tmp_path: Path) -> None:
    """It is this user's alone, in the place that a variable names, and removed with what is in it."""
    environ = {run_folder.RUN_DIR_VARIABLE: str(tmp_path / "run")}
    with run_folder.opened(environ) as first, run_folder.opened(environ) as second:
        Path(first, "requests").touch()
        modes = [stat.S_IMODE(os.stat(path).st_mode) for path in (tmp_path / "run", first, second)]

    assert [0o700] * 3 == modes
    assert first != second
    assert [] == os.listdir(tmp_path / "run")


def test_directories_of_killed_runs_are_removed(tmp_path: Path) -> None:
    """Directories with free locks are removed; those of living runs stay."""
    environ = {run_folder.RUN_DIR_VARIABLE: str(tmp_path)}
    (tmp_path / "run-killed").mkdir()
    with run_folder.opened(environ) as living, run_folder.opened(environ):
        left = os.listdir(tmp_path)

    assert "run-killed" not in left
    assert os.path.basename(living) in left


def test_places_of_others_are_not_used(tmp_path: Path) -> None:
    """A link, a directory that others can write to, a relative or long path: the next place is taken."""
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "link").symlink_to(tmp_path)
    good = {"XDG_RUNTIME_DIR": str(tmp_path)}
    for name in (str(tmp_path / "open"), str(tmp_path / "link"), "relative", "/" + "x" * 100, "/proc/1/x"):
        with run_folder.opened({run_folder.RUN_DIR_VARIABLE: name, **good}) as folder:
            assert folder.startswith(f"{tmp_path}/ascend-runner/")


def test_ranks_save_at_the_same_step(program: Program) -> None:
    """SIGUSR1 to the runner asks all ranks, which run at their own pace, for a checkpoint after one step."""
    env = {"PYTHONPATH": str(PACKAGE.parent), run_folder.RUN_DIR_VARIABLE: str(program.folder / "run")}
    run = program.start("--nproc-per-node", "4", sys.executable, str(WORKERS / "saves.py"), env=env)
    run.wait_for("ready", times=4)
    run.send(signal.SIGUSR1)

    assert 0 == run.finish()
    assert 1 == len(set(re.findall(r"saved (\d+)", run.screen)))
    assert 4 == run.screen.count("saved ")
    assert [] == os.listdir(program.folder / "run")

"""The commands that sentences name, in each way in which the programs can be started."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import pytest

import ascend_runner
from ascend_runner import programs
from tests.helpers.bundles import wheel, with_python, write_bundle
from tests.helpers.surroundings import CLEAN
from tests.helpers.waiting import LIMIT

PACKAGE: Final = Path(ascend_runner.__file__).parent


def _bundle(folder: Path) -> Path:
    """Make a bundle of this package, without the packages that it needs, which this Python has."""
    sources = {str(path.relative_to(PACKAGE.parent)): path.read_text("utf-8") for path in PACKAGE.rglob("*.py")}
    folder.mkdir(exist_ok=True)
    return write_bundle(folder / "one file.pyz", wheel(folder / "ascend_runner-1-py3-none-any.whl", sources))


def _without_scripts(folder: Path) -> list[str]:
    """Make a virtual environment like this one, but without the scripts of the package."""
    (folder / "bin").mkdir()
    (folder / "bin" / "python").symlink_to(os.path.realpath(sys.executable))
    shutil.copy(Path(sys.prefix) / "pyvenv.cfg", folder)
    (folder / "lib").symlink_to(Path(sys.prefix) / "lib")
    return [str(folder / "bin" / "python"), "-m"]


def _module(folder: Path, program: str) -> list[str]:
    return [*_without_scripts(folder), f"ascend_runner{programs.MODULES[program]}"]


def _script(_folder: Path, program: str) -> list[str]:
    return [str(Path(sys.executable).parent / program)]


def _in_bundle(folder: Path, program: str) -> list[str]:
    return [sys.executable, str(_bundle(folder)), "--as", program]


def _in_bundle_with_python(folder: Path, program: str) -> list[str]:
    path = with_python(_bundle(folder), f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    return [str(path), "--as", program]


def _link(folder: Path, program: str) -> list[str]:
    link = folder / f"{program}.pyz"
    link.symlink_to(_bundle(folder))
    return [sys.executable, str(link)]


Start = Callable[[Path, str], list[str]]


def _output(words: list[str], env: Mapping[str, str], cwd: Path) -> str:
    env = {"HOME": str(cwd), **env}
    return subprocess.run(words, env=env, cwd=cwd, capture_output=True, text=True, check=True).stdout


@pytest.mark.deep(quick=4)
@pytest.mark.parametrize("program", [programs.RUNNER, programs.JOB, programs.RANK_TABLE])
@pytest.mark.parametrize("start", [_module, _script, _in_bundle, _in_bundle_with_python, _link])
def test_commands_in_sentences_work_where_they_are_printed(start: Start, program: str, tmp_path: Path) -> None:
    """Without the scripts on PATH, the command in a help text runs the same program in a shell."""
    shown = _output([*start(tmp_path, program), "--help"], {"PATH": "/usr/bin:/bin"}, tmp_path)
    usage = shown.split("usage: ")[1].split("[")[0].strip()
    version = _output(["sh", "-c", f"{usage} --version"], {"PATH": "/usr/bin:/bin"}, tmp_path)

    assert ascend_runner.__version__ == version.split()[-1]
    assert (version != f"{ascend_runner.__version__}\n") is (program != programs.RUNNER)


def test_installed_scripts_are_named_as_users_type_them() -> None:
    """With the scripts on PATH, a sentence names nothing else."""
    path = f"{Path(sys.executable).parent}:{CLEAN['PATH']}"
    script = "from ascend_runner import programs; print(programs.command('ascend-job list'))"
    shown = _output([sys.executable, "-c", script], {"PATH": path}, Path("/"))

    assert "ascend-job list\n" == shown


@pytest.mark.deep(quick=1)
def test_bundle_starts_itself_for_a_batch(tmp_path: Path) -> None:
    """`ascend-job batch` runs its commands with the bundle that it is in."""
    (tmp_path / "batch.txt").write_text("--nproc-per-node 1 sh -c 'echo > started'\n")
    words = [*_in_bundle(tmp_path / "folder", programs.JOB), "batch", "batch.txt"]
    _output(words, {"PATH": "/usr/bin:/bin"}, tmp_path)

    assert (tmp_path / "started").exists()


@pytest.mark.deep
@pytest.mark.parametrize("with_own_python", [False, True])
def test_held_job_is_released_by_the_line_on_its_screen(tmp_path: Path, *, with_own_python: bool) -> None:
    """A job that was started from a bundle can be released where nothing else of the package is installed."""
    start = (_in_bundle_with_python if with_own_python else _in_bundle)(tmp_path / "folder", programs.RUNNER)
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "ASCEND_RUNNER_RUN_DIR": str(tmp_path / "run")}
    words = [*start, "--hold", "600", "--nproc-per-node", "1", "/bin/sh", "-c", "exit 7"]
    with subprocess.Popen(words, env=env, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as job:
        try:
            assert job.stderr
            (line,) = itertools.islice((line for line in job.stderr if "release with" in line), 1)
            release = line.partition("release with ")[2].partition(", or kill")[0]
            shown = _output(["sh", "-c", release], env, tmp_path)
            job.communicate(timeout=LIMIT)
        finally:
            job.terminate()  # if it was not released

    assert 7 == job.returncode
    assert ": released (sent SIGTERM to pid " in shown

"""The commands that sentences name, in each way in which the programs can be started."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import attrs
import pytest

import ascend_runner
from ascend_runner import programs
from tests.helpers.bundles import wheel, with_python, write_bundle
from tests.helpers.surroundings import CLEAN
from tests.helpers.waiting import LIMIT

PACKAGE: Final = Path(ascend_runner.__file__).parent


def _bundle(folder: Path) -> Path:
    """Make a bundle of this package, without the packages that it needs, which this Python has."""
    paths = (path for path in PACKAGE.rglob("*") if path.suffix in {".py", ".html", ".css"})
    sources = {str(path.relative_to(PACKAGE.parent)): path.read_text("utf-8") for path in paths}
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


def _copy(folder: Path, program: str) -> list[str]:
    return [sys.executable, str(_bundle(folder).rename(folder / f"{program}.pyz"))]


Start = Callable[[Path, str], list[str]]


def _output(words: list[str], env: Mapping[str, str], cwd: Path) -> str:
    env = {"HOME": str(cwd), **env}
    return subprocess.run(words, env=env, cwd=cwd, capture_output=True, text=True, check=True).stdout


@pytest.mark.deep(quick=4)
@pytest.mark.parametrize("program", [programs.RUNNER, programs.JOB, programs.RANK_TABLE])
@pytest.mark.parametrize("start", [_module, _script, _in_bundle, _in_bundle_with_python, _link, _copy])
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


@attrs.frozen
class Place:
    """A directory where only a bundle can be started: not even py-spy is beside its Python."""

    cwd: Path
    env: Mapping[str, str]
    start: tuple[str, ...]

    @classmethod
    def make(cls, folder: Path, *, with_own_python: bool = False) -> Place:
        """Make one."""
        for name in ("python", "bundle", "cwd"):
            (folder / name).mkdir()
        python, _option = _without_scripts(folder / "python")
        bundle = _bundle(folder / "bundle")
        if with_own_python:
            with_python(bundle, f'#!/bin/sh\nexec "{python}" "$@"\n')
        env = {"PATH": f"{folder}/python/bin:/usr/bin:/bin", "HOME": str(folder)}
        env = {**env, "ASCEND_RUNNER_RUN_DIR": f"{folder}/run", "ASCEND_RUNNER_NPROC_PER_NODE": "1"}
        return cls(folder / "cwd", env, ("/bin/sh" if with_own_python else python, str(bundle)))

    def run(self, line: str, cwd: str = ".") -> str:
        """Run a line in a shell; return what it prints."""
        return subprocess.run(
            ["/bin/sh", "-c", line],
            env=self.env,
            cwd=self.cwd / cwd,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT,
            check=False,
        ).stdout

    def say(self, program: str, words: str, pattern: str) -> str:
        """Return the command line that a program prints in a sentence."""
        return line_in(self.run(f"{shlex.join(self.start)} --as {program} {words}"), pattern)


def line_in(text: str, pattern: str) -> str:
    """Return what a group of a pattern matches."""
    found = re.search(pattern, text)
    assert found, text
    return found[1]


@pytest.mark.deep(quick=2)
@pytest.mark.parametrize(
    ("program", "words", "pattern", "expected"),
    [
        (programs.RUNNER, "./train.py", r"did you mean: (.*)\?\)", "trained"),
        (programs.RUNNER, "-m train", r"did you mean: (.*)\?\)", "trained"),
        (programs.RUNNER, "--help", r"example: (.*) --nproc-per-node 8", "usage: "),
        (programs.RUNNER, "--hang-timeout 60 true", r"py-spy is not installed \((.*)\)", "pip install"),
        (programs.JOB, "nothing", r"see (.*), or specify", "no jobs"),
        (programs.JOB, "status nothing", r"see (.*), or specify", "no jobs"),
        (programs.JOB, "--help", r"example: (.*)", "usage: "),
        (programs.JOB, "logs --help", r"example: (.*)", "usage: "),
        (programs.RANK_TABLE, "--help", r"example: (.*)", "usage: "),
        (programs.RANK_TABLE, "show --help", r"example: (.*)", "usage: "),
        (programs.RANK_TABLE, "show --svg x", r"removed: (.*) draws", "usage: "),
        (programs.RANK_TABLE, "show table.json", r"more; (.*) lists all", "usage: "),
    ],
)
def test_command_in_a_sentence_runs_as_it_is_printed(
    program: str, words: str, pattern: str, expected: str, tmp_path: Path
) -> None:
    """Where only a bundle is, a shell runs each command line of its sentences."""
    place = Place.make(tmp_path)
    (place.cwd / "train.py").write_text("print('trained')")
    wrong = {"server_id": "10.0.0.1", "device": [{"rank_id": "x"}] * 100}
    (place.cwd / "table.json").write_text(json.dumps({"status": "completed", "server_list": [wrong]}))
    line = place.say(program, words, pattern)

    assert expected in place.run(line if expected in {"trained", "no jobs"} else f"{line} --help")


@contextmanager
def started(place: Place, *words: str) -> Iterator[subprocess.Popen[str]]:
    """Start a job of a bundle and wait until it runs; at the end, wait until what was done in the context has ended it.

    Only its errors are left to read.
    """
    command = [*place.start, "--log-dir", "log", *words]
    with subprocess.Popen(command, env=place.env, cwd=place.cwd, stdout=-1, stderr=-1, text=True) as job:
        try:
            assert job.stdout
            job.stdout.readline()
            yield job
            job.communicate(timeout=LIMIT)
        finally:
            job.terminate()


@pytest.mark.deep
@pytest.mark.parametrize("with_own_python", [False, True])
def test_commands_on_the_screens_of_a_running_job(tmp_path: Path, *, with_own_python: bool) -> None:
    """The lines of a job that was started from a bundle show its stacks and stop it; they name the job."""
    place = Place.make(tmp_path, with_own_python=with_own_python)
    with started(place, "--nproc-per-node", "2", "sh", "-c", "echo ready; exec sleep 1000") as job:
        stacks = place.run(place.say(programs.JOB, "status", r"others wait for, run (.*)"))
        stop = place.say(programs.JOB, "release", r"to stop it, run (.*)")
        told = place.say(programs.JOB, "limit 0.01", r"; use (.*) to stop it")
        stopped = place.run(stop)

    assert 143 == job.returncode
    assert "stacks of ranks 0, 1" in stacks
    assert f"{told} sh" == stop
    assert stopped.startswith("sh: sent SIGTERM to pid ")


@pytest.mark.deep
def test_command_that_writes_a_missing_page(tmp_path: Path) -> None:
    """`ascend-job status` has the line that makes the HTML report of a job which has failed without one."""
    place = Place.make(tmp_path)
    place.run(f"{shlex.join(place.start)} --html never sh -c 'exit 7'")
    place.run(place.say(programs.JOB, "status", r"not written; to write it, run (.*)"))

    assert 1 == len([*place.cwd.glob("logs/latest/*.html")])


# The HTML report cannot be written, because a directory is in its place.
FAILS: Final = "echo ready; until [ -e go ]; do sleep 0.02; done; mkdir log/sh-report.html; exit 7"


@pytest.mark.deep
@pytest.mark.deep(quick=1)
@pytest.mark.parametrize("with_own_python", [False, True])
def test_commands_on_the_screens_of_a_held_job(tmp_path: Path, *, with_own_python: bool) -> None:
    """The lines of a job that was started from a bundle write its page elsewhere and release it."""
    place = Place.make(tmp_path, with_own_python=with_own_python)
    (place.cwd / "elsewhere").mkdir()
    with started(place, "--hold", "600", "sh", "-c", FAILS) as job:
        (place.cwd / "go").touch()
        assert job.stderr
        screen = ""
        while "to write it there" not in screen:
            screen += job.stderr.readline()
        page = place.run(line_in(screen, r"run (.*) elsewhere to write it there"), "elsewhere")
        release = line_in(screen, r"release with (.*), or kill")
        told = [place.say(programs.JOB, "status", r"to release it now, run (.*)")]
        told += [place.say(programs.JOB, "limit +1h", r"; use (.*)")]
        released = place.run(release)

    assert 7 == job.returncode
    assert page.startswith("wrote sh-report.html")
    assert [release, release.removesuffix(" sh")] == told
    assert ": released (sent SIGTERM to pid " in released

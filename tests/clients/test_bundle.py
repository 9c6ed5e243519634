"""The one file that users upload: built by scripts/bundle, and run on each Python that is here as users run it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.conftest import Ended, run
from tests.helpers.pythons import SUPPORTED, python_of

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
PYTHONS = [*filter(None, map(python_of, SUPPORTED))]
RANKS = ("--nproc-per-node", "2", "/bin/sh", "-c", "echo rank $RANK")
NOBODY = 65534


@pytest.fixture(scope="module")
def public() -> Iterator[Path]:
    """Yield a directory that every user may read: pytest's own is closed again by each pytest that starts meanwhile."""
    with tempfile.TemporaryDirectory() as path:
        folder = Path(path)
        folder.chmod(0o755)
        yield folder


@pytest.fixture(scope="module")
def bundle(public: Path) -> Path:
    """Build the bundle for this machine, in a directory that every user may read."""
    return Path(shutil.copy(_built(os.uname().machine), public / "ascend-runner.pyz"))


def _built(*words: str) -> Path:
    script = str(ROOT / "scripts" / "bundle")
    built = subprocess.run([script, *words], capture_output=True, text=True, check=False, umask=0o077)
    assert 0 == built.returncode, built.stderr
    return ROOT / built.stdout.split()[-1]


@pytest.fixture(scope="module")
def relocatable(public: Path) -> Path:
    """Pack Debian's Python, which finds its library from its own place, as `install_only` archives are packed."""
    program = Path("/usr/bin/python3").resolve()
    library = Path("/usr/lib") / program.name
    if program.name.removeprefix("python") not in SUPPORTED or not (library / "os.py").exists():
        pytest.skip("the Python of this system is not one that can be packed")
    path = public / "install_only.tar.gz"
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        archive.add(program, "python/bin/python3")
        archive.add(library, f"python/lib/{program.name}")
    return path


def _started(ended: Ended) -> bool:
    return (0, ["rank 0", "rank 1"]) == (ended.status, ended.lines)


@pytest.mark.parametrize("python", PYTHONS)
def test_pythons(python: str, bundle: Path, tmp_path: Path) -> None:
    """On each Python it starts the ranks without an installation and without a HOME."""
    env = {"HOME": "", "TMPDIR": str(tmp_path)}
    ended = run(python, str(bundle), "--log-dir", "log", *RANKS, env=env, cwd=tmp_path)

    assert _started(ended), ended.screen


@pytest.mark.parametrize("mode", [0o755, 0o777], ids=["read-only", "shared"])
def test_home_of_another_user(mode: int, bundle: Path, public: Path) -> None:
    """With a HOME that belongs to root, read-only or shared, another user's job runs as well."""
    home, temporary = public / f"home-{mode}", public / f"tmp-{mode}"
    home.mkdir()
    temporary.mkdir()
    home.chmod(mode)
    temporary.chmod(0o1777)
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin") or pytest.skip("no Python that every user may run")
    env = {"HOME": str(home), "TMPDIR": str(temporary), "PATH": "/usr/bin:/bin"}
    for user in (0, NOBODY):
        log = temporary / f"log-{user}"
        words = ("setpriv", f"--reuid={user}", "--clear-groups", python, str(bundle), "--log-dir", str(log), *RANKS)
        ended = run(*words, env=env, cwd=temporary)

        assert _started(ended), ended.screen


@pytest.fixture(scope="module")
def with_python(relocatable: Path) -> Path:
    """Build the bundle with a Python in it, by the line of the README."""
    (line,) = re.findall(r"^    (scripts/bundle --python) \S+-install_only\.tar\.gz$", README, re.MULTILINE)
    return _built(*line.split()[1:], str(relocatable))


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """Make the PATH of an image without a Python."""
    folder = tmp_path / "tools"
    folder.mkdir()
    for tool in "sh chmod gzip head id ls mkdir mktemp mv rm rmdir tail tar uname".split():
        (folder / tool).symlink_to(shutil.which(tool) or pytest.skip(f"{tool} is not installed"))
    return folder


@pytest.mark.parametrize("old", ["", "3.7"])
def test_own_python(old: str, with_python: Path, tools: Path, tmp_path: Path) -> None:
    """With a Python in it, the bundle and its other commands run without another one, and with one that is too old."""
    start = python_of(old) if old else "/bin/sh"
    start = start or pytest.skip(f"Python {old} is not installed")
    env = {"HOME": "", "TMPDIR": str(tmp_path), "PATH": str(tools), "PYTHONPATH": "/usr/lib/python3/dist-packages"}
    ended = run(start, str(with_python), "--log-dir", "log", *RANKS, env=env, cwd=tmp_path)
    listed = run("/bin/sh", str(with_python), "--as", "ascend-job", "status", "log", env=env, cwd=tmp_path)

    assert 0o755 == with_python.stat().st_mode & 0o777
    assert _started(ended), ended.screen
    assert 3 == listed.status, listed.screen  # the job has succeeded


def test_boot_command_of_the_readme(with_python: Path, tools: Path, tmp_path: Path) -> None:
    """In an image whose only Python is 3.7, the bundle starts the script with that one."""
    (line,) = re.findall(r"^    (sh \S+ascend-runner\.pyz python \S+train\.py)$", README, re.MULTILINE)
    (tools / "python").write_text(f'#!/bin/sh\nexec {python_of("3.7") or pytest.skip("no Python 3.7")} "$@"\n')
    (tools / "python").chmod(0o755)
    (tmp_path / "code").mkdir()
    shutil.copy(with_python, tmp_path / "code" / "ascend-runner.pyz")
    script = "import os, sys; print('rank', os.environ['RANK'], *sys.version_info[:2])"
    (tmp_path / "code" / "train.py").write_text(script)
    job = {"MA_JOB_DIR": str(tmp_path), "MA_VJ_NAME": "job", "MA_NUM_HOSTS": "1", "MA_NUM_GPUS": "2"}
    own = {"BATCH_TASK_LOG_PATH": str(tmp_path), "TMPDIR": str(tmp_path), "PATH": str(tools)}
    ended = run("/bin/sh", "-c", line, env={**job, **own}, cwd=tmp_path)

    assert (0, ["rank 0 3 7", "rank 1 3 7"]) == (ended.status, ended.lines), ended.screen


@pytest.mark.parametrize("python", PYTHONS)
def test_failure(python: str, bundle: Path, tmp_path: Path) -> None:
    """The bundle ends as the job does, and explains a failure from its catalogue."""
    fails = ("/bin/sh", "-c", "echo EI0011: [PID: 7] no memory; exit 7")
    command = (python, str(bundle), "--log-dir", "log", "--nproc-per-node", "1", *fails)
    ended = run(*command, env={"TMPDIR": str(tmp_path)}, cwd=tmp_path)

    assert 7 == ended.status, ended.screen
    assert "EI0011 (usually the root cause): " in ended.screen


def test_exit_status(bundle: Path, tmp_path: Path) -> None:
    """The bundle ends as the job does, and every user may start it by its path, whatever the umask of its maker."""
    command = (str(bundle), "--log-dir", "log", "--nproc-per-node", "1", "/bin/sh", "-c", "exit 7")
    env = {"TMPDIR": str(tmp_path), "PATH": f"{Path(PYTHONS[0]).parent}:{os.environ['PATH']}"}
    ended = run(*command, env=env, cwd=tmp_path)

    assert 7 == ended.status, ended.screen
    assert 0o755 == bundle.stat().st_mode & 0o777

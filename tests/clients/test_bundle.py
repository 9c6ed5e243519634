"""The one file that users upload: built by scripts/bundle, and run on each Python that is here as users run it."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.conftest import Ended, run
from tests.helpers.pythons import SUPPORTED, python_of

ROOT = Path(__file__).parents[2]
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
    built = subprocess.run(
        [str(ROOT / "scripts" / "bundle"), os.uname().machine], capture_output=True, text=True, check=False
    )
    assert 0 == built.returncode, built.stderr
    path = Path(shutil.copy(ROOT / built.stdout.split()[-1], public / "ascend-runner.pyz"))
    path.chmod(0o644)
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


def test_exit_status(bundle: Path, tmp_path: Path) -> None:
    """The bundle ends as the job does."""
    command = (PYTHONS[0], str(bundle), "--log-dir", "log", "--nproc-per-node", "1", "/bin/sh", "-c", "exit 7")
    ended = run(*command, env={"TMPDIR": str(tmp_path)}, cwd=tmp_path)

    assert 7 == ended.status, ended.screen

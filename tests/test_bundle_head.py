"""A bundle with its own Python, which is a shell script here: where it unpacks it, and how it starts it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.helpers.bundles import with_python, write_bundle
from tests.helpers.pythons import python_of
from tests.helpers.surroundings import permitted
from tests.helpers.waiting import LIMIT

PRINTS = '#!/bin/sh\nprintf "%s\\n" "$0" "$(umask)" "$@"\n'
SHELLS = [shell for shell in ("dash", "bash", "busybox", "zsh") if shutil.which(shell)]
TOOLS = "sh chmod gzip head id ls mkdir mktemp mv rm rmdir tail tar uname".split()
NOBODY = 65534


@pytest.fixture
def tools(tmp_path: Path) -> str:
    """Return a PATH with nothing but what the start needs: no Python in particular."""
    folder = tmp_path / "tools"
    folder.mkdir()
    for tool in TOOLS:
        (folder / tool).symlink_to(shutil.which(tool) or pytest.skip(f"{tool} is not installed"))
    return str(folder)


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """Make a bundle whose Python prints its path, its umask and its arguments."""
    return with_python(write_bundle(tmp_path / "a bundle.pyz"), PRINTS)


def run(*words: object, **environ: object) -> subprocess.CompletedProcess[str]:
    """Run a command in this environment."""
    env = {name: str(value) for name, value in environ.items()}
    return subprocess.run([*map(str, words)], env=env, capture_output=True, text=True, check=False)


def folder_of(ran: subprocess.CompletedProcess[str]) -> Path:
    """Return the directory that its Python was unpacked below."""
    assert "" == ran.stderr
    return Path(ran.stdout.split("\n")[0]).parents[2]


@pytest.mark.parametrize("shell", SHELLS)
def test_its_python_is_unpacked_once_and_starts_it(shell: str, bundle: Path, tmp_path: Path, tools: str) -> None:
    """It lies in a private directory, starts the bundle with its arguments and umask, and stays for the next run."""
    words = [shutil.which(shell), *(["sh"] if shell == "busybox" else []), bundle, "a  b", "$c"]
    cache = tmp_path / "cache"
    cache.mkdir()
    first = run(*words, XDG_CACHE_HOME=cache, PATH=tools)
    (folder_of(first) / "mark").touch()
    second = run(*words, XDG_CACHE_HOME=cache, PATH=tools)

    assert ["-E", str(bundle), "a  b", "$c", ""] == second.stdout.split("\n")[2:]
    assert second.stdout.split("\n")[1] == run("/bin/sh", "-c", "umask").stdout.strip()
    assert {"mark"} < {found.name for found in folder_of(second).iterdir()}
    assert 2 == len([*folder_of(second).iterdir()])
    assert (0o700, os.getuid()) == (folder_of(second).stat().st_mode & 0o777, folder_of(second).stat().st_uid)


def test_several_at_once(bundle: Path, tmp_path: Path, tools: str) -> None:
    """The nodes of a job may share HOME and start at once: all find the Python, and nothing else is left."""
    env = {"XDG_CACHE_HOME": str(tmp_path), "PATH": tools}
    started = [subprocess.Popen(["/bin/sh", bundle], env=env, stdout=subprocess.PIPE, text=True) for _ in range(8)]
    paths = {process.communicate(timeout=LIMIT)[0].split("\n")[0] for process in started}
    (path,) = paths

    assert [0] * 8 == [process.returncode for process in started]
    assert [Path(path).parents[1]] == [*Path(path).parents[2].iterdir()]
    assert ["bin"] == [found.name for found in Path(path).parents[1].iterdir()]


@pytest.mark.parametrize("home", ["missing", "file", "/proc/self"])  # nobody can write to the last one
def test_home_that_cannot_be_used(home: str, bundle: Path, tmp_path: Path, tools: str) -> None:
    """Without a usable HOME the temporary directory serves, and no HOME is made."""
    (tmp_path / "file").touch()
    folder = folder_of(run(bundle, HOME=tmp_path / home, TMPDIR=tmp_path, PATH=tools))

    assert tmp_path == folder.parent
    assert not (tmp_path / "missing").exists()


@pytest.mark.parametrize("planted", ["shared", "link", "of another user", "file"])
def test_folder_of_others_is_not_used(planted: str, bundle: Path, tmp_path: Path, tools: str) -> None:
    """What others can write to could hold their code: a directory that nobody knew before is made instead."""
    folder = tmp_path / f"ascend-runner-{os.getuid()}"
    (tmp_path / "elsewhere").mkdir()
    if planted == "file":
        folder.touch()
    elif planted == "link":
        folder.symlink_to(tmp_path / "elsewhere")
    else:
        folder.mkdir()
        folder.chmod(0o777 if planted == "shared" else 0o755)
    if planted == "of another user":
        if os.getuid():
            pytest.skip("only root can give a directory away")
        os.chown(folder, NOBODY, NOBODY)
    used = folder_of(run(bundle, TMPDIR=tmp_path, PATH=tools))

    assert (tmp_path, 0o700) == (used.parent, used.stat().st_mode & 0o777)
    assert used.resolve() not in {folder.resolve(), tmp_path / "elsewhere"}


def test_disk_without_programs(bundle: Path, tmp_path: Path, tools: str) -> None:
    """A disk with noexec is passed over, and named if there is no other."""
    under = permitted("unshare", "--mount")
    (tmp_path / "cache").mkdir()
    (tmp_path / "tmp").mkdir()
    script = f'mount -t tmpfs -o noexec none "$1" && PATH={tools} && exec "$2"'
    words = [shutil.which("unshare"), *under[1:], "/bin/sh", "-c", script, "sh", tmp_path / "cache", bundle]
    other = run(*words, XDG_CACHE_HOME=tmp_path / "cache", TMPDIR=tmp_path / "tmp", PATH=os.environ["PATH"])
    none = run(*words, TMPDIR=tmp_path / "cache", PATH=os.environ["PATH"])

    assert tmp_path / "tmp" == folder_of(other).parent
    assert (125, "") == (none.returncode, none.stdout)
    assert "mounted with noexec" in none.stderr


def test_other_architecture(tmp_path: Path, tools: str) -> None:
    """A Python for another architecture is refused in one line, before it is unpacked."""
    bundle = with_python(write_bundle(tmp_path / "bundle.pyz"), PRINTS, "vax")
    ran = run(bundle, TMPDIR=tmp_path, PATH=tools)

    assert (125, 1) == (ran.returncode, len(ran.stderr.splitlines()))
    assert [] == [*tmp_path.glob("ascend-runner-*")]


def test_file_that_was_not_copied_completely(bundle: Path, tmp_path: Path, tools: str) -> None:
    """Half of a Python is never started, and nothing of it stays."""
    os.truncate(bundle, (Path(__file__).parents[1] / "scripts" / "bundle_head.sh").stat().st_size + 30)
    ran = run(bundle, TMPDIR=tmp_path, PATH=tools)

    assert (125, "") == (ran.returncode, ran.stdout)
    assert ran.stderr.startswith("[ascend-runner] ERROR cannot unpack the Python of ")
    assert [] == list(tmp_path.glob("ascend-runner-*/**/*"))


def test_python_that_cannot_be_used(bundle: Path, tmp_path: Path, tools: str) -> None:
    """If what was unpacked is no Python, the temporary directory that was made for it is removed."""
    (Path(tools) / "tar").unlink()
    (Path(tools) / "tar").write_text('#!/bin/sh\nmkdir "$4/python"\n')
    (Path(tools) / "tar").chmod(0o755)
    (tmp_path / f"ascend-runner-{os.getuid()}").touch()
    ran = run(bundle, TMPDIR=tmp_path, PATH=tools)

    assert 125 == ran.returncode
    assert [f"ascend-runner-{os.getuid()}"] == [path.name for path in tmp_path.glob("ascend-runner-*")]


@pytest.mark.parametrize("version", ["3.6", "3.7", "3.8"])
def test_python_that_is_too_old_starts_it(version: str, bundle: Path, tmp_path: Path, tools: str) -> None:
    """`python ascend-runner.pyz` works with an old Python as well: the bundle's own one takes over."""
    python = python_of(version) or pytest.skip(f"Python {version} is not installed")
    ran = run(python, bundle, "a", XDG_CACHE_HOME=tmp_path, PATH=tools)

    assert tmp_path == folder_of(ran).parent
    assert ["-E", str(bundle), "a", ""] == ran.stdout.split("\n")[2:]

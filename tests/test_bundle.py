"""The start of a bundle, with made-up wheels: which Python it takes, and where it unpacks itself."""

from __future__ import annotations

import ast
import os
import runpy
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.helpers.bundles import SCRIPTS, wheel, write_bundle
from tests.helpers.pythons import python_of
from tests.helpers.surroundings import permitted
from tests.helpers.waiting import LIMIT

BUNDLE_MAIN = runpy.run_path(str(SCRIPTS / "bundle_main.py"))
CONDA_FOLDERS = BUNDLE_MAIN["CONDA_FOLDERS"]
VERSIONS = [f"{major}.{minor}" for major, minor in (BUNDLE_MAIN["OLDEST"], BUNDLE_MAIN["NEWEST"])]
OLD = ("2.7", "3.6", "3.7", "3.8")
PRINTS_ITS_FOLDER = "import os, sys\ndef main(): print(os.path.dirname(os.path.dirname(__file__)), *sys.argv[1:])\n"


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """Make a bundle whose program prints where it was unpacked, and its arguments."""
    minor = sys.version_info[1]
    tag, other = (f"cp3{one}-cp3{one}-linux_{os.uname().machine}.whl" for one in (minor, minor + 1))
    package = {"ascend_runner/__init__.py": "", "ascend_runner/__main__.py": PRINTS_ITS_FOLDER}
    return write_bundle(
        tmp_path / "bundle.pyz",
        wheel(tmp_path / "ascend_runner-1-py3-none-any.whl", package),
        wheel(tmp_path / f"own-1-{tag}", {"own.py": ""}),
        wheel(tmp_path / f"other-1-{other}", {"other.py": ""}),
    )


def run(bundle: Path, *args: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a bundle in this environment."""
    return subprocess.run(
        [sys.executable, str(bundle), *args], env={"PATH": "", **environ}, capture_output=True, text=True, check=False
    )


def folder_of(ran: subprocess.CompletedProcess[str]) -> Path:
    """Return where it was unpacked."""
    assert "" == ran.stderr
    return Path(ran.stdout.split()[0])


@pytest.mark.parametrize("words", [("--as", "ascend-runner", "--as"), ("--as=ascend-runner", "--as")])
def test_program_that_is_named(bundle: Path, tmp_path: Path, words: tuple[str, ...]) -> None:
    """`--as` takes its value like any option, and only the first one is the bundle's own."""
    ran = run(bundle, *words, XDG_CACHE_HOME=str(tmp_path))

    assert ["--as"] == ran.stdout.split()[1:]


def test_wheels_of_this_python_are_unpacked_once(bundle: Path, tmp_path: Path) -> None:
    """The cache holds what suits this Python, privately, and a second run uses it again."""
    first = run(bundle, "a", "b", XDG_CACHE_HOME=str(tmp_path / "cache"))
    folder = folder_of(first)
    (folder / "mark").touch()
    second = run(bundle, XDG_CACHE_HOME=str(tmp_path / "cache"))

    assert ["a", "b"] == first.stdout.split()[1:]
    assert {"ascend_runner", "own.py", "mark"} == {found.name for found in folder_of(second).iterdir()} - {
        "__pycache__"
    }
    assert 0o700 == folder.parent.stat().st_mode & 0o777


def test_several_at_once(bundle: Path, tmp_path: Path) -> None:
    """The nodes of a job may share HOME and start at once: all find the wheels, and nothing else is left."""
    cache = tmp_path / "cache"
    command = [sys.executable, str(bundle)]
    started = [
        subprocess.Popen(command, env={"XDG_CACHE_HOME": str(cache)}, stdout=subprocess.PIPE, text=True)
        for _ in range(6)
    ]
    folders = {process.communicate(timeout=LIMIT)[0] for process in started}

    assert [0] * 6 == [process.returncode for process in started]
    assert 1 == len(folders)
    assert 1 == len([*(cache / f"ascend-runner-{os.getuid()}").iterdir()])


@pytest.mark.parametrize("home", ["missing", "file", "/proc/self"])  # nobody can write to the last one
def test_home_that_cannot_be_used(bundle: Path, tmp_path: Path, home: str) -> None:
    """Without a usable HOME the temporary directory serves, and no HOME is made."""
    (tmp_path / "file").touch()
    (tmp_path / "tmp").mkdir()
    folder = folder_of(run(bundle, HOME=str(tmp_path / home), TMPDIR=str(tmp_path / "tmp")))

    assert tmp_path / "tmp" == folder.parent.parent
    assert not (tmp_path / "missing").exists()


def test_folder_that_others_can_write_to_is_not_used(bundle: Path, tmp_path: Path) -> None:
    """A shared cache could hold another user's code."""
    shared = tmp_path / "cache" / f"ascend-runner-{os.getuid()}"
    shared.mkdir(parents=True)
    shared.chmod(0o777)
    (tmp_path / "tmp").mkdir()
    folder = folder_of(run(bundle, XDG_CACHE_HOME=str(tmp_path / "cache"), TMPDIR=str(tmp_path / "tmp")))

    assert shared not in folder.parents


def test_disk_without_programs(bundle: Path, tmp_path: Path) -> None:
    """A cache on a disk with noexec is not used: the wheels have libraries."""
    (tmp_path / "cache").mkdir()
    under = permitted("unshare", "--mount")
    script = 'mount -t tmpfs -o noexec none "$XDG_CACHE_HOME" && exec "$@"'
    ran = subprocess.run(
        [*under, "sh", "-c", script, "sh", sys.executable, str(bundle)],
        env={"PATH": os.environ["PATH"], "XDG_CACHE_HOME": str(tmp_path / "cache"), "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert tmp_path == folder_of(ran).parent.parent


def test_other_architecture(bundle: Path, tmp_path: Path) -> None:
    """A bundle with machine code for another architecture is refused in one line, and leaves nothing unpacked."""
    minor = sys.version_info[1]
    foreign = tmp_path / f"foreign-1-cp3{minor}-cp3{minor}-linux_vax.whl"
    wheel(foreign, {"foreign.py": ""})
    with zipfile.ZipFile(bundle, "a") as archive:
        archive.write(foreign, f"wheels/{foreign.name}")
    (tmp_path / "tmp").mkdir()
    ran = run(bundle, TMPDIR=str(tmp_path / "tmp"))

    assert (125, 1) == (ran.returncode, len(ran.stderr.splitlines()))
    assert [tmp_path / "tmp" / f"ascend-runner-{os.getuid()}"] == [*(tmp_path / "tmp").rglob("*")]


def test_old_python_finds_another(tmp_path: Path) -> None:
    """The newest suitable Python on PATH or in a conda environment is taken; broken ones are passed over."""
    find_python = BUNDLE_MAIN["find_python"]
    conda = tmp_path / "conda"
    for path in (tmp_path / "bin" / "python3.12", conda / "envs" / "train" / "bin" / "python3"):
        path.parent.mkdir(parents=True)
        path.symlink_to(sys.executable)
    (tmp_path / "bin" / "python3.13").write_text("#!/bin/false\n")
    (tmp_path / "bin" / "python3.13").chmod(0o755)

    on_path = find_python({"PATH": str(tmp_path / "bin")}, ())
    in_conda = find_python({"ANACONDA_DIR": str(conda)}, ())

    assert str(tmp_path / "bin" / "python3.12") == on_path
    assert str(conda / "envs" / "train" / "bin" / "python3") == in_conda
    assert find_python({"PATH": ""}, ()) is None


@pytest.fixture(params=OLD)
def old_python(request: pytest.FixtureRequest) -> str:
    """Return a Python that is too old, for which the bundle has no wheels."""
    return python_of(request.param) or pytest.skip(f"Python {request.param} is not installed")


@pytest.mark.deep(quick=1)
def test_old_python_says_what_it_needs(old_python: str, bundle: Path) -> None:
    """A Python that is too old names those that are not, in one line, if it finds none."""
    if any(Path(folder).exists() for folder in CONDA_FOLDERS):
        pytest.skip("this machine has conda")
    ran = subprocess.run([old_python, str(bundle), "x"], env={"PATH": ""}, capture_output=True, text=True, check=False)

    assert (125, "", 1) == (ran.returncode, ran.stdout, len(ran.stderr.splitlines()))
    assert " to ".join(VERSIONS) in ran.stderr


@pytest.mark.deep(quick=1)
def test_old_python_hands_over(old_python: str, bundle: Path, tmp_path: Path) -> None:
    """A Python that is too old runs the bundle on one that is not."""
    newer = tmp_path / "bin" / "python3"
    newer.parent.mkdir()
    newer.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    newer.chmod(0o755)
    env = {"PATH": str(newer.parent), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    ran = subprocess.run([old_python, str(bundle), "a"], env=env, capture_output=True, text=True, check=False)

    assert tmp_path / "cache" in folder_of(ran).parents
    assert "a" == ran.stdout.split()[1]


def test_start_parses_on_every_python() -> None:
    """It has no syntax that an old Python would refuse before it can say what it needs."""
    tree = ast.parse((SCRIPTS / "bundle_main.py").read_text(), feature_version=(3, 4))

    assert not [node for node in ast.walk(tree) if isinstance(node, (ast.JoinedStr, ast.AnnAssign, ast.NamedExpr))]

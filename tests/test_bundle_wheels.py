"""The wheels of a bundle: which ones a Python gets, and the one file that they become."""

from __future__ import annotations

import importlib
import os
import tarfile
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest

from tests.helpers.bundles import SCRIPTS

METADATA: Final = """\
Metadata-Version: 2.4
Name: own
Version: 1.5
License-Expression: MPL-2.0
Project-URL: Source, https://example.org/own

"""


@pytest.fixture(name="bundle_wheels")
def fixture_bundle_wheels(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Import scripts/bundle_wheels.py."""
    monkeypatch.syspath_prepend(SCRIPTS)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    return importlib.import_module("bundle_wheels")


def content(folder: Path, mode: int, at: int) -> Path:
    """Make a directory of one wheel and a program, with this mode and time."""
    (folder / "wheels").mkdir(parents=True)
    licences = {"own-1.5.dist-info/licenses/LICENSE": "You may.", "own-1.5.dist-info/METADATA": METADATA}
    with zipfile.ZipFile(folder / "wheels" / "own-1.5-py3-none-any.whl", "w") as archive:
        for name, text in licences.items():
            archive.writestr(zipfile.ZipInfo(name), text)
    (folder / "__main__.py").write_text("")
    for path in (*folder.rglob("*.*"), folder):
        path.chmod(mode)
        os.utime(path, (at, at))
    return folder


def test_equal_content_gives_equal_bytes(bundle_wheels: ModuleType, tmp_path: Path) -> None:
    """Neither the modes nor the times of the files, nor where they are, change the bundle."""
    files = [tmp_path / "1.zip", tmp_path / "2.zip"]
    bundle_wheels.pack(str(content(tmp_path / "a", 0o700, 10**9)), str(files[0]))
    bundle_wheels.pack(str(content(tmp_path / "b" / "c", 0o755, 10**9 + 777)), str(files[1]))

    assert files[0].read_bytes() == files[1].read_bytes()


def test_notices(bundle_wheels: ModuleType, tmp_path: Path) -> None:
    """A bundle names what it carries, a Python as well, with the source and the files of the licence."""
    packed = tmp_path / "python.tar.gz"
    (tmp_path / "LICENSE.txt").write_text("PSF")
    with tarfile.open(packed, "w:gz") as archive:
        archive.add(tmp_path / "LICENSE.txt", "python/lib/python3.12/LICENSE.txt")
    bundle_wheels.pack(str(content(tmp_path / "a", 0o755, 10**9)), str(tmp_path / "zip"), str(packed))
    with zipfile.ZipFile(tmp_path / "zip") as bundle:
        lines = bundle.read("NOTICES.txt").decode().splitlines()

    expected = ["Python", "LICENSE.txt:", "PSF"]
    expected += ["own 1.5: MPL-2.0", "https://example.org/own", "LICENSE:", "You may."]
    assert expected == [line for line in lines[1:] if line and "===" not in line]


WHEELS: Final = {
    "pure-1-py3-none-any.whl": "a",
    "own-1-cp39-cp39-manylinux_2_17_x86_64.whl": "b",
    "own-2-cp310-cp310-manylinux_2_17_x86_64.whl": "c",
    "own-2-cp310-cp310-manylinux_2_17_aarch64.whl": "d",
    "stable-3-cp310-abi3-manylinux_2_17_x86_64.whl": "e",
}


@pytest.mark.parametrize(
    ("minor", "lines"),
    [
        (9, ["pure==1 --hash=sha256:a", "own==1 --hash=sha256:b"]),
        (10, ["pure==1 --hash=sha256:a", "own==2 --hash=sha256:c", "stable==3 --hash=sha256:e"]),
        (11, ["pure==1 --hash=sha256:a", "stable==3 --hash=sha256:e"]),
    ],
)
def test_requirements(bundle_wheels: ModuleType, minor: int, lines: list[str]) -> None:
    """Each Python gets the wheels that suit it and the machine, with their hashes."""
    assert lines == bundle_wheels.requirements(WHEELS, "x86_64", minor).splitlines()


def test_two_wheels_of_one_project(bundle_wheels: ModuleType) -> None:
    """Two versions for one Python would be unpacked over each other."""
    with pytest.raises(SystemExit, match=r"two wheels of pure suit Python 3\.9"):
        bundle_wheels.requirements({**WHEELS, "pure-2-py3-none-any.whl": "f"}, "x86_64", 9)


def test_list_serves_every_python(bundle_wheels: ModuleType) -> None:
    """Every Python on every machine gets each dependency of the package once."""
    digests = {line[66:]: line[:64] for line in bundle_wheels.LIST.read_text("utf-8").splitlines()}
    for arch in bundle_wheels.ARCHITECTURES:
        for minor in bundle_wheels.MINORS:
            names = {line.partition("==")[0] for line in bundle_wheels.requirements(digests, arch, minor).splitlines()}

            assert {"attrs", "jinja2", "markupsafe", "orjson", "psutil", "pyzmq"} == names - {"tomli"}
            assert minor > 10 or "tomli" in names  # as pyproject.toml says

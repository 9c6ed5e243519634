"""The wheels of a bundle: which ones, their licences, and how they become one file. Called by `scripts/bundle`.

`bundle.sha256` lists the wheels with their hashes, so that a bundle is the same whenever it is made, and pip refuses a
wheel with another content.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from email import message_from_bytes
from email.message import Message
from pathlib import Path
from typing import Final

from bundle_main import NEWEST, OLDEST, suits

LIST: Final = Path(__file__).with_name("bundle.sha256")
MINORS: Final = range(OLDEST[1], NEWEST[1] + 1)
ARCHITECTURES: Final = ("x86_64", "aarch64")
PROJECTS: Final = "attrs\njinja2\nmarkupsafe\norjson\npsutil"
TOMLLIB: Final = 11  # Python 3.11 and newer do without tomli
PIP: Final = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
OLD_GLIBC: Final = ("manylinux2014", "manylinux_2_17")
# Most wheels of pyzmq need glibc 2.26; where that is older, the nodes of a job are not linked.
NEW_GLIBC: Final = ("manylinux_2_28", "manylinux_2_26", *OLD_GLIBC)
NOTICES: Final = "NOTICES.txt"
LICENCE: Final = r"[^/]+\.dist-info/(licenses/.+|(LICEN[CS]E|COPYING|NOTICE|AUTHORS)[^/]*)"
RULE: Final = f"\n{'=' * 120}\n\n"


def update(folder: str) -> None:
    """Write the list: the newest wheels that the package index has."""
    for arch in ARCHITECTURES:
        for minor in MINORS:
            _download(Path(folder), arch, minor, OLD_GLIBC, PROJECTS if minor >= TOMLLIB else f"{PROJECTS}\ntomli")
            _download(Path(folder), arch, minor, NEW_GLIBC, "pyzmq>=26.4")
    digests = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(Path(folder).iterdir())}
    LIST.write_text("".join(f"{digest}  {name}\n" for name, digest in digests.items()), encoding="utf-8")


def download(arch: str, folder: str) -> None:
    """Download the wheels of the list for an architecture."""
    digests = {line[66:]: line[:64] for line in LIST.read_text("utf-8").splitlines()}
    for minor in MINORS:
        _download(Path(folder), arch, minor, NEW_GLIBC, requirements(digests, arch, minor))


def requirements(digests: Mapping[str, str], arch: str, minor: int) -> str:
    """Return what a Python needs, as lines for pip."""
    lines: dict[str, str] = {}
    for wheel, digest in digests.items():
        is_for_machine = wheel.endswith(("-any.whl", f"_{arch}.whl"))
        if is_for_machine and suits(wheel, minor):  # type: ignore[no-untyped-call]  # Python 2.7 parses it
            name, version, _ = wheel.split("-", 2)
            if name in lines:
                sys.exit(f"two wheels of {name} suit Python 3.{minor} in {LIST.name}: remove one")
            lines[name] = f"{name}=={version} --hash=sha256:{digest}\n"
    return "".join(lines.values())


def _download(folder: Path, arch: str, minor: int, platforms: Iterable[str], lines: str) -> None:
    target = ["--implementation", "cp", "--python-version", f"3.{minor}", "--dest", str(folder)]
    target += [f"--platform={platform}_{arch}" for platform in platforms]
    command = [*PIP, "download", "--no-deps", "--only-binary", ":all:", *target, "--requirement", "/dev/stdin"]
    subprocess.run(command, input=lines, text=True, stdout=sys.stderr, check=True)


def pack(folder: str, target: str, python: str = "") -> None:
    """Pack a directory into a zip file, with the licences of its wheels. Equal content gives equal bytes."""
    Path(folder, NOTICES).write_text("".join(_notices(Path(folder, "wheels"), python)), encoding="utf-8")
    at = time.gmtime(int(os.environ["SOURCE_DATE_EPOCH"]))[:6]
    with zipfile.ZipFile(target, "w") as archive:  # wheels are compressed already, and zlibs differ
        for path in sorted(Path(folder).rglob("*")):
            if path.is_file():
                entry = zipfile.ZipInfo(str(path.relative_to(folder)), at)
                entry.external_attr = 0o100644 << 16
                archive.writestr(entry, path.read_bytes())


def _notices(wheels: Path, python: str) -> Iterator[str]:
    """Yield the notices that the licences of all wheels, and of the Python in an archive, require."""
    yield "The bundle carries the following software, each under its own licence.\n"
    if python:
        yield from _texts("Python", _licences_of_python(Path(python)))
    seen = set()
    for path in sorted(wheels.iterdir()):
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            (metadata,) = (message_from_bytes(archive.read(name)) for name in names if name.endswith("/METADATA"))
            title = f"{metadata['Name']} {metadata['Version']}"
            if title in seen or metadata["Name"] == "ascend-runner":
                continue
            seen.add(title)
            found = [(name, archive.read(name)) for name in names if re.fullmatch(LICENCE, name)]
        yield from _texts(f"{title}: {_licence(metadata)}\n{_source(metadata)}", found)


def _texts(title: str, files: Iterable[tuple[str, bytes]]) -> Iterator[str]:
    """Yield each licence file under its name, which may say what it covers: "LICENSE.libsodium.txt"."""
    yield f"{RULE}{title}\n"
    for path, data in files:
        yield f"\n{os.path.basename(path)}:\n\n{data.decode(errors='replace').strip()}\n"


def _licence(metadata: Message) -> str:
    names = [one.rpartition(" :: ")[2] for one in metadata.get_all("Classifier", []) if one.startswith("License ::")]
    return str(metadata["License-Expression"] or ", ".join(names) or metadata["License"])


def _source(metadata: Message) -> str:
    """Return where the source is: the Mozilla licence wants that to be said."""
    links = dict(one.lower().split(", ", 1) for one in metadata.get_all("Project-URL", []))
    found = (links[name] for name in ("source", "source code", "github", "homepage", "documentation") if name in links)
    return next(found, None) or str(metadata["Home-page"] or "")


def _licences_of_python(path: Path) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(path, "r:gz") as archive:
        for name in archive.getnames():
            if re.fullmatch(r"python/(lib/python3\.\d+/LICENSE\.txt|licenses/.+)", name):
                file = archive.extractfile(name)
                yield name, file.read() if file else b""


COMMANDS: Final[Mapping[str, Callable[..., None]]] = {"update": update, "download": download, "pack": pack}

if __name__ == "__main__":
    COMMANDS[sys.argv[1]](*sys.argv[2:])

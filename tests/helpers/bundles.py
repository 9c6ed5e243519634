"""Bundles for tests, put together as scripts/bundle does."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

SCRIPTS: Final = Path(__file__).parents[2] / "scripts"


def wheel(path: Path, files: Mapping[str, str]) -> Path:
    """Write a wheel of files by their names."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def write_bundle(path: Path, *wheels: Path) -> Path:
    """Write a bundle of these wheels."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(SCRIPTS / "bundle_main.py", "__main__.py")
        for found in wheels:
            archive.write(found, f"wheels/{found.name}")
    return path


def with_python(bundle: Path, python: str, machine: str = os.uname().machine) -> Path:
    """Put a Python before a bundle: a shell script instead of a program."""
    packed = io.BytesIO()
    with tarfile.open(mode="w:gz", fileobj=packed) as archive:
        entry = tarfile.TarInfo("python/bin/python3")
        entry.mode, entry.size, entry.uid = 0o755, len(python), 12345
        archive.addfile(entry, io.BytesIO(python.encode()))
    data = packed.getvalue()
    head = (SCRIPTS / "bundle_head.sh").read_text()
    facts = {
        "ARCH": machine,
        "HASH": hashlib.sha256(data).hexdigest()[:16],
        "SIZE": str(len(data)),
        "LINES": str(head.count("\n") + 1),
    }
    for name, value in facts.items():
        head = head.replace(f"@{name}@", value)
    bundle.write_bytes(head.encode() + data + bundle.read_bytes())
    bundle.chmod(0o755)
    return bundle

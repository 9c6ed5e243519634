"""Installs a fake of Ray that has nothing but `ray start`."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.helpers.program import WORKERS


def install(folder: Path, version: str = "2.60.0") -> Path:
    """Write the package `ray` into a directory for PYTHONPATH, and return that."""
    scripts = folder / "ray" / "scripts"
    programs = scripts / "programs"
    programs.mkdir(parents=True)
    (folder / "ray" / "__init__.py").write_text(f"__version__ = {version!r}\n")
    (scripts / "__init__.py").touch()
    shutil.copy(WORKERS / "fake_ray.py", scripts / "scripts.py")
    for name in ("gcs_server", "raylet", "worker"):
        (programs / name).symlink_to(shutil.which("sleep") or "/bin/sleep")
    return folder

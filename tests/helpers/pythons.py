"""The Pythons of this machine."""

from __future__ import annotations

import glob
import runpy
import shutil
import subprocess
from pathlib import Path

_BUNDLE = runpy.run_path(str(Path(__file__).parents[2] / "scripts" / "bundle_main.py"))
SUPPORTED = tuple(f"3.{minor}" for minor in range(_BUNDLE["OLDEST"][1], _BUNDLE["NEWEST"][1] + 1))


def python_of(version: str) -> str:
    """Return a Python of a version such as "3.9" from PATH or pyenv, or "" if there is none that starts."""
    code = f"import sys; sys.exit('%d.%d' % sys.version_info[:2] != '{version}')"
    installed = glob.glob(str(Path.home() / ".pyenv" / "versions" / f"{version}.*" / "bin" / "python"))
    for path in (*installed, shutil.which(f"python{version}")):
        if path and not subprocess.run([path, "-c", code], capture_output=True, check=False).returncode:
            return path
    return ""

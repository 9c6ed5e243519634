"""Finds the conda environment of a command, in images with conda but without a shell that could activate it.

ANACONDA_DIR and DEFAULT_CONDA_ENV_NAME are ModelArts' names (its guide to custom images). Its job runtime is not a
shell, so `conda activate` does not work there, and `conda run` adds a process and buffers the output.
"""

from __future__ import annotations

import os.path
from collections.abc import Mapping
from typing import Final

import attrs

from ascend_runner.engines.command import is_python
from ascend_runner.errors import SettingsError

ROOT: Final = "ANACONDA_DIR"
DEFAULT: Final = "DEFAULT_CONDA_ENV_NAME"
PATH: Final = "/bin:/usr/bin"  # as os.defpath: the search path without PATH


@attrs.frozen(kw_only=True)
class Conda:
    """A conda environment: its folder, its interpreter, and the variables that put its programs and libraries first."""

    prefix: str
    python: str
    variables: Mapping[str, str]


def find(command: str, environ: Mapping[str, str], name: str | None = None) -> Conda | None:
    """Find the environment for a command: `name` (--conda-env), else the image's; None if neither is set.

    A name with a slash is the folder of the environment. A Python with a path needs no environment, unless the user has
    named one.

    Raises:
        SettingsError: ANACONDA_DIR is needed and not set.
    """
    if not name and (not environ.get(ROOT) or not environ.get(DEFAULT) or ("/" in command and is_python(command))):
        return None
    prefix = _prefix(name or environ[DEFAULT], environ)

    return Conda(
        prefix=prefix,
        python=os.path.join(prefix, "bin", "python"),
        variables={
            "PATH": _first(os.path.join(prefix, "bin"), environ.get("PATH", PATH)),
            "LD_LIBRARY_PATH": _first(os.path.join(prefix, "lib"), environ.get("LD_LIBRARY_PATH", "")),
        },
    )


def _prefix(name: str, environ: Mapping[str, str]) -> str:
    if "/" in name:
        return name.rstrip("/")
    if not environ.get(ROOT):
        raise SettingsError(
            f"--conda-env {name} requires {ROOT} (conda's directory): set it, or pass the environment's directory"
        )

    return environ[ROOT] if name == "base" else os.path.join(environ[ROOT], "envs", name)


def _first(folder: str, path: str) -> str:
    """Put a folder first in a search path, and only there."""
    others = [other for other in path.split(":") if other and other != folder]
    return ":".join([folder, *others])

"""Which conda environment's Python is meant, in images that bring conda but no shell that could activate one.

ANACONDA_DIR and DEFAULT_CONDA_ENV_NAME are ModelArts' names (its guide to custom images); its job runtime is no shell,
so that `conda activate` does not work there, and `conda run` adds a process and holds back output.
"""

from __future__ import annotations

import os.path

from ascend_runner.annotations import TYPE_CHECKING, Final, NamedTuple
from ascend_runner.errors import SettingsError

from .command import is_python

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT: Final = "ANACONDA_DIR"
DEFAULT: Final = "DEFAULT_CONDA_ENV_NAME"
PATH: Final = "/bin:/usr/bin"  # what os.defpath is: where programs are looked for without PATH


class Conda(NamedTuple):
    """A conda environment: its folder, its interpreter, the variables that put its programs and libraries first."""

    prefix: str
    python: str
    variables: Mapping[str, str]


def find(command: str, environ: Mapping[str, str], name: str | None = None) -> Conda | None:
    """Find the environment that a command is to run in: `name` (--conda-env), else the image's; None: neither is set.

    A name with a slash is the environment's folder. A Python that is named by its path needs no environment, unless one
    was asked for. Errors: SettingsError.
    """
    if not name and (not environ.get(ROOT) or not environ.get(DEFAULT) or ("/" in command and is_python(command))):
        return None
    prefix = _prefix(name or environ[DEFAULT], environ)

    return Conda(
        prefix,
        os.path.join(prefix, "bin", "python"),
        {
            "PATH": _first(os.path.join(prefix, "bin"), environ.get("PATH", PATH)),
            "LD_LIBRARY_PATH": _first(os.path.join(prefix, "lib"), environ.get("LD_LIBRARY_PATH", "")),
        },
    )


def _prefix(name: str, environ: Mapping[str, str]) -> str:
    if "/" in name:
        return name.rstrip("/")
    if not environ.get(ROOT):
        raise SettingsError(f"--conda-env is {name!r}, expected {ROOT} to say where conda is, or a folder")

    return environ[ROOT] if name == "base" else os.path.join(environ[ROOT], "envs", name)


def _first(folder: str, path: str) -> str:
    """Put a folder first in a search path, once."""
    others = [other for other in path.split(":") if other and other != folder]
    return ":".join([folder, *others])

"""Finds the conda environment of a command, in images with conda but without a shell that could activate it.

ANACONDA_DIR and DEFAULT_CONDA_ENV_NAME are ModelArts' names (its guide to custom images). Its job runtime is not a
shell, so `conda activate` does not work there, and `conda run` adds a process and buffers the output. Without
ANACONDA_DIR an environment is looked for where images have conda.
"""

from __future__ import annotations

import os.path
from collections.abc import Callable, Mapping
from typing import Final

import attrs

from ascend_runner.engines.command import is_python
from ascend_runner.errors import SettingsError

ROOT: Final = "ANACONDA_DIR"
DEFAULT: Final = "DEFAULT_CONDA_ENV_NAME"
# Where images have conda: those of ModelArts, Docker's miniconda, and its installers.
USUAL_PLACES: Final = (
    "/home/ma-user/anaconda3",
    "/home/ma-user/miniconda3",
    "/opt/conda",
    "/opt/miniconda3",
    "/root/anaconda3",
    "/root/miniconda3",
    "/usr/local/anaconda3",
    "/usr/local/miniconda3",
)
PATH: Final = "/bin:/usr/bin"  # os.defpath: the search path if PATH is not set


@attrs.frozen(kw_only=True)
class Conda:
    """A conda environment: its interpreter, and the variables that put its programs and libraries first."""

    python: str
    variables: Mapping[str, str]


def find(
    command: str, environ: Mapping[str, str], name: str | None = None, *, is_folder: Callable[[str], bool]
) -> Conda | None:
    """Return the environment for a command: `name` (--conda-env), else the image's, or None if neither is set.

    A name with a slash is the directory of the environment. A Python with a path needs no environment, unless the user
    has named one.

    Raises:
        SettingsError: ANACONDA_DIR is not set, and no usual place has the environment.
    """
    if not name and (not environ.get(DEFAULT) or ("/" in command and is_python(command))):
        return None
    prefix = _prefix(name, environ, is_folder)

    return Conda(
        python=os.path.join(prefix, "bin", "python"),
        variables={
            "PATH": _first(os.path.join(prefix, "bin"), environ.get("PATH", PATH)),
            "LD_LIBRARY_PATH": _first(os.path.join(prefix, "lib"), environ.get("LD_LIBRARY_PATH", "")),
        },
    )


def _prefix(option: str | None, environ: Mapping[str, str], is_folder: Callable[[str], bool]) -> str:
    name = option or environ[DEFAULT]
    if "/" in name:
        return name.rstrip("/")
    roots = (environ[ROOT],) if environ.get(ROOT) else USUAL_PLACES
    prefixes = [root if name == "base" else os.path.join(root, "envs", name) for root in roots]
    if environ.get(ROOT):
        return prefixes[0]
    active = environ.get("CONDA_PREFIX", "")
    if os.path.basename(active) == name:
        return active

    found = next(filter(is_folder, prefixes), "")
    if not found:
        raise SettingsError(
            f"conda environment not found: {name!r} ({'--conda-env' if option else DEFAULT}): {ROOT} is not set, and"
            f" none of the usual directories has it ({', '.join(USUAL_PLACES)}); set {ROOT} to conda's directory, or"
            " --conda-env to the directory of the environment"
        )
    return found


def _first(folder: str, path: str) -> str:
    """Move a directory to the start of a search path."""
    others = [other for other in path.split(":") if other and other != folder]
    return ":".join([folder, *others])

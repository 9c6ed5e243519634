"""The commands of this package, as they can be run where this process was started: names, `python -m`, or the bundle.

A leaf of its own, because every room words sentences that name a command.
"""

from __future__ import annotations

import functools
import os
import shlex
import sys
from collections.abc import Iterable, Mapping
from typing import Final

RUNNER: Final = "ascend-runner"
JOB: Final = "ascend-job"
RANK_TABLE: Final = "ascend-rank-table"
MODULES: Final[Mapping[str, str]] = {RUNNER: "", JOB: ".tools.job", RANK_TABLE: ".tools.rank_table"}  # of the package


def argv(program: str) -> list[str]:
    """Return the words that start a program with this package and this Python."""
    python = [sys.executable, *(["-E"] if sys.flags.ignore_environment else [])]
    bundle, _has_own_python = _bundle()
    return [*python, *([bundle, "--as", program] if bundle else ["-m", f"{__package__}{MODULES[program]}"])]


@functools.cache
def command(line: str) -> str:
    """Return a command line that begins with the name of a program as a shell can run it here.

    Every sentence that names a command takes it from here, so that it works where it is printed.
    """
    program, *arguments = line.split(" ", 1)
    return " ".join([_start(program), *arguments])


def _start(program: str) -> str:
    bundle, has_own_python = _bundle()
    if not bundle and _on_path(program):
        return program
    beside = os.path.join(os.path.dirname(sys.executable), program)
    if not bundle and os.access(beside, os.X_OK):
        return shlex.quote(beside)
    if not bundle:
        return f"{_python()} -m {__package__}{MODULES[program]}"
    start = f"{'sh' if has_own_python else _python()} {shlex.quote(bundle)}"
    return start if os.path.basename(bundle).startswith(program) else f"{start} --as {program}"


def _python() -> str:
    name = os.path.basename(sys.executable)
    return name if _on_path(name) == sys.executable else shlex.quote(sys.executable)


# The packages of programs and modules that have another name.
PACKAGES: Final = {
    "llamafactory-cli": "llamafactory",
    "lmf": "llamafactory",
    "megatron": "ms-swift",
    "swift": "ms-swift",
}


def suggestion(name: str) -> str:
    """Return the command that installs a program or module whose package has another name, in parentheses, or ""."""
    return f" (pip install {PACKAGES[name]})" if name in PACKAGES else ""


def installing(package: str, extra: str) -> str:
    """Return the command line that installs a package of an extra for this Python; pip(1) does not know a bundle."""
    bundle, _has_own_python = _bundle()
    wanted = package if bundle else shlex.quote(f"{RUNNER}[{extra}]")
    return f"{_python()} -m pip install {wanted}"


def find_tool(name: str, folders: Iterable[str]) -> str:
    """Return the path of a program in the first directory that has it, or "" if none does."""
    paths = (os.path.join(folder, name) for folder in folders if folder)
    return next((path for path in paths if os.path.isfile(path) and os.access(path, os.X_OK)), "")


def _on_path(name: str) -> str:
    return find_tool(name, os.get_exec_path())


def _bundle() -> tuple[str, bool]:
    """Return the path of the bundle that is running, "" without one, and whether it has a Python of its own."""
    return getattr(sys.modules["__main__"], "ASCEND_RUNNER_BUNDLE", ("", False))  # see scripts/bundle_main.py

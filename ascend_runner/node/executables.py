"""Finds programs as execvp(3) does, with the exit statuses of POSIX for a program that cannot be run."""

from __future__ import annotations

import os
import stat
import sys
from typing import Final

from ascend_runner import programs
from ascend_runner.errors import COMMAND_NOT_EXECUTABLE, COMMAND_NOT_FOUND, CommandError

PY_SPY: Final = "py-spy"


def is_relative(name: str) -> bool:
    """Whether a command is a path relative to the working directory."""
    return "/" in name and not os.path.isabs(name)


def find_executable(name: str, *, cwd: str, search_path: str) -> str:
    """Find the program of a command; `search_path` is the value of PATH.

    A relative directory in PATH is relative to `cwd`. A command with a slash is returned as it is.

    Raises:
        CommandError: The program is not found (exit status 127) or not executable (126).
    """
    found_at = ""
    for folder in [""] if "/" in name else search_path.split(os.pathsep):
        path = os.path.join(cwd, folder, name)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return name if "/" in name else path
        if os.path.exists(path):
            found_at = found_at or path

    if found_at:
        reason = "is a directory" if stat.S_ISDIR(os.stat(found_at).st_mode) else "is not executable"
        raise CommandError(f"permission denied: {found_at!r} {reason}", exit_status=COMMAND_NOT_EXECUTABLE)
    where = f" in {cwd}" if is_relative(name) else ""
    raise CommandError(f"command not found: {name!r}{where}", exit_status=COMMAND_NOT_FOUND)


def find_py_spy(search_path: str) -> str:
    """Return the path of py-spy, beside this interpreter or else in `search_path`, or "" if it is not installed."""
    return programs.find_tool(PY_SPY, (os.path.dirname(sys.executable), *search_path.split(os.pathsep)))


def no_py_spy() -> str:
    """Return a clause about py-spy, which is missing, with the command that installs it."""
    return f"{PY_SPY} is not installed ({programs.installing(PY_SPY, 'debug')})"

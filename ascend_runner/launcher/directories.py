"""Finds the directories of a launch that nobody has named: the current one, that of logs, a temporary one."""

from __future__ import annotations

import os
import tempfile

from ascend_runner.errors import SettingsError, reason


def of_logs(cwd: str) -> str:
    """Return the directory for the log directories of runs: ./logs, unless this user cannot write there."""
    logs = os.path.join(cwd, "logs")
    is_writable = os.access(logs if os.path.isdir(logs) else cwd, os.W_OK | os.X_OK)
    return logs if is_writable else os.path.join(own_temporary(), "logs")


def own_temporary() -> str:
    """Return a directory that no other user has, for what cannot be written elsewhere."""
    return os.path.join(tempfile.gettempdir(), f"ascend-runner-{os.geteuid()}")


def current() -> str:
    """Return the current directory.

    Raises:
        SettingsError: It was removed, or is not accessible to this user.
    """
    try:
        return os.getcwd()
    except OSError as error:
        raise SettingsError(f"cannot use the current directory: {reason(error)}; change to another one") from error

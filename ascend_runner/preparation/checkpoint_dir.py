"""Checks the directory where a training saves its checkpoints. The training may create it, but it must be able to."""

from __future__ import annotations

import os
from typing import Callable

from ascend_runner.errors import SettingsError
from ascend_runner.host import file_system


def check(path: str, note: Callable[[str], None]) -> None:
    """Check the value of --checkpoint-dir, "" without one; `note` reports that the directory does not exist yet.

    Raises:
        SettingsError: It is not a directory, and cannot become one.
    """
    if not path or os.path.isdir(path):
        return
    above = file_system.nearest(path)
    if above == os.path.abspath(path):
        raise SettingsError(f"--checkpoint-dir {path!r} is not a directory")
    if above == os.sep:
        # A training that runs as root in a container would create it, and lose it with the container.
        raise SettingsError(
            f"--checkpoint-dir {path!r} does not exist, nor does any directory above it; create it first"
        )
    if not os.path.isdir(above):
        raise SettingsError(f"--checkpoint-dir {path!r} cannot be created: {above!r} is not a directory")
    if not os.access(above, os.W_OK | os.X_OK):
        raise SettingsError(f"--checkpoint-dir {path!r} cannot be created: {above!r} is not writable")
    note(f"--checkpoint-dir {path!r} does not exist yet; the training has to create it")

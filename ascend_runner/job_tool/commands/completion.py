"""`ascend-job completion`."""

from __future__ import annotations

from argparse import Namespace
from importlib import resources
from typing import Final

from ascend_runner.tool import DONE, write_text

PACKAGE: Final = "ascend_runner.job_tool"
FILES: Final = {"bash": "ascend-runner", "zsh": "_ascend-runner", "fish": "ascend-runner.fish"}  # by shell


def completion(options: Namespace) -> int:
    """Print the completions of all programs for a shell."""
    script = resources.files(PACKAGE) / "completions" / options.shell / FILES[options.shell]
    write_text(script.read_text(encoding="utf-8"))
    return DONE

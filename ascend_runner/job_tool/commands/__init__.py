"""The commands of `ascend-job`: a function for each takes the parsed options, and returns the exit status."""

from __future__ import annotations

import importlib
from argparse import Namespace
from collections.abc import Callable
from typing import Final

FUNCTIONS: Final = {  # module and function of each command
    "status": ("status", "status"),
    "top": ("top", "top"),
    "list": ("status", "list_jobs"),
    "logs": ("logs", "show_logs"),
    "stacks": ("stacks", "stacks"),
    "events": ("events", "events"),
    "metrics": ("metrics", "metrics"),
    "report": ("report", "report"),
    "checkpoint": ("control", "checkpoint"),
    "limit": ("control", "limit"),
    "stop": ("control", "stop"),
    "release": ("control", "release"),
    "batch": ("batch", "batch"),
    "completion": ("completion", "completion"),
}


def named(name: str) -> Callable[[Namespace], int]:
    """Return a command. Its module is imported when it is run: each needs much that the others do not need."""
    module, function = FUNCTIONS[name]

    def run(options: Namespace) -> int:
        status: int = getattr(importlib.import_module(f"{__name__}.{module}"), function)(options)
        return status

    return run

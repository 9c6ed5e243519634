"""Waiting for facts, with a limit."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from ascend_runner.guardian import process_tree

LIMIT: Final = 60.0  # seconds that any fact may take to come true on a busy machine


def wait_until(is_true: Callable[..., object], *, limit: float = LIMIT) -> None:
    """Poll until a condition holds."""
    deadline, pause = time.monotonic() + limit, 0.001
    while not is_true():
        assert time.monotonic() < deadline, f"still false after {limit:g} s"
        pause = min(1.25 * pause, 0.03)  # a long wait leaves the processor to what it waits for
        time.sleep(pause)


def is_gone(pid: int) -> bool:
    """Whether a process has ended; it may still be a zombie."""
    found = process_tree.look(pid)
    return found is None or found.is_zombie


def is_pending(pid: int, signum: int) -> bool:
    """Whether a process has not taken a signal yet (proc(5))."""
    status = Path(f"/proc/{pid}/status").read_text()
    return bool(int(status.partition("ShdPnd:")[2].split()[0], 16) & 1 << signum - 1)

"""How threads are started where processes are limited (setrlimit(2), RLIMIT_NPROC: a thread counts), or given up."""

from __future__ import annotations

import threading

from ascend_runner.annotations import TYPE_CHECKING
from ascend_runner.errors import AscendRunnerError

if TYPE_CHECKING:
    from collections.abc import Callable


def within(seconds: float, work: Callable[[], None]) -> bool:
    """Do what a disk that hangs may never let end; whether it has ended in time. `work` raises nothing."""
    thread = threading.Thread(target=work, name="within a time", daemon=True)
    try:
        thread.start()
    except RuntimeError:  # no thread to be had: then without a limit
        work()
        return True
    thread.join(seconds)
    return not thread.is_alive()


def start(thread: threading.Thread) -> None:
    """Start it. Errors: AscendRunnerError where the user, or the container, may have no more."""
    try:
        thread.start()
    except RuntimeError as error:
        raise AscendRunnerError(
            f"{error}: too many processes (RLIMIT_NPROC, see ulimit -u, or the container's limit of processes)"
        ) from error

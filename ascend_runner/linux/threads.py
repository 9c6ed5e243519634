"""How a thread is started where processes are limited: a thread counts as one (setrlimit(2), RLIMIT_NPROC)."""

from __future__ import annotations

import threading  # noqa: TC003  whoever calls this has it, and typing, for TYPE_CHECKING, is dearer

from ascend_runner.errors import AscendRunnerError


def start(thread: threading.Thread) -> None:
    """Start it. Errors: AscendRunnerError where the user, or the container, may have no more."""
    try:
        thread.start()
    except RuntimeError as error:
        raise AscendRunnerError(
            f"{error}: too many processes (RLIMIT_NPROC, see ulimit -u, or the container's limit of processes)"
        ) from error

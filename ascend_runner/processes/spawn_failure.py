"""Why a rank could not be started, in words, and which exit status a shell would give for that."""

from __future__ import annotations

import errno
import os

from ascend_runner import errors
from ascend_runner.plan.job import RankSpec
from ascend_runner.supervision.events import SpawnFailed


def explain(error: OSError, spec: RankSpec) -> SpawnFailed:
    """Turn the error of a failed spawn into an event for the state machine."""
    reason, exit_status = _reason_and_status(error, spec)
    return SpawnFailed(spec.rank_id, reason, exit_status)


def _reason_and_status(error: OSError, spec: RankSpec) -> tuple[str, int]:
    reason, program = errors.reason(error), repr(spec.executable)
    if error.filename == spec.cwd and spec.cwd != spec.executable:
        return f"working directory {spec.cwd!r}: {reason}", errors.RUNNER_FAILED
    if isinstance(error, FileNotFoundError):
        # The kernel reports a missing interpreter of a script as if the script were missing.
        if os.path.exists(os.path.join(spec.cwd, spec.executable)):
            reason = "the interpreter in its first line does not exist"
        return f"{program}: {reason}", errors.COMMAND_NOT_FOUND
    if error.errno == errno.ENOEXEC:
        hint = "a script must begin with #! and its interpreter; a binary must be built for this architecture"
        return f"{program}: {reason} ({hint})", errors.COMMAND_NOT_EXECUTABLE
    if isinstance(error, PermissionError):
        return f"{program}: {reason}", errors.COMMAND_NOT_EXECUTABLE
    return reason, errors.RUNNER_FAILED

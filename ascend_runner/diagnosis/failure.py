"""Classifies a failure for a restart, and gives it a fingerprint that equal failures share.

The fingerprint leaves out what differs from one time to the next: the rank, and values in messages. A false "never"
costs more than an attempt in vain, so that class holds only what cannot depend on the machine or the moment.
"""

from __future__ import annotations

import re
from typing import Final

from ascend_runner.diagnosis import catalogue
from ascend_runner.diagnosis.codes import Kind
from ascend_runner.diagnosis.endings import signal_behind
from ascend_runner.diagnosis.finding import Finding
from ascend_runner.errors import COMMAND_NOT_EXECUTABLE, COMMAND_NOT_FOUND, RETRY_IS_VAIN
from ascend_runner.supervision.causes import Cause, Ending, Restart
from ascend_runner.text import signal_name

USAGE: Final = 2  # the exit status of argparse, and of most programs, if their arguments are wrong
LONGEST_FINGERPRINT: Final = 200  # characters
SHARED_LIBRARY: Final = ".so"  # in an ImportError: of a driver that may be missing on this machine only

_SYNTAX: Final = frozenset({"SyntaxError", "IndentationError", "TabError"})
_IMPORT: Final = frozenset({"ImportError", "ModuleNotFoundError"})
_CONNECTION: Final = re.compile(
    r"Connection\w*Error|BrokenPipeError|TimeoutError|timeout|gaierror|DistNetworkError|DistStoreError"
)


def judge(
    cause: Cause, ending: Ending, finding: Finding | None, *, has_progressed: bool | None, is_alike: bool
) -> Restart:
    """Return the class of a failure; `ending` and `finding` are of the rank that caused it.

    `has_progressed` is None if that is unknown. With `is_alike`, all ranks have failed for the same reason.
    """
    restart = cause.restart
    if cause.ending:
        restart = _of_rank(ending, finding or Finding(), may_import=has_progressed is not False)
    if restart is Restart.TRANSIENT and is_alike and has_progressed is False:
        return Restart.CONFIRM
    return restart


def _of_rank(ending: Ending, finding: Finding, *, may_import: bool) -> Restart:
    exception = _exception_type(finding.exception)
    is_import = exception in _IMPORT and SHARED_LIBRARY not in finding.exception
    is_wrong_usage = ending.exit_code == USAGE and _shows_usage(finding)
    entry = catalogue.entry_of(finding.code)
    restart = entry.restart if entry else ""
    if exception in _SYNTAX or restart == "never" or is_wrong_usage or (is_import and not may_import):
        return Restart.NEVER
    if exception in _IMPORT or finding.is_out_of_memory:
        return Restart.CONFIRM
    if finding.code:
        may_pass = finding.code_kind != Kind.ROOT.value or restart == "helps"
        return Restart.TRANSIENT if may_pass else Restart.CONFIRM
    if exception and not signal_behind(ending) and not _CONNECTION.fullmatch(exception):
        return Restart.CONFIRM
    return _of_status(ending.exit_status) or Restart.TRANSIENT


def _of_status(status: int) -> Restart | None:
    # RETRY_IS_VAIN is of a runner inside the rank, or of node 0.
    return Restart.NEVER if status in {COMMAND_NOT_EXECUTABLE, COMMAND_NOT_FOUND, RETRY_IS_VAIN} else None


def _shows_usage(finding: Finding) -> bool:
    return any(line.lower().startswith("usage:") for line in (*finding.last_lines, *finding.excerpt))


def _exception_type(exception: str) -> str:
    """Return the name of an exception's class without its module, or "" if this is not a Python exception."""
    name = exception.partition(":")[0].rpartition(".")[2]
    return name if name.isidentifier() else ""


def fingerprint(cause: Cause, ending: Ending, finding: Finding | None) -> str:
    """Return the fingerprint of a failure: the exception and its place, the code, the signal or the exit status.

    If a code reports a peer, the place is where the rank was waiting for it, which is meaningless.
    """
    of_evidence = _of_evidence(finding or Finding(), signal_behind(ending)) if cause.ending else ""
    return (of_evidence or cause.fingerprint)[:LONGEST_FINGERPRINT]


def _of_evidence(finding: Finding, signum: int) -> str:
    exception = _exception_type(finding.exception)
    is_about_a_peer = finding.code and finding.code_kind != Kind.ROOT.value
    if exception and finding.place and not is_about_a_peer:
        return f"{exception} at {finding.place}"
    return finding.code or (signal_name(signum) if signum else exception)

"""The exceptions of the package and its exit statuses. A class exists only where a caller would act differently.

The text of an error is one sentence: what is wrong, where, and what to do. A failed rank is not an exception but part
of the `Outcome`; `Outcome.check()` turns it into one. The guardian imports this module: keep its imports light.
"""

from __future__ import annotations

import errno

TIMED_OUT = 124  # as timeout(1)
RUNNER_FAILED = 125  # as env(1), timeout(1) and docker-run(1): the wrapper itself failed
COMMAND_NOT_EXECUTABLE = 126  # POSIX, XCU 2.8.2
COMMAND_NOT_FOUND = 127  # as above
# With --exit-verdict, in place of the exit status of a rank.
RETRY_MAY_HELP = 75  # EX_TEMPFAIL of sysexits.h
RETRY_IS_VAIN = 93  # as NVIDIA's ft_launcher

# Details that strerror(3) omits.
LIMIT_OF_PROCESSES = "(RLIMIT_NPROC, see ulimit -u, or the container's process limit)"
LIMIT_OF_MEMORY = "(RLIMIT_AS, see ulimit -v, or the container's memory limit)"
_LIMITS = {
    errno.E2BIG: " (arguments and environment combined)",
    errno.EAGAIN: f" {LIMIT_OF_PROCESSES}",  # from fork(2)
    errno.EFBIG: " (RLIMIT_FSIZE, see ulimit -f)",
    errno.ENOMEM: f" {LIMIT_OF_MEMORY}",
    errno.ENFILE: " (system-wide)",
    errno.EMFILE: " (RLIMIT_NOFILE, see ulimit -n)",
}


def reason(error: Exception) -> str:
    """Return the cause of an error as part of a sentence; for an OSError, with the limit that was reached."""
    if not isinstance(error, OSError):
        return str(error)
    return (error.strerror or str(error)).lower() + _LIMITS.get(error.errno or 0, "")


# What is raised instead of a MemoryError: by dlopen(3), and by Python, whose compiler may forget to raise anything.
_WITHOUT_MEMORY = (
    (ImportError, "failed to map"),
    (SystemError, "without exception set"),
    (SystemError, "without setting an exception"),
)


def exhausted(error: BaseException) -> str:
    """Return the limit behind an error as part of a sentence: of memory or of open files; "" if there is none."""
    cause: BaseException | None = error
    while cause:
        if isinstance(cause, MemoryError) or any(
            isinstance(cause, kind) and text in str(cause) for kind, text in _WITHOUT_MEMORY
        ):
            return f"not enough memory {LIMIT_OF_MEMORY}"
        if isinstance(cause, OSError) and cause.errno in {errno.ENOMEM, errno.ENFILE, errno.EMFILE}:
            return reason(cause)
        cause = cause.__cause__ or cause.__context__
    return ""


class AscendRunnerError(Exception):
    """The runner itself failed. `exit_status` is the exit status of the command line."""

    exit_status: int = RUNNER_FAILED


class SettingsError(AscendRunnerError):
    """An option or a variable is unknown, invalid or contradicts another one; the sentence names it."""


class RankTableError(AscendRunnerError):
    """A rank table is missing or cannot be used."""


class UnreadableError(RankTableError):
    """A file cannot be opened or read."""


class RankTableNotReadyError(RankTableError):
    """A rank table does not exist yet or is not complete yet. Waiting may help."""

    def __init__(self, sentence: str, *, reason: str = "", is_damaged: bool = False) -> None:
        """`reason` is a clause about the table, such as "it is empty"; `is_damaged`: the file is not valid JSON."""
        super().__init__(sentence)

        self.reason = reason
        self.is_damaged = is_damaged

    @property
    def advice(self) -> str:
        """What to do if waiting does not help."""
        if self.is_damaged:
            return "make sure that the file is written completely and not damaged"
        return "make sure that all pods of the job are running"


class NodeNotFoundError(RankTableError):
    """The rank table does not contain this node."""


class CommandError(AscendRunnerError):
    """The command cannot be started."""

    def __init__(self, sentence: str, *, exit_status: int = RUNNER_FAILED) -> None:
        """`exit_status` is 126 (not executable), 127 (not found) or 125 (a shell command line)."""
        super().__init__(sentence)

        self.exit_status = exit_status


class OutputError(AscendRunnerError):
    """A directory or file that the runner writes to cannot be created or must not be used."""


class CheckFailedError(AscendRunnerError):
    """`--check` found an error: a job on this node would fail."""

    exit_status = 1  # a result, not a failure of the runner


class NotARankError(AscendRunnerError):
    """A function for ranks was called outside a rank."""


class JobFailedError(AscendRunnerError):
    """A job failed. `exit_status` is the job's, and the text is the cause."""

    def __init__(self, sentence: str, *, exit_status: int) -> None:
        super().__init__(sentence)

        self.exit_status = exit_status


class LimitReachedError(AscendRunnerError):
    """The time limit of the job was reached while no rank was running."""

    exit_status = TIMED_OUT

    def __init__(self, sentence: str) -> None:
        super().__init__(f"{sentence} before any rank was started")


class StopRequestedError(AscendRunnerError):
    """The runner received a stop signal before it started any rank."""

    def __init__(self, signum: int, sentence: str) -> None:
        super().__init__(f"{sentence} before any rank was started")

        self.signum = signum
        self.exit_status = 128 + signum

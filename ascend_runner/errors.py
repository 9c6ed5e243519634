"""Every exception class of the package. A class exists only where a caller would act differently.

The text of each is one plain sentence: what is wrong, where, what was expected, what was found. A failing rank is
not an exception but data (`Outcome`), until somebody asks for one with `Outcome.check()`.
"""

from __future__ import annotations

from ascend_runner.annotations import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

RUNNER_FAILED = 125  # what env(1), timeout(1) and docker-run(1) use for "the wrapper itself failed"
COMMAND_NOT_EXECUTABLE = 126  # POSIX, XCU 2.8.2
COMMAND_NOT_FOUND = 127  # likewise


# What a limit of processes is called, wherever one more cannot be had.
LIMIT_OF_PROCESSES = "(RLIMIT_NPROC, see ulimit -u, or the container's limit of processes)"

# What the numbers of some errors (errno(3)) leave unsaid. Here without an import of errno.
LIMITS = {
    7: " (the environment and the words of the command together)",  # E2BIG
    11: f" {LIMIT_OF_PROCESSES}",  # EAGAIN, of fork(2)
    23: " (in the whole system)",  # ENFILE
    24: " (RLIMIT_NOFILE, see ulimit -n)",  # EMFILE
}


def reason(error: OSError) -> str:
    """Say why the kernel has refused, as a part of a sentence."""
    return (error.strerror or str(error)).lower() + LIMITS.get(error.errno or 0, "")


def said_of(sentence: str, path: str, source: str) -> str:
    """Say a sentence about a place in a document."""
    place = " of ".join(filter(None, (f"'{path}'" if path else "", source)))

    return f"{sentence}, in {place}" if place else sentence


class AscendRunnerError(Exception):
    """The runner itself failed. `exit_status` is what the command line ends with."""

    exit_status: int = RUNNER_FAILED


def sentences(error: AscendRunnerError) -> list[str]:
    """Give all that an error says, one sentence each: a document may be wrong in more than one place."""
    if not isinstance(error, RankTableFormatError):
        return [str(error)]

    return [
        said_of(one.sentence, one.path, one.source) + (f" ({one.code})" if one.code else "")
        for one in (error, *error.others)
    ]


class SettingsError(AscendRunnerError):
    """A flag or variable carries a value that cannot be used; the sentence names which."""


class RankTableError(AscendRunnerError):
    """A rank table cannot be had or cannot be used."""


class UnreadableError(RankTableError):
    """A file cannot be opened or read at all, so that nothing can be said about a table."""


class RankTableFormatError(RankTableError):
    """A document is complete, but it is not a rank table that can be used. Waiting would not mend it."""

    def __init__(
        self,
        sentence: str,
        *,
        path: str = "",
        source: str = "",
        code: str = "",
        others: Sequence[RankTableFormatError] = (),
    ) -> None:
        """`path` is the place in the document ("group_list[0].device_count"), `source` the name of the document.

        `code` is what HCCL would have said instead, half an hour later. `others` is what else is wrong.
        """
        super().__init__(f"{said_of(sentence, path, source)}{f' (and {len(others)} more)' if others else ''}")

        self.sentence = sentence
        self.path = path
        self.source = source
        self.code = code
        self.others = tuple(others)


class RankTableNotReadyError(RankTableError):
    """A rank table is not there yet, or not complete yet. Waiting may mend it."""

    def __init__(self, sentence: str, *, reason: str = "") -> None:
        """`reason` is what the table lacks, as a clause about it ("it is empty")."""
        super().__init__(sentence)

        self.reason = reason


class NodeNotFoundError(RankTableError):
    """The table does not say which of its devices belong to this node."""


class CommandError(AscendRunnerError):
    """The command cannot be started."""

    def __init__(self, sentence: str, *, exit_status: int = RUNNER_FAILED) -> None:
        """`exit_status` is 126 (found, but cannot be executed), 127 (not found) or 125 (a line for a shell)."""
        super().__init__(sentence)

        self.exit_status = exit_status


class OutputError(AscendRunnerError):
    """A folder or file that the runner writes to cannot be made, or must not be used."""


class CheckFailedError(AscendRunnerError):
    """A check has found what a job on this node would fail of."""

    exit_status = 1  # an answer, not a failure of the runner's


class NotARankError(AscendRunnerError):
    """A function for ranks was called outside of one."""


class JobFailedError(AscendRunnerError):
    """A job did not succeed. `exit_status` is the job's, and the sentence is its cause."""

    def __init__(self, sentence: str, *, exit_status: int) -> None:
        super().__init__(sentence)

        self.exit_status = exit_status


class StopRequestedError(AscendRunnerError):
    """The runner was told to stop before it had started anything: not a failure of its own, but the end."""

    def __init__(self, signum: int, name: str) -> None:
        super().__init__(f"stopped by {name} before any rank was started")

        self.signum = signum
        self.exit_status = 128 + signum

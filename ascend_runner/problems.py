"""Problems of a job before it starts, defined and formatted in one place.

Preparing a job returns problems, `--check` lists them, and an error that reaches the user carries them.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import attrs

from ascend_runner.errors import RUNNER_FAILED, AscendRunnerError, LimitReachedError, RankTableError, StopRequestedError

Answer = TypeVar("Answer")


class Severity(enum.Enum):
    """The severity of a problem."""

    WARNING = "warning"  # odd, but the job may run
    ERROR = "error"  # the job would fail or not do what it should


class Subject(enum.Enum):
    """The subject of a problem. `--check` groups problems by it."""

    RANK_TABLE = "rank table"
    NODE = "this node"
    SETTINGS = "settings"
    VARIABLES = "variables"
    COMMAND = "command"


@attrs.frozen(kw_only=True)
class Problem:
    """One thing that is wrong.

    `path` is the place in the document ("server_list[0].device[3].rank_id") and `source` the document's name; `code` is
    the error code that HCCL would have reported, `remedy` what to do about it, and `exit_status` the exit status of the
    runner. Each is empty if it does not apply. `subject` is None until the launcher collects the problem.
    """

    severity: Severity
    sentence: str
    path: str = ""
    source: str = ""
    code: str = ""
    remedy: str = ""
    exit_status: int = RUNNER_FAILED
    subject: Subject | None = None

    def __str__(self) -> str:
        place = " of ".join(filter(None, (f"'{self.path}'" if self.path else "", self.source)))
        text = f"{self.sentence}, in {place}" if place else self.sentence
        if self.code:
            text += f" ({self.code})"
        return f"{text}; {self.remedy}" if self.remedy else text


def error(sentence: str, remedy: str = "") -> Problem:
    """Return a problem that would make the job fail."""
    return Problem(severity=Severity.ERROR, sentence=sentence, remedy=remedy)


def warning(sentence: str, remedy: str = "") -> Problem:
    """Return a problem that the job may survive."""
    return Problem(severity=Severity.WARNING, sentence=sentence, remedy=remedy)


class RankTableFormatError(RankTableError):
    """A document is complete, but it is not a usable rank table. Waiting would not help.

    It stands here and not in `errors`, which the first process imports and which therefore must not need attrs.
    """

    def __init__(self, problems: Sequence[Problem]) -> None:
        """`problems` are all errors in the document, at least one."""
        others = len(problems) - 1
        super().__init__(f"{problems[0]}{f' (and {others} more)' if others else ''}")

        self.problems = tuple(problems)


def problems_of(error: AscendRunnerError) -> tuple[Problem, ...]:
    """Return an error as problems: a rank table may have several."""
    if isinstance(error, RankTableFormatError):
        return error.problems

    return (Problem(severity=Severity.ERROR, sentence=str(error), exit_status=error.exit_status),)


def without_repeated_remedies(problems: Iterable[Problem]) -> list[Problem]:
    """Return the problems; of several in a row with the same remedy, only the last one gives it."""
    found = list(problems)
    following = [*(problem.remedy for problem in found[1:]), ""]
    return [
        attrs.evolve(problem, remedy="") if problem.remedy == remedy else problem
        for problem, remedy in zip(found, following)
    ]


@attrs.define(eq=False, repr=False)
class Collector:
    """Collects problems, each once. `error` is the first error as an exception."""

    problems: list[Problem] = attrs.field(factory=list)
    error: AscendRunnerError | None = None

    def ask(self, subject: Subject, question: Callable[..., Answer], *args: object) -> Answer | None:
        """Call a function; if it raises an error, collect that as a problem of the subject and return None.

        Raises:
            StopRequestedError: A stop signal arrived.
            LimitReachedError: The time limit of the job is reached.
        """
        try:
            return question(*args)
        except (StopRequestedError, LimitReachedError):
            raise
        except AscendRunnerError as error:
            self.add_error(subject, error)
            return None

    def has_errors(self, subject: Subject) -> bool:
        """Whether there is an error about a subject."""
        return any(one.subject is subject and one.severity is Severity.ERROR for one in self.problems)

    def add_error(self, subject: Subject, error: AscendRunnerError) -> None:
        """Collect an exception."""
        self.add(subject, problems_of(error), error)

    def add(self, subject: Subject, problems: Iterable[Problem], error: AscendRunnerError | None = None) -> None:
        """Collect problems; `error` is the exception that they amount to, if any."""
        known = {(problem.sentence, problem.path) for problem in self.problems}
        new = (problem for problem in problems if (problem.sentence, problem.path) not in known)
        self.problems += [attrs.evolve(problem, subject=subject) for problem in new]
        self.error = self.error or error

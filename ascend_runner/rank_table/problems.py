"""Problems of one rank table, and the error codes that HCCL would have reported for them.

HCCL reports a code up to half an hour after the launch. Each problem carries it, so that users who search for the code
find the sentence.
"""

from __future__ import annotations

from typing import Final

from ascend_runner.errors import RankTableNotReadyError
from ascend_runner.problems import Problem, Severity

BAD_ENVIRONMENT: Final = "EI0001"  # also for addresses of two families
BAD_TABLE: Final = "EI0004"  # the file or its structure
BAD_VALUE: Final = "EI0014"
MISSING_FIELD: Final = "EI0017"  # also for a field of the wrong JSON type


def error(sentence: str, *, source: str, path: str = "", code: str = "") -> Problem:
    """Make a problem because of which HCCL would reject the table."""
    return Problem(severity=Severity.ERROR, sentence=sentence, path=path, source=source, code=code)


def warning(sentence: str, *, source: str, path: str = "", code: str = "") -> Problem:
    """Make a problem that does not keep the job from running."""
    return Problem(severity=Severity.WARNING, sentence=sentence, path=path, source=source, code=code)


def rewritten(json_type: str, *, source: str, path: str) -> Problem:
    """Make the warning that a value has the wrong JSON type, which the rewritten table corrects."""
    sentence = f"HCCL requires a {json_type} here; the table is rewritten"

    return warning(sentence, source=source, path=path, code=MISSING_FIELD)


def not_ready(source: str, reason: str) -> RankTableNotReadyError:
    """Make the error that a table is not completed yet."""
    return RankTableNotReadyError(f"{source} is not a completed rank table: {reason}", reason=reason)

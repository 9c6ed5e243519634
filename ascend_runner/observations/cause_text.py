"""The words for the cause of a failure: on the screen, in the HTML report and by `ascend-job` alike. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from ascend_runner.members import Members

CERTAINTY: Final[Mapping[str, str]] = {"likely": "likely the cause", "open": "cause unclear"}
CAUSED: Final = " caused the failure: "
_CODE: Final = r"E[A-Z0-9]\d{4}|[1-5]\d{5}|(?:HCCL|driver) \d+"
_ROOT: Final = "usually the root cause"  # not shown for a phrase: its meaning says so


def certainty_note(certainty: str, *, is_alone: bool) -> str:
    """Return a note on the certainty of a cause, "" if it is certain; a rank that `is_alone` has no rivals."""
    word = CERTAINTY.get(certainty, "")
    return f" ({word})" if word and not is_alone else ""


def certainty_note_of(cause: Members, ranks: int) -> str:
    """Return the same note for the member `cause` of a report with this number of ranks."""
    return certainty_note(cause.text("certainty"), is_alone=ranks == 1 and not cause.wholes("candidates"))


def with_certainty(sentence: str, note: str) -> str:
    """Add a note on the certainty to the sentence about a cause, which may already say that it is the cause."""
    if note == f" ({CERTAINTY['likely']})" and CAUSED in sentence:
        return sentence.replace(CAUSED, " caused the failure (likely): ", 1)
    return f"{sentence}{note}"


def of_attempt(attempt: Members) -> str:
    """Return why an attempt failed, with the same note, or "" if it did not; `attempt` is its record in a report."""
    cause, ranks = attempt.child("cause"), len(attempt.child("log_starts").members)
    return with_certainty(cause.text("sentence"), certainty_note_of(cause, ranks)) if cause.text("sentence") else ""


def explained(code: str, kind: str, meaning: str) -> tuple[str, str]:
    """Return the label and the text of the line about an error code; a phrase has no code, so it shows its meaning."""
    if re.fullmatch(_CODE, code):
        return "code", f"{code} ({kind}): {meaning}"
    return "means", f"{meaning} ({kind})" if kind not in {"", _ROOT} else meaning

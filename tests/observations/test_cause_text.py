"""The words for the cause of a failure."""

from __future__ import annotations

import pytest

from ascend_runner.diagnosis.codes import Kind
from ascend_runner.members import Members
from ascend_runner.observations import cause_text


@pytest.mark.parametrize(
    ("expected", "code", "kind"),
    [
        (("code", "EI0006 (usually caused by a peer): no peer"), "EI0006", Kind.SECONDARY),
        (("code", "HCCL 9 (usually the root cause): no peer"), "HCCL 9", Kind.ROOT),
        (("code", "507015 (this rank or a peer may be at fault): no peer"), "507015", Kind.EITHER),
        (("means", "no peer (this rank or a peer may be at fault)"), "Connection closed by peer", Kind.EITHER),
        (("means", "no peer"), "No module named", Kind.ROOT),
    ],
)
def test_code_and_phrase(expected: tuple[str, str], code: str, kind: Kind) -> None:
    """A phrase has no code to show, so its line has the label and the text of a meaning."""
    assert expected == cause_text.explained(code, kind.value, "no peer")


@pytest.mark.parametrize(
    ("expected", "ranks", "cause"),
    [
        ("rank 2 failed (likely the cause)", 8, {"certainty": "likely"}),
        ("rank 2 failed", 8, {"certainty": "certain"}),
        ("rank 2 failed", 1, {"certainty": "open"}),
        ("rank 2 failed (cause unclear)", 1, {"certainty": "open", "candidates": [2, 9]}),
        ("", 8, {"certainty": "open", "sentence": ""}),
    ],
)
def test_cause_of_an_attempt(expected: str, ranks: int, cause: dict[str, object]) -> None:
    """It is as uncertain as it was on the screen; a rank that is alone on its node needs a rival elsewhere."""
    starts = {str(number): 0 for number in range(ranks)}
    record = Members({"cause": {"sentence": "rank 2 failed", **cause}, "log_starts": starts})

    assert expected == cause_text.of_attempt(record)


def test_sentence_with_certainty() -> None:
    """A sentence that names the cause says how certain that is where it does so."""
    note = cause_text.certainty_note("likely", is_alone=False)

    assert "rank 5 caused the failure (likely): x" == cause_text.with_certainty("rank 5 caused the failure: x", note)
    assert f"rank 5 failed{note}" == cause_text.with_certainty("rank 5 failed", note)

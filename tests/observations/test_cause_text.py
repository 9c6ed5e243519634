"""The words for the cause of a failure."""

from __future__ import annotations

import pytest

from ascend_runner.diagnosis.codes import Kind
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

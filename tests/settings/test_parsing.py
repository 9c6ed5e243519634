"""The text that every match of a regular expression contains."""

from __future__ import annotations

import pytest

from ascend_runner.settings.parsing import fixed_text


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"step (?P<step>\d+) took (?P<ms>\d+) ms", b" took "),
        (r"\[step\] (?P<step>\d+)", b"[step] "),
        (r"abc?d{2}ef+g(hijk)?", b""),
        (r"(?i)step (?P<step>\d+)", b""),
        (r"[abc]def\x41ghijk\d", b"ghijk"),
        (r"it{0,2}ers\Bx", b"ers"),
        (r"a(b(c)d)efgh[]ijkl]", b"efgh"),
    ],
)
def test_fixed_text_of_an_expression(pattern: str, text: bytes) -> None:
    """Every match contains it, so a line without it need not be searched."""
    assert text == fixed_text(pattern)

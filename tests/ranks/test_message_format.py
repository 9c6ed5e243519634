"""The form of the runner's own lines, and that nothing in them controls a terminal."""

from __future__ import annotations

import re

import pytest

from ascend_runner.ranks.message_format import Level, format_message


def test_message_has_name_time_and_level() -> None:
    """A message is `[ascend-runner] TIME LEVEL SENTENCE` and a newline."""
    assert re.fullmatch(rb"\[ascend-runner\] \d\d:\d\d:\d\d WARNING odd\n", format_message(Level.WARNING, "odd"))


def test_time_may_come_first() -> None:
    """With --timestamps, messages begin with the time as all other lines do."""
    message = format_message(Level.INFO, "well", begins_with_time=True)

    assert re.fullmatch(rb"\d\d:\d\d:\d\d \[ascend-runner\] INFO well\n", message)


def test_head_is_colored() -> None:
    """Color ends before the sentence, which has none of its own."""
    message = format_message(Level.ERROR, "\x1b[32mbad", has_colors=True)

    assert message.startswith(b"\x1b[1;31m[ascend-runner] ")
    assert message.endswith(b" ERROR\x1b[0m \\x1b[32mbad\n")


@pytest.mark.parametrize(
    ("sentence", "shown"),
    [
        ("pod '\x1b[2J'", rb"pod '\x1b[2J'"),
        ("a\r\x00b", rb"a\r\x00b"),
        ("a\nb", rb"a\nb"),
        ("\udcff", rb"\udcff"),
        ("训练\t1", "训练\t1".encode()),
    ],
)
def test_control_characters_are_escaped(sentence: str, shown: bytes) -> None:
    """Control characters in names from tables and variables are written as escapes."""
    assert format_message(Level.INFO, sentence).endswith(b" INFO " + shown + b"\n")

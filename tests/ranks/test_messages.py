"""Which messages are shown, and what is masked in them."""

from __future__ import annotations

import pytest

from ascend_runner.ranks.message_format import Level
from ascend_runner.ranks.messages import Messages
from tests.helpers.planted import SECRETS, WORD


@pytest.mark.parametrize("secret", SECRETS)
def test_secrets(secret: str) -> None:
    """A secret that an error or a warning quotes is masked."""
    lines: list[bytes] = []
    messages = Messages(lines.append)
    messages.warning(f"invalid value {secret!r}")
    messages.error(f"head\n  {secret}")

    assert [] == [line for line in lines if WORD.encode() in line]
    assert [] == [line for line in lines if b"***" not in line]


def test_only_an_error_and_a_result_have_several_lines() -> None:
    """The message at the end of a job may have indented lines below its head; in others a newline is escaped."""
    lines: list[bytes] = []
    messages = Messages(lines.append)
    messages.error("head\n  detail")
    messages.result("head\n  detail")
    messages.info("head\n  detail")

    assert [b"head\n  detail\n", b"head\n  detail\n", b"head\\n  detail\n"] == [
        line.partition(b"head")[1] + line.partition(b"head")[2] for line in lines
    ]


@pytest.mark.parametrize(
    ("lowest", "shown"),
    [
        (Level.DEBUG, ["debug", "info", "warning", "error"]),
        (Level.INFO, ["info", "warning", "error"]),
        (Level.WARNING, ["warning", "error"]),
        (Level.ERROR, ["error"]),
    ],
)
def test_messages_below_the_lowest_level_are_left_out(lowest: Level, shown: list[str]) -> None:
    """A message is written if its level is at least the lowest one."""
    lines: list[bytes] = []
    messages = Messages(lines.append, lowest)
    messages.debug("debug")
    messages.info("info")
    messages.warning("warning")
    messages.error("error")

    assert shown == [line.decode().split(" ")[-1].strip() for line in lines]


def test_warnings_are_kept() -> None:
    """Warnings are collected for the report, even those that are not shown."""
    messages = Messages(lambda _: None, Level.ERROR)
    messages.warning("odd")
    messages.error("bad")

    assert ["odd"] == messages.warnings

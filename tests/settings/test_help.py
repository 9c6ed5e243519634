"""The text of --help has every option, and its topics have theirs."""

from __future__ import annotations

import re

import pytest

from ascend_runner.settings.command_line import help_text
from ascend_runner.settings.options import OPTIONS, OPTIONS_OF, Topic


def count_in(text: str, usage: str) -> int:
    """Count how often a help text lists an option."""
    return len(re.findall(rf"\n  {re.escape(usage)}(?=\s)", text))


def test_help_lists_each_option_once_with_its_variable() -> None:
    """Help fits 80 columns, begins with the common options, and leaves out no option and no topic."""
    text = help_text()
    words = text.split()
    common = text.partition("common options:\n")[2].partition("\n\n")[0].split()

    assert text.startswith("usage: ascend-runner [OPTIONS] COMMAND [ARG ...]\n\n")
    assert max(map(len, text.splitlines())) <= 80
    assert [1] * len(OPTIONS) == [count_in(text, option.usage) for option in OPTIONS]
    assert {f"[{option.variable}]" for option in OPTIONS if option.variable} <= set(words)
    assert {option.flag for option in OPTIONS if option.is_common} <= set(common)
    assert 12 >= sum(option.is_common for option in OPTIONS)


@pytest.mark.parametrize("topic", Topic)
def test_help_on_a_topic(topic: Topic) -> None:
    """Help on a topic lists all options of the topic, the common ones included, and no others."""
    text = help_text(topic)

    assert set(OPTIONS_OF[topic]) == {option for option in OPTIONS if count_in(text, option.usage)}

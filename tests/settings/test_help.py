"""The texts of --help: the common options, all of them, those of a topic, and a single one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ascend_runner.errors import SettingsError
from ascend_runner.settings.command_line import ALL, help_text
from ascend_runner.settings.options import OPTIONS, OPTIONS_OF, Option, Topic

ROOT = Path(__file__).parents[2]


def count_in(text: str, usage: str) -> int:
    """Count how often a help text lists an option."""
    return len(re.findall(rf"\n  {re.escape(usage)}(?=\s)", text))


def test_help_on_all_options() -> None:
    """It fits 80 columns, begins with the common options, and leaves out no option and no variable."""
    text = help_text(ALL)
    words = text.split()
    common = text.partition("common options:\n")[2].partition("\n\n")[0].split()

    assert text.startswith("usage: ascend-runner [OPTIONS] COMMAND [ARG ...]\n\n")
    assert max(map(len, text.splitlines())) <= 80
    assert [1] * len(OPTIONS) == [count_in(text, option.usage) for option in OPTIONS]
    assert {f"[{option.variable}]" for option in OPTIONS if option.variable} <= set(words)
    assert {option.flag for option in OPTIONS if option.is_common} <= set(common)
    assert {"DURATION is a number of seconds", "SIZE is a number with a unit"} == {
        line.partition(",")[0] for line in text.splitlines() if " is a number " in line
    }


def test_help_fits_a_screen() -> None:
    """Without a subject it has the ten common options, and names all topics."""
    text = help_text()

    assert 10 == sum(option.is_common for option in OPTIONS)
    assert len(text.splitlines()) <= 40
    assert max(map(len, text.splitlines())) <= 80
    assert {option for option in OPTIONS if option.is_common} == {
        option for option in OPTIONS if count_in(text, option.usage)
    }
    assert {topic.word for topic in Topic} <= set(text.replace(",", " ").split())


@pytest.mark.parametrize("path", ["README.md", ".github/README.zh-CN.md"])
def test_readme_has_the_same_options(path: str) -> None:
    """The table of the first page has the common options, and no others."""
    rows = [line.split(" | ")[0] for line in (ROOT / path).read_text().splitlines() if line.startswith("| `--")]

    assert {option.flag for option in OPTIONS if option.is_common} == {*re.findall(r"`(--[\w-]+)", "".join(rows))}


@pytest.mark.parametrize("topic", Topic)
def test_help_on_a_topic(topic: Topic) -> None:
    """Help on a topic lists all options of the topic, the common ones included, and no others."""
    text = help_text(topic.word)

    assert set(OPTIONS_OF[topic]) == {option for option in OPTIONS if count_in(text, option.usage)}
    for form in ("DURATION", "SIZE"):
        assert any(form in option.metavar for option in OPTIONS_OF[topic]) == (f"{form} is a number" in text)


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_help_on_an_option(option: Option) -> None:
    """Any option can be asked for, with or without dashes, and is shown alone, with the form of its value."""
    text = help_text(option.flag)

    assert [option] == [one for one in OPTIONS if count_in(text, one.usage)]
    assert text == help_text(option.name)
    assert ("DURATION" in option.metavar) == ("15m" in text)
    assert ("SIZE" in option.metavar) == ("1.5G" in text)


def test_help_on_something_else() -> None:
    """The error suggests a topic or an option."""
    topics = f"the topics are {', '.join(topic.word for topic in Topic)}, all"
    for subject, meant in (("node", "nodes"), ("--grac", "--grace"), ("timelimit", "--time-limit")):
        with pytest.raises(SettingsError) as caught:
            help_text(subject)

        assert f"no help on {subject!r} (did you mean {meant}?); {topics}" == str(caught.value)

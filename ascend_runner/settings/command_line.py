"""Splits the command line into options and the training command, suggests corrections, and prints `--help`. Pure.

Not argparse: an unknown option must not take the word after it for a positional argument, an option never stands for a
longer one, and the command must reach the ranks as it is. argparse needs a subclass and REMAINDER for that.
"""

from __future__ import annotations

import os.path
from collections.abc import Iterable, Sequence
from typing import Final

import attrs

from ascend_runner import programs
from ascend_runner.engines.command import engine_in
from ascend_runner.errors import COMMAND_NOT_FOUND, CommandError, SettingsError
from ascend_runner.settings.options import (
    FOREIGN,
    OPTIONS,
    OPTIONS_OF,
    REMOVED,
    SEPARATOR,
    VARIABLE_PREFIX,
    Option,
    Topic,
    with_dashes,
)
from ascend_runner.settings.parsing import did_you_mean

SHELL_OPERATORS: Final = ("&&", "||")  # | |
SHELL: Final = "bash -c '...'"

FLAGS: Final = frozenset(option.flag for option in OPTIONS)


@attrs.frozen(kw_only=True)
class CommandLine:
    """A command line: option values by name, the training command, and what to print instead of running it."""

    values: dict[str, str] = attrs.field(factory=dict)
    command: tuple[str, ...] = ()
    wants_version: bool = False
    help_on: str | None = None  # the subject of --help; "": the common options


def parse(argv: Sequence[str]) -> CommandLine:
    """Split a command line. Options stop at the first non-option argument or at `--`.

    Raises:
        SettingsError: An option is unknown, lacks its value or does not take one.
    """
    options = {option.flag: option for option in OPTIONS}
    values: dict[str, str] = {}
    words = list(argv)
    while words and words[0].startswith("-"):
        word = words.pop(0)
        if word == "--":
            break
        if word == "--version":
            return CommandLine(wants_version=True)
        given, equals, value = word.partition("=")
        if given in {"--help", "-h"}:
            return CommandLine(help_on=value or "".join(words[:1]))
        flag = with_dashes(given)
        if instead := REMOVED.get(flag[2:].replace("-", "_")):
            raise SettingsError(f"option {flag} has been removed: {instead}")
        if flag not in options:
            raise SettingsError(f"unknown option {given}{_meant_by_option(given, words)}")
        option = options[flag]
        text = _value(option, value if equals else None, words)
        if option.name == "perf_pattern" and option.name in values:
            raise SettingsError(
                f"{option.flag} is given twice: write one expression, such as '(?:train|eval) step (?P<step>[0-9]+)'"
            )
        is_further = option.is_repeatable and option.name in values
        values[option.name] = SEPARATOR.join([values[option.name], text]) if is_further else text

    return CommandLine(values=values, command=tuple(words))


def _value(option: Option, value: str | None, following: list[str]) -> str:
    """Return the value of an option, and remove it from the words that follow if it is there."""
    if option.is_switch:
        if value is not None:
            raise SettingsError(f"option {option.flag} does not take a value")
        return "1"
    if value is not None:
        return value
    if not following or following[0].startswith("--"):
        raise SettingsError(f"option {option.flag} requires a value ({option.metavar})")
    return following.pop(0)


def check(command: Sequence[str]) -> None:
    """Refuse a training command that only a shell could run.

    A command starts with an executable and is not a shell command line (the task-training platform's guide).

    Raises:
        CommandError: The command is empty or needs a shell.
    """
    first, *others = command
    if not first:
        raise CommandError("the command is empty", exit_status=COMMAND_NOT_FOUND)
    name, equals, _ = first.partition("=")
    if equals and name.isidentifier():
        # The value may be a secret.
        raise CommandError(f"the command begins with a variable assignment: use env {name}=... COMMAND, or {SHELL}")
    # A path may contain spaces, but hardly a shell operator.
    words = first.split() or [""]
    if len(words) > 1 and ("/" not in words[0] or {*words} & {*SHELL_OPERATORS}):
        raise CommandError(
            f"the command is a shell command line, {first!r}: pass the program and its arguments as separate words, or"
            f" use {SHELL}"
        )
    operator = next((word for word in others if word in SHELL_OPERATORS), None)
    if operator:
        raise CommandError(f"the command contains the shell operator {operator!r}: use {SHELL}")


def _meant_by_option(flag: str, following: Sequence[str]) -> str:
    """Return a hint on the option to use instead of an unknown one, "" if no option is similar."""
    if flag in {"-m", "--module"}:
        return (
            f" (did you mean: {programs.command('ascend-runner python')} -m {following[0] if following else 'MODULE'}?)"
        )
    instead = FOREIGN.get(with_dashes(flag), "")
    if instead.startswith("--"):
        return f" (did you mean {instead}?)"
    return f": {instead}" if instead else did_you_mean(with_dashes(flag), {*FLAGS, "--help", "--version"})


def suggestion_for_script(program: str) -> str:
    """Return a suggestion for a Python script that cannot be executed, in parentheses, or "" for another program."""
    return f" (did you mean: {programs.command('ascend-runner python')} {program}?)" if program.endswith(".py") else ""


def misplaced_options(command: Sequence[str]) -> str:
    """Return a sentence about the runner's options after a command, or "" if there are none.

    An engine, or another runner, has options of the same names.
    """
    if engine_in(command) or "ascend_runner" in command or os.path.basename(command[0]) == "ascend-runner":
        return ""
    flags = dict.fromkeys(with_dashes(word.partition("=")[0]) for word in command[1:])
    found = [flag for flag in flags if flag in FLAGS]
    if not found:
        return ""
    verb = "is" if len(found) == 1 else "are"
    return f"{', '.join(found)} {verb} passed to the command; options of ascend-runner precede the command"


_WIDTH: Final = 80  # the default width of a terminal; the text does not depend on the actual one
_COLUMN: Final = 26  # where the descriptions begin

_DESCRIPTION: Final = (
    "Run COMMAND once per Ascend NPU of this node: wait for the platform's rank table, keep the log of every rank, stop"
    " all ranks when one fails, leave no process behind, and report the cause."
)
_STATUSES: Final = (
    ("0", "all ranks exited with 0"),
    ("N", "the first rank to fail exited with N"),
    ("128 + N", "the first rank to fail was killed by signal N, or ascend-runner was stopped by it"),
    ("124", "--hang-timeout, --time-limit, --perf-action or --inspect stop ended the job"),
    ("125", "ascend-runner itself failed"),
    ("126, 127", "COMMAND cannot be executed, or was not found"),
    ("75, 93", "with --exit-verdict, instead of N or 128 + N of a rank"),
)
_VARIABLES: Final = "The environment variable in brackets sets an option as well; the option overrides it."
_FORMS: Final = {
    "DURATION": "DURATION is a number of seconds, or has a unit: 90, 15m, 72h, 7d.",
    "SIZE": "SIZE is a number with a unit, in powers of 1024: 500M, 1.5G.",
}
ALL: Final = "all"


def usage() -> str:
    """Return how the program is called."""
    return f"usage: {programs.command('ascend-runner')} [OPTIONS] COMMAND [ARG ...]"


def help_text(subject: str = "") -> str:
    """Return the text of --help for a topic, an option, `ALL` options, or "" (the common options).

    Raises:
        SettingsError: `subject` is neither a topic nor an option.
    """
    if not subject:
        return _common()
    if subject == ALL:
        return _everything()
    topics = {topic.word: topic for topic in Topic}
    flag = "--" + with_dashes(subject.lstrip("-"))
    if subject in topics:
        options = OPTIONS_OF[topics[subject]]
        shown = _section(topics[subject].title, _rows(options))
    elif flag in FLAGS:
        options = tuple(option for option in OPTIONS if option.flag == flag)
        shown = _section("", _rows(options))[1:]
    else:
        meant = did_you_mean(subject, topics) or did_you_mean(flag, FLAGS)
        raise SettingsError(f"no help on {subject!r}{meant}; the topics are {', '.join(topics)}, {ALL}")
    return "\n".join([f"{usage()}\n", *shown, *_notes(options), ""])


def _common() -> str:
    """Return the short help, which fits one screen: the common options, and how to show the others."""
    rows = [(one.usage, _brief(one)) for one in OPTIONS if one.is_common]
    rows += [("--help SUBJECT", f"show an option (--help grace), a topic, or {ALL} options")]
    rows += [("--version", "show the version")]
    topics = f"topics: {', '.join(topic.word for topic in Topic)}"
    others = (
        "By default the platform provides the rank table, and with it the nodes and the number of ranks."
        f" Each option has a variable, such as {VARIABLE_PREFIX}GRACE. {_FORMS['DURATION']}"
        f" Exit statuses are described in --help {ALL}."
    )
    lines = [*_opening(), *_section("common options", rows), "", _wrapped(topics), "", _wrapped(others), "", _example()]
    return "\n".join([*lines, ""])


def _brief(option: Option) -> str:
    text = option.help.partition(";")[0]
    return text if option.default_text or option.is_switch else f"{text} (default: {option.shown_default})"


def _everything() -> str:
    """Return all options by topic, the common ones first."""
    lines = [*_opening(), *_section("common options", _rows(option for option in OPTIONS if option.is_common))]
    for topic, options in OPTIONS_OF.items():
        others = [option for option in options if not option.is_common]
        lines += ["", *_section(topic.title, _rows(others))] if others else []
    return "\n".join([*lines, *_notes(OPTIONS), "", *_section("exit status", _STATUSES), "", _example(), ""])


def _opening() -> list[str]:
    return [f"{usage()}\n", f"{_wrapped(_DESCRIPTION)}\n"]


def _example() -> str:
    return f"example: {programs.command('ascend-runner')} --nproc-per-node 8 python train.py --epochs 5"


def _notes(options: Sequence[Option]) -> list[str]:
    """Return the notes that some options share: on their variables, and on the syntax of their values."""
    notes = [_VARIABLES] if any(option.variable for option in options) else []
    notes += [text for form, text in _FORMS.items() if any(form in option.metavar for option in options)]
    return ["", *map(_wrapped, notes)] if notes else []


def _rows(options: Iterable[Option]) -> list[tuple[str, str]]:
    rows = []
    for option in options:
        default = f" (default: {option.shown_default})" if option.shown_default else ""
        variable = f" [{option.variable}]" if option.variable else ""
        rows.append((option.usage, f"{option.help}{default}{variable}"))
    return rows


def _section(title: str, rows: Iterable[tuple[str, str]]) -> list[str]:
    """Return a heading and its options; a long option is on a line of its own."""
    lines = [f"{title}:"]
    for usage, text in rows:
        start = f"  {usage}  ".ljust(_COLUMN)
        if len(start) > _COLUMN:
            lines.append(start.rstrip())
            start = " " * _COLUMN
        lines.append(_wrapped(text, start, _COLUMN))
    return lines


def _wrapped(text: str, start: str = "", indent: int = 0) -> str:
    """Break a text into lines; the first one begins with `start`, the others with `indent` spaces."""
    import textwrap  # noqa: PLC0415  1 to 2 ms that only --help needs

    return textwrap.fill(
        text,
        _WIDTH,
        initial_indent=start,
        subsequent_indent=" " * indent,
        break_on_hyphens=False,
        break_long_words=False,
    )

"""The options, commands and arguments that are completed, from the tables of the programs."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Mapping
from typing import Final

import attrs

from ascend_runner.settings.command_line import ALL
from ascend_runner.settings.options import OPTIONS, Topic

FILES: Final = {"PATH", "FILE", "LOG", "OUT", "OUT.html", "A", "B"}
PLACEHOLDERS: Final = {"CODE", "DIR", "DURATION", "LOG", "RANK", "RANKS"}  # for values, beside words that are complete
WORDS: Final = {"LIMIT": ("off",)}  # that a metavar does not have
NOTE: Final = "# Completion for ascend-runner, ascend-job and ascend-rank-table, written by scripts/generate.\n"
# For sed: print the name of a job from its job.json, unless it has characters that a shell might interpret.
JOB_NAMES: Final = r's/^{"job_id": "\([[:alnum:]_][[:alnum:]_.+@-]*\)", "part": "\([[:alnum:]_.+@-]*\)".*/\1\2/p'


@attrs.frozen
class Value:
    """What completes a value: `words`, and what `kind` says: "file", "directory", "job", or "" for nothing."""

    kind: str = ""
    words: tuple[str, ...] = ()


@attrs.frozen
class Flag:
    """An option with its names; a switch has no value."""

    names: tuple[str, ...]
    help: str
    value: Value | None = None


@attrs.frozen
class Command:
    """A command of a program: its options, and what completes each argument, of which there are at most `most`.

    An argument before others may be omitted, so what completes one completes all of them. `most` is None without limit.
    """

    name: str
    help: str
    flags: tuple[Flag, ...]
    argument: Value = Value()
    most: int | None = 0


HELP: Final = Flag(("-h", "--help"), "show help")
VERSION: Final = Flag(("--version",), "show the version")


def value_of(metavar: str, choices: Collection[str] = ()) -> Value:
    """Return what completes a value that is described by `metavar`."""
    words = metavar.split("|")
    kind = "directory" if "DIR" in words else "job" if "JOB" in words else "file" if set(words) & FILES else ""
    known = [*choices] or [word for word in words if len(words) > 1 and word not in PLACEHOLDERS]
    return Value(kind, WORDS.get(metavar) or tuple(known))


def runner_flags() -> tuple[Flag, ...]:
    """Return the options of ascend-runner."""
    topics = Value("", (*(topic.word for topic in Topic), ALL))
    values = [None if one.is_switch else value_of(one.metavar, one.choices) for one in OPTIONS]
    flags = [Flag((one.flag,), one.help, value) for one, value in zip(OPTIONS, values)]
    return (*flags, Flag(("--help",), "show help, also on a topic or an option", topics), VERSION)


def commands_of(parsers: Mapping[str, argparse.ArgumentParser]) -> tuple[Command, ...]:
    """Return the commands of a program, from their parsers."""
    return tuple(_command(name, parser) for name, parser in parsers.items())


def _command(name: str, parser: argparse.ArgumentParser) -> Command:
    flags, argument, most = [HELP], Value(), 0
    repeats = False
    for action in parser._actions:  # noqa: SLF001  argparse has no public list of them
        metavar = action.metavar if isinstance(action.metavar, str) else ""
        value = value_of(metavar, [*map(str, action.choices or ())])
        if not action.option_strings:
            argument = Value(argument.kind or value.kind, (*argument.words, *value.words))
            most += 1
            repeats |= action.nargs in {"*", "+"}
        elif "--help" not in action.option_strings:
            text_of_flag = (action.help or "") % {"default": action.default}
            flags.append(Flag(tuple(action.option_strings), text_of_flag, None if action.nargs == 0 else value))
    summary = (parser.description or "").partition(". ")[0].rstrip(".")
    return Command(name, summary, tuple(flags), argument, None if repeats else most)

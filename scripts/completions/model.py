"""The options, commands and arguments that are completed, from the tables of the programs."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Final

import attrs

from ascend_runner.engines import registry as engines
from ascend_runner.frameworks import registry as frameworks
from ascend_runner.settings.option import Topic
from ascend_runner.settings.options import OPTIONS

CHOICES: Final = {"framework": frameworks.NAMES, "launcher": engines.NAMES}  # of options whose metavar is NAME
FILES: Final = {"PATH", "FILE", "OUT", "OUT.html", "A", "B"}
PLACEHOLDERS: Final = {"DIR", "DURATION", "RANK", "RANKS"}  # for values, beside words that are complete
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
    """A command of a program: its options, and its arguments, the last of which may be repeated."""

    name: str
    help: str
    flags: tuple[Flag, ...]
    arguments: tuple[Value, ...]


HELP: Final = Flag(("-h", "--help"), "show help")
VERSION: Final = Flag(("--version",), "show the version")


def value_of(metavar: str, choices: Sequence[str] = ()) -> Value:
    """Return what completes a value that is described by `metavar`."""
    words = metavar.split("|")
    kind = "directory" if "DIR" in words else "job" if "JOB" in words else "file" if set(words) & FILES else ""
    known = [*choices] or [word for word in words if len(words) > 1 and word not in PLACEHOLDERS]
    return Value(kind, tuple(known))


def runner_flags() -> tuple[Flag, ...]:
    """Return the options of ascend-runner."""
    topics = Value("", tuple(topic.value for topic in Topic))
    values = [None if one.is_switch else value_of(one.metavar, CHOICES.get(one.name, ())) for one in OPTIONS]
    flags = [Flag((one.flag,), one.help, value) for one, value in zip(OPTIONS, values)]
    return (*flags, Flag(("--help",), "show help, or that of a topic", topics), VERSION)


def commands_of(parsers: Mapping[str, argparse.ArgumentParser]) -> tuple[Command, ...]:
    """Return the commands of a program, from their parsers."""
    return tuple(_command(name, parser) for name, parser in parsers.items())


def _command(name: str, parser: argparse.ArgumentParser) -> Command:
    flags, arguments = [HELP], []
    for action in parser._actions:  # noqa: SLF001  argparse has no public list of them
        metavar = action.metavar if isinstance(action.metavar, str) else ""
        value = value_of(metavar, [*map(str, action.choices or ())])
        if not action.option_strings:
            arguments.append(value)
        elif "--help" not in action.option_strings:
            text_of_flag = (action.help or "") % {"default": action.default}
            flags.append(Flag(tuple(action.option_strings), text_of_flag, None if action.nargs == 0 else value))
    return Command(name, parser.description or "", tuple(flags), tuple(arguments))

"""The common parts of the programs with commands: their streams, their arguments, and how their errors are shown.

Standard output carries a command's result, and standard error everything else.
"""

from __future__ import annotations

import os
import re
import sys
import textwrap
from argparse import ArgumentParser, ArgumentTypeError, HelpFormatter, Namespace
from collections.abc import Callable, Mapping, Sequence
from io import TextIOWrapper
from typing import Final, TextIO

from ascend_runner.errors import AscendRunnerError, OutputError, SettingsError, reason
from ascend_runner.secrets import Masker
from ascend_runner.settings import parsing
from ascend_runner.settings.parsing import did_you_mean
from ascend_runner.text import printable

DONE: Final = 0
USAGE: Final = 2
INTERRUPTED: Final = 130


Adder = Callable[[str, Callable[[Namespace], int], str, str], ArgumentParser]  # name, function, summary, example


EXAMPLE: Final = "example: "


class WholeWordsFormatter(HelpFormatter):
    """Breaks no path and no option at its hyphens, and no example, which can be copied only in one piece."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False, break_long_words=False)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        lines = [text] if EXAMPLE in text else self._split_lines(text, width - len(indent))
        return "\n".join(indent + line for line in lines)


class EndedByParserError(AscendRunnerError):
    """argparse has shown help, a version or an error; `exit_status` is the program's."""

    def __init__(self, exit_status: int) -> None:
        super().__init__()

        self.exit_status = exit_status


def run(program: str, command: Callable[[], int]) -> int:
    """Run a command and return its exit status; an error is a message, and the status for a usage error."""
    try:
        _prepare_streams()
        status = command()
        _flush()
    except EndedByParserError as ended:
        return ended.exit_status
    except AscendRunnerError as error:
        tell(program, str(error))
    except MemoryError:
        tell(program, "not enough memory for a file of this size")
    except RecursionError:
        tell(program, "a file is nested too deeply")
    except BrokenPipeError:  # the reader has left and does not need a message
        pass
    except KeyboardInterrupt:
        return INTERRUPTED
    else:
        return status

    return USAGE


def commands_of(parser: ArgumentParser) -> tuple[Adder, Mapping[str, ArgumentParser]]:
    """Return a function that adds a command to a parser, and the parsers of the commands that it has added, by name.

    `command` of the options that the parser returns is the function to run with them.
    """
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def add(name: str, run: Callable[[Namespace], int], summary: str, example: str) -> ArgumentParser:
        command = subparsers.add_parser(
            name,
            help=summary,
            description=f"{summary[0].upper()}{summary[1:]}.",
            epilog=f"{EXAMPLE}{parser.prog} {name} {example}".rstrip(),
            allow_abbrev=False,
            formatter_class=WholeWordsFormatter,
        )
        command.set_defaults(command=run)
        return command

    return add, subparsers.choices


def parse(parser: ArgumentParser, parsers: Mapping[str, ArgumentParser], words: Sequence[str]) -> Namespace:
    """Return the options of a command line; `parsers` are the parsers of its commands, by name.

    `--help COMMAND` shows the same as `COMMAND --help`.

    Raises:
        SettingsError: A command, an option or an argument is unknown.
        EndedByParserError: Argparse has shown something, and the program is to end.
        OutputError: The help cannot be written.
    """
    name = next((word for word in words if not word.startswith("-")), "")
    if name and name not in parsers:
        raise SettingsError(
            f"unknown command {name!r}{did_you_mean(name, parsers)}; the commands are {', '.join(parsers)}"
        )
    if name and words[0] in {"-h", "--help"}:
        words = [name, "--help"]
    try:
        options, unknown = parser.parse_known_args(words)
    except SystemExit as ended:
        _flush()
        raise EndedByParserError(int(ended.code or 0)) from None
    except OSError:  # from --help in Python 3.9, where argparse lets it through: reported as for any output
        _flush()
        raise
    if unknown:  # argparse would print it without escapes
        kind = "unknown option" if unknown[0].startswith("-") else "unexpected argument"
        near = did_you_mean(unknown[0], re.findall(r"--[a-z-]+", parsers[name].format_help()))
        raise SettingsError(f"{kind} {unknown[0]!r}{near}; see {parser.prog} {name} --help")
    return options


def duration(text: str, parse: Callable[[str], float] = parsing.seconds) -> float:
    """Return an argument that is a duration, in seconds.

    Raises:
        ArgumentTypeError: `parse` rejects it.
    """
    try:
        return parse(text)
    except ValueError as error:
        raise ArgumentTypeError(f"invalid value {text!r}: expected {error}") from None


def write_text(text: str) -> None:
    """Write a part of the result; errors as for `write_output`."""
    write_output(text.encode(sys.stdout.encoding if sys.stdout else "ascii", errors="backslashreplace"))


def write_output(data: bytes) -> None:
    """Write a part of the result.

    Raises:
        BrokenPipeError: The reader has closed the pipe.
        OutputError: Standard output cannot be written.
    """
    if sys.stdout is None:
        raise OutputError("cannot write to standard output: it is closed")

    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except OSError as error:
        _discard(sys.stdout)
        if isinstance(error, BrokenPipeError):
            raise
        raise OutputError(f"cannot write to standard output: {reason(error)}") from error


def _flush() -> None:
    """Write the text that is left in the buffer of standard output; errors as for `write_output`."""
    if sys.stdout:
        write_output(b"")


def tell(program: str, sentence: str) -> None:
    """Print a message to standard error with secrets masked, and ignore a closed one."""
    try:
        sys.stderr.write(f"{program}: {printable(Masker().text(sentence))}\n")
        sys.stderr.flush()
    except OSError:
        _discard(sys.stderr)


def _prepare_streams() -> None:
    """Make the standard streams accept text in any script, and replace a closed standard error."""
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="ascii")  # noqa: SIM115 - open until the end
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # otherwise it is closed, or a program's own
            stream.reconfigure(errors="backslashreplace")


def _discard(stream: TextIO) -> None:
    """Discard the buffer of a stream, which Python would try to write once more at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC), stream.fileno())

"""The command line of `ascend-rank-table`: its commands and arguments, and how an answer becomes an exit status.

The type of an argument turns text into a value, or into one sentence on what is wrong.

Exit status: 0 success; 1 a negative answer (errors found, not a table, not completed in time, tables differ); 2 wrong
usage, or a file that cannot be read or written.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Mapping, Sequence
from typing import Final

import ascend_runner
from ascend_runner import programs, tool
from ascend_runner.errors import AscendRunnerError, OutputError, SettingsError, UnreadableError
from ascend_runner.platforms.chips import CHIPS
from ascend_runner.problems import problems_of
from ascend_runner.rank_table.source import TIMEOUT
from ascend_runner.tool import Adder, WholeWordsFormatter, commands_of, duration
from ascend_runner.tools.rank_table import commands
from ascend_runner.tools.rank_table.commands import PROGRAM, STANDARD, parse_devices, tell

FILE_HELP: Final = "a rank table in any dialect, a directory with jobstart_hccl.json, or - for standard input"
REMOVED: Final[Mapping[str, str]] = {  # commands of earlier versions, and what to do instead
    "merge": "the platform writes one table of all nodes; check one that you have written with validate",
    "subset": "to run fewer ranks, use --nproc-per-node N of ascend-runner; generate --devices IDS writes a new table",
}


def make_parser() -> tuple[ArgumentParser, Mapping[str, ArgumentParser]]:
    """Return the parser, and the parsers of the commands by name; see `tool.commands_of`."""
    parser = ArgumentParser(
        prog=programs.command(PROGRAM),
        description="Show, check, convert, generate and compare the rank tables of Ascend jobs.",
        epilog=f"Each command has its own help with an example: {programs.command(PROGRAM)} show --help",
        formatter_class=WholeWordsFormatter,
    )
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {ascend_runner.__version__}")
    add, parsers = commands_of(parser)
    _add_readers(add)
    _add_converters(add)
    _add_makers(add)
    return parser, parsers


def _add_readers(add: Adder) -> None:
    show = add("show", commands.show, "show the servers, devices and ranks of a table", "/user/config")
    show.add_argument("file", type=file_name, metavar="FILE", help=FILE_HELP)
    show.add_argument("--all", action="store_true", help="always print one line per device")
    show.add_argument("--json", action="store_true", help="print JSON, which has the same form for every dialect")

    summary = "list what HCCL would reject and what is unusual; exit with 1 if there is an error"
    validate = add("validate", commands.validate, summary, "--chip 910B jobstart_hccl.json")
    validate.add_argument("files", type=file_name, metavar="FILE", nargs="+", help=FILE_HELP)
    _add_chip(validate)

    summary = "wait until a table is completed; exit with 1 if it is not completed in time"
    wait = add("wait", commands.wait, summary, "/user/config --timeout 600 && msrun ...")
    text = "a rank table or its directory, which need not exist yet"
    wait.add_argument("file", type=place, metavar="FILE", help=text)
    text = "how long to wait (default: %(default)g, the same as HCCL)"
    wait.add_argument("--timeout", type=duration, default=TIMEOUT, metavar="DURATION", help=text)

    summary = "list, rank by rank, the differences that make HCCL report EI0005; exit with 1 if there are any"
    diff = add("diff", commands.diff, summary, "node-0.json node-1.json")
    diff.add_argument("first", type=file_name, metavar="A", help=FILE_HELP)
    diff.add_argument("second", type=file_name, metavar="B", help="the table to compare with A")


def _add_converters(add: Adder) -> None:
    summary = "write a table in a format that HCCL reads; a table that is already in one is copied unchanged"
    convert = add("convert", commands.convert, summary, "/user/config -o /tmp/hccl.json")
    convert.add_argument("file", type=file_name, metavar="FILE", help=FILE_HELP)
    text = "server-list (template 1) or group-list (template 2) (default: %(default)s)"
    convert.add_argument("--to", choices=("server-list", "group-list"), default="server-list", help=text)
    _add_output(convert)


def _add_makers(add: Adder) -> None:
    generate = add("generate", commands.generate, "generate the table of this machine", "--devices 0-7 -o hccl.json")
    text = "physical device ids, such as 0-7 or 0,2,4-6, in the order of the ranks (default: all devices)"
    generate.add_argument("--devices", type=devices, metavar="IDS", help=text)
    text = "the server_id of the machine in the table (default: its address)"
    generate.add_argument("--server-id", type=server_id, metavar="ID", help=text)
    text = "the driver's file of device addresses (default: %(default)s)"
    generate.add_argument("--hccn-conf", type=file_name, default="/etc/hccn.conf", metavar="FILE", help=text)
    _add_output(generate)


def _add_output(command: ArgumentParser) -> None:
    """Add the options of every command that writes a table."""
    _add_chip(command)
    text = "the file to write; - for standard output (default: %(default)s)"
    command.add_argument("-o", "--output", type=file_name, metavar="OUT", default=STANDARD, help=text)
    text = "write the table even if HCCL would reject it; counts that do not match their lists are corrected"
    command.add_argument("--no-checks", action="store_true", help=text)


def _add_chip(command: ArgumentParser) -> None:
    text = "the chip that the table is for (default: from the table or SOC_VERSION, else any)"
    command.add_argument("--chip", choices=CHIPS, metavar="|".join(CHIPS), help=text)


def file_name(text: str) -> str:
    """Return the name of a file, which must not be empty."""
    if text:
        return text

    raise ArgumentTypeError("file name is empty")


def place(text: str) -> str:
    """Return the name of a file or directory, which may be missing, but not standard input."""
    if text != STANDARD:
        return file_name(text)

    raise ArgumentTypeError("cannot wait for standard input; specify a file or directory")


def server_id(text: str) -> str:
    """Return a server_id."""
    if text and text == text.strip():
        return text

    raise ArgumentTypeError(f"server_id {text!r} has leading or trailing spaces" if text else "server_id is empty")


def devices(text: str) -> tuple[int, ...]:
    """Return device ids like "0-7" or "0,2,4-6"."""
    try:
        return parse_devices(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None


MOST_PROBLEMS: Final = 20  # problems of one file, before the message refers to `validate`


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status."""
    return tool.run(PROGRAM, lambda: _run(sys.argv[1:] if argv is None else argv))


def _run(words: Sequence[str]) -> int:
    """Run one command; a negative answer becomes 1.

    Raises:
        AscendRunnerError: There is no answer.
    """
    if instead := REMOVED.get(words[0] if words else ""):
        raise SettingsError(f"the command {words[0]} has been removed: {instead}")
    if words[:1] == ["show"] and any(word == "--svg" or word.startswith("--svg=") for word in words):
        report = programs.command("ascend-job report")
        raise SettingsError(f"option --svg has been removed: {report} draws the rank table of a job")
    options = tool.parse(*make_parser(), words)
    try:
        status: int = options.command(options)
    except (OutputError, SettingsError, UnreadableError):
        raise
    except AscendRunnerError as error:
        _print_problems(error)
        # For diff, as for diff(1), 1 means that there are differences and nothing else.
        return tool.USAGE if options.command is commands.diff else commands.BAD

    return status


def _print_problems(error: AscendRunnerError) -> None:
    problems = problems_of(error)
    for problem in problems[:MOST_PROBLEMS]:
        tell(str(problem))
    if len(problems) > MOST_PROBLEMS:
        tell(f"and {len(problems) - MOST_PROBLEMS} more; {programs.command(PROGRAM)} validate lists all of them")

"""The command line of `ascend-rank-table`: arguments to options, errors to messages and exit statuses.

Exit status: 0 success; 1 a negative answer (errors found, not a table, not completed in time, tables differ); 2 wrong
usage, or a file that cannot be read or written.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Final

import attrs

import ascend_runner
from ascend_runner.errors import AscendRunnerError, OutputError, SettingsError, UnreadableError
from ascend_runner.problems import problems_of
from ascend_runner.rank_table.checks.chips import CHIPS
from ascend_runner.rank_table.source import TIMEOUT
from ascend_runner.rank_table_tool import arguments, commands, files, streams

USAGE: Final = 2
INTERRUPTED: Final = 130
MOST_PROBLEMS: Final = 20  # of one file, before the message refers to `validate`
FILE_HELP: Final = "a rank table in any dialect, a directory with jobstart_hccl.json, or - for standard input"
DEVICES_HELP: Final = "physical device ids, such as 0-7 or 0,2,4-6"


@attrs.frozen(kw_only=True)
class Command:
    """One command, named after the function that runs it, which takes the options and returns the exit status."""

    run: Callable[[argparse.Namespace], int]
    summary: str
    example: str
    add_arguments: Callable[[argparse.ArgumentParser], None]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status."""
    try:
        streams.prepare()
        status = _run(argv)
        streams.flush()
    except AscendRunnerError as error:
        streams.tell(str(error))
    except MemoryError:
        streams.tell("not enough memory for a table of this size")
    except RecursionError:
        streams.tell("a table is nested too deeply")
    except BrokenPipeError:  # the reader has left and does not need a message
        pass
    except KeyboardInterrupt:
        return INTERRUPTED
    else:
        return status

    return USAGE


def _run(argv: Sequence[str] | None) -> int:
    """Run one command; a negative answer becomes 1.

    Raises:
        AscendRunnerError: There is no answer.
    """
    try:
        options, unknown = _parser().parse_known_args(argv)
    except SystemExit as ended:  # by argparse
        return int(ended.code or 0)
    except OSError:  # of --help, in Python 3.9, where argparse lets it through: reported as for any other output
        streams.flush()
        raise
    if unknown:  # argparse would print it without escapes
        raise SettingsError(f"unknown option or argument {unknown[0]!r}, see ascend-rank-table --help")

    try:
        status: int = options.command(options)
    except (OutputError, SettingsError, UnreadableError):
        raise
    except AscendRunnerError as error:
        _print_problems(error)
        # For diff, as for diff(1), 1 means that there are differences and nothing else.
        return USAGE if options.command is commands.diff else commands.BAD

    return status


def _print_problems(error: AscendRunnerError) -> None:
    problems = problems_of(error)
    for problem in problems[:MOST_PROBLEMS]:
        streams.tell(str(problem))
    if len(problems) > MOST_PROBLEMS:
        streams.tell(f"and {len(problems) - MOST_PROBLEMS} more; ascend-rank-table validate lists all of them")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ascend-rank-table",
        description="Show, check, convert, generate, merge, cut and compare the rank tables of Ascend jobs.",
        epilog="Each command has its own help with an example: ascend-rank-table show --help",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {ascend_runner.__version__}")
    adders = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        name = command.run.__name__
        added = adders.add_parser(
            name,
            help=command.summary,
            description=f"{command.summary[0].upper()}{command.summary[1:]}.",
            epilog=f"example: ascend-rank-table {name} {command.example}",
            allow_abbrev=False,
        )
        added.set_defaults(command=command.run)
        command.add_arguments(added)

    return parser


def _add_show(command: argparse.ArgumentParser) -> None:
    _add_input(command)
    command.add_argument("--all", action="store_true", help="always print one line per device")
    command.add_argument("--svg", type=arguments.file_name, metavar="OUT", help="draw a picture; - for standard output")
    command.add_argument("--json", action="store_true", help="print JSON, which has the same form for every dialect")


def _add_validate(command: argparse.ArgumentParser) -> None:
    _add_inputs(command)
    _add_chip(command)


def _add_convert(command: argparse.ArgumentParser) -> None:
    _add_input(command)
    _add_output(command)
    text = "server-list (template 1) or group-list (template 2) (default: %(default)s)"
    command.add_argument("--to", choices=("server-list", "group-list"), default="server-list", help=text)


def _add_wait(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "file", type=arguments.place, metavar="FILE", help="a rank table or its directory; need not exist yet"
    )
    text = "how long to wait (default: %(default)g, the same as HCCL)"
    command.add_argument("--timeout", type=arguments.seconds, default=TIMEOUT, metavar="SECONDS", help=text)


def _add_generate(command: argparse.ArgumentParser) -> None:
    text = f"{DEVICES_HELP}, in the order of the ranks (default: all devices)"
    command.add_argument("--devices", type=arguments.devices, metavar="IDS", help=text)
    text = "the server_id of the machine in the table (default: its address)"
    command.add_argument("--server-id", type=arguments.server_id, metavar="ID", help=text)
    text = "the driver's file of device addresses (default: %(default)s)"
    command.add_argument("--hccn-conf", type=arguments.file_name, default="/etc/hccn.conf", metavar="FILE", help=text)
    _add_output(command)


def _add_merge(command: argparse.ArgumentParser) -> None:
    _add_inputs(command)
    _add_output(command)


def _add_subset(command: argparse.ArgumentParser) -> None:
    _add_input(command)
    text = "the server_ids of the servers to keep (default: all)"
    command.add_argument("--servers", type=arguments.server_ids, metavar="ID,...", help=text)
    text = f"{DEVICES_HELP}, to keep on every server (default: all)"
    command.add_argument("--devices", type=arguments.devices, metavar="IDS", help=text)
    _add_output(command)


def _add_diff(command: argparse.ArgumentParser) -> None:
    command.add_argument("first", type=arguments.file_name, metavar="A", help=FILE_HELP)
    command.add_argument("second", type=arguments.file_name, metavar="B", help="the table to compare with A")


def _add_input(command: argparse.ArgumentParser) -> None:
    command.add_argument("file", type=arguments.file_name, metavar="FILE", help=FILE_HELP)


def _add_inputs(command: argparse.ArgumentParser) -> None:
    command.add_argument("files", type=arguments.file_name, metavar="FILE", nargs="+", help=FILE_HELP)


def _add_chip(command: argparse.ArgumentParser) -> None:
    text = "the chip that the table is for (default: from the table or SOC_VERSION, otherwise any)"
    command.add_argument("--chip", choices=CHIPS, metavar="|".join(CHIPS), help=text)


def _add_output(command: argparse.ArgumentParser) -> None:
    """Add the options of every command that writes a table."""
    _add_chip(command)
    text = "the file to write; - for standard output (default: %(default)s)"
    command.add_argument("-o", "--output", type=arguments.file_name, metavar="OUT", default=files.STANDARD, help=text)
    text = "write the table even if HCCL would reject it; counts that contradict their lists are corrected"
    command.add_argument("--no-checks", action="store_true", help=text)


COMMANDS: Final = (
    Command(
        run=commands.show,
        summary="show the servers, devices and ranks of a table",
        example="/user/config",
        add_arguments=_add_show,
    ),
    Command(
        run=commands.validate,
        summary="list what HCCL would reject and what is unusual; exit with 1 if there is an error",
        example="--chip 910B jobstart_hccl.json",
        add_arguments=_add_validate,
    ),
    Command(
        run=commands.convert,
        summary="write a table in the form that HCCL reads; copied unchanged if HCCL can already read it",
        example="/user/config -o /tmp/hccl.json",
        add_arguments=_add_convert,
    ),
    Command(
        run=commands.wait,
        summary="wait until a table is completed; exit with 1 if it is not completed in time",
        example="/user/config --timeout 600 && msrun ...",
        add_arguments=_add_wait,
    ),
    Command(
        run=commands.generate,
        summary="generate the table of this machine",
        example="--devices 0-7 -o hccl.json",
        add_arguments=_add_generate,
    ),
    Command(
        run=commands.merge,
        summary="join tables in the order given and renumber their ranks",
        example="node-0.json node-1.json -o hccl.json",
        add_arguments=_add_merge,
    ),
    Command(
        run=commands.subset,
        summary="write a table of selected servers or devices and renumber their ranks",
        example="hccl.json --servers 10.0.0.1,10.0.0.2 --devices 0-3",
        add_arguments=_add_subset,
    ),
    Command(
        run=commands.diff,
        summary="list the differences between two tables that HCCL reports as EI0005, by rank; exit with 1 if any",
        example="node-0.json node-1.json",
        add_arguments=_add_diff,
    ),
)

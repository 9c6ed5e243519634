"""The command line of `ascend-rank-table`: words to options, errors to sentences and exit statuses.

Exit status: 0 fine; 1 the answer is a bad one (errors found, no table, not completed in time, tables differ); 2 usage,
or a file that cannot be read or written.
"""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING, Final

import ascend_runner
from ascend_runner.errors import (
    AscendRunnerError,
    OutputError,
    RankTableFormatError,
    SettingsError,
    UnreadableError,
)
from ascend_runner.rank_table import checks
from ascend_runner.rank_table.source import TIMEOUT
from ascend_runner.rank_table_tool import commands, files
from ascend_runner.rank_table_tool.generate import parse_devices

if TYPE_CHECKING:
    from collections.abc import Sequence

    Adders = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001 - argparse has no public name for it

USAGE: Final = 2
INTERRUPTED: Final = 130
MOST_PROBLEMS: Final = 20  # said of one file before `validate` is named
FILE_HELP: Final = "a rank table of any dialect, a folder that holds jobstart_hccl.json, or - for standard input"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit status."""
    try:
        files.mend_streams()
        status = _run(argv)
        files.flush()
    except AscendRunnerError as error:
        files.tell(str(error))
    except MemoryError:
        files.tell("a table is too large for the memory that there is")
    except RecursionError:
        files.tell("a table is nested too deeply")
    except BrokenPipeError:  # the reader has left, and does not wait for a sentence
        pass
    except KeyboardInterrupt:
        return INTERRUPTED
    else:
        return status

    return USAGE


def _run(argv: Sequence[str] | None) -> int:
    """Run one command; its bad answers become 1. Errors: AscendRunnerError where there is no answer."""
    try:
        options, unknown = _parser().parse_known_args(argv)
    except SystemExit as told:  # by argparse
        return int(told.code or 0)
    except OSError:  # of --help, in Python 3.9, where argparse lets it through: said as of any other answer
        files.flush()
        raise
    if unknown:  # argparse would put them on the screen as they are
        raise SettingsError(f"there is no {unknown[0]!r} here: ascend-rank-table --help lists what there is")

    try:
        status: int = options.command(options)
    except (OutputError, SettingsError, UnreadableError):
        raise
    except AscendRunnerError as error:
        _complain_of_all(error)
        # For diff, as for diff(1), 1 says that there are differences and nothing else.
        return USAGE if options.command is commands.diff else commands.BAD

    return status


def _complain_of_all(error: AscendRunnerError) -> None:
    if not isinstance(error, RankTableFormatError):
        files.tell(str(error))
        return

    problems = (RankTableFormatError(error.sentence, path=error.path, source=error.source), *error.others)
    for problem in problems[:MOST_PROBLEMS]:
        files.tell(str(problem))
    if len(problems) > MOST_PROBLEMS:
        files.tell(f"and {len(problems) - MOST_PROBLEMS} more, which `ascend-rank-table validate` lists")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ascend-rank-table",
        description="Shows, checks, converts, makes, merges, cuts and compares rank tables of Ascend jobs.",
        epilog="Each command has its own help, with an example: ascend-rank-table show --help",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {ascend_runner.__version__}")
    adders = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for add in (_add_show, _add_validate, _add_convert, _add_wait, _add_generate, _add_merge, _add_subset, _add_diff):
        add(adders)

    return parser


def _add_show(adders: Adders) -> None:
    command = _add(adders, "show", "say what a table is: its servers, devices and ranks", "show /user/config")
    command.add_argument("file", type=_name, metavar="FILE", help=FILE_HELP)
    command.add_argument("--all", action="store_true", help="a line for each device, however many there are")
    command.add_argument("--svg", type=_name, metavar="OUT", help="draw a picture; - for standard output")
    command.add_argument("--json", action="store_true", help="as JSON, which is the same for every dialect")
    command.set_defaults(command=commands.show)


def _add_validate(adders: Adders) -> None:
    example = "validate --chip 910B jobstart_hccl.json"
    command = _add(
        adders, "validate", "tell what HCCL would refuse, and what is odd; 1 where there is an error", example
    )
    command.add_argument("files", type=_name, metavar="FILE", nargs="+", help=FILE_HELP)
    _add_chip(command)
    command.set_defaults(command=commands.validate)


def _add_convert(adders: Adders) -> None:
    what = "write a table as HCCL reads it; what HCCL reads as it stands is passed on byte for byte"
    command = _add(adders, "convert", what, "convert /user/config -o /tmp/hccl.json")
    command.add_argument("file", type=_name, metavar="FILE", help=FILE_HELP)
    _add_chip(command)
    _add_output(command)
    told = "server-list (template 1) or group-list (template 2) (default: %(default)s)"
    command.add_argument("--to", choices=("server-list", "group-list"), default="server-list", help=told)
    command.set_defaults(command=commands.convert)


def _add_wait(adders: Adders) -> None:
    example = "wait /user/config --timeout 600 && msrun ..."
    command = _add(adders, "wait", "return when a table is completed; 1 where it is not in time", example)
    command.add_argument("file", type=_place, metavar="FILE", help="a rank table, or its folder; it need not exist yet")
    told = "how long at most (default: %(default)g, as HCCL itself)"
    command.add_argument("--timeout", type=_seconds, default=TIMEOUT, metavar="SECONDS", help=told)
    command.set_defaults(command=commands.wait)


def _add_generate(adders: Adders) -> None:
    command = _add(adders, "generate", "write the table of this machine", "generate --devices 0-7 -o hccl.json")
    told = "physical ids, such as 0-7 or 0,2,4-6; their order is that of the ranks (default: all that there are)"
    command.add_argument("--devices", type=_devices, metavar="IDS", help=told)
    told = "what the machine is called in the table (default: its address)"
    command.add_argument("--server-id", type=_server_id, metavar="ID", help=told)
    told = "where the driver keeps the addresses of devices (default: %(default)s)"
    command.add_argument("--hccn-conf", type=_name, default="/etc/hccn.conf", metavar="FILE", help=told)
    _add_chip(command)
    _add_output(command)
    command.set_defaults(command=commands.generate)


def _add_merge(adders: Adders) -> None:
    example = "merge node-0.json node-1.json -o hccl.json"
    command = _add(adders, "merge", "join tables in the order given, their ranks numbered anew", example)
    command.add_argument("files", type=_name, metavar="FILE", nargs="+", help=FILE_HELP)
    _add_chip(command)
    _add_output(command)
    command.set_defaults(command=commands.merge)


def _add_subset(adders: Adders) -> None:
    example = "subset hccl.json --servers 10.0.0.1,10.0.0.2 --devices 0-3"
    command = _add(adders, "subset", "write the table of some servers or devices, ranks numbered anew", example)
    command.add_argument("file", type=_name, metavar="FILE", help=FILE_HELP)
    told = "the server_id of each to keep (default: all)"
    command.add_argument("--servers", type=_server_ids, metavar="ID,...", help=told)
    told = "physical ids to keep on every server, such as 0-3 (default: all)"
    command.add_argument("--devices", type=_devices, metavar="IDS", help=told)
    _add_chip(command)
    _add_output(command)
    command.set_defaults(command=commands.subset)


def _add_diff(adders: Adders) -> None:
    what = "tell by rank what differs between two nodes' tables, as HCCL would (EI0005); 1 where something does"
    command = _add(adders, "diff", what, "diff node-0.json node-1.json")
    command.add_argument("first", type=_name, metavar="A", help=FILE_HELP)
    command.add_argument("second", type=_name, metavar="B", help="likewise")
    command.set_defaults(command=commands.diff)


def _add(adders: Adders, name: str, what: str, example: str) -> argparse.ArgumentParser:
    return adders.add_parser(
        name,
        help=what,
        description=f"{what[0].upper()}{what[1:]}.",
        epilog=f"example: ascend-rank-table {example}",
        allow_abbrev=False,
    )


def _add_chip(command: argparse.ArgumentParser) -> None:
    chips = "|".join(checks.CHIPS)
    told = "the chip that the table is for (default: what the table or SOC_VERSION tells, else what holds for all)"
    command.add_argument("--chip", choices=checks.CHIPS, metavar=chips, help=told)


def _add_output(command: argparse.ArgumentParser) -> None:
    told = "where to write it; - for standard output (default: %(default)s)"
    command.add_argument("-o", "--output", type=_name, metavar="OUT", default=files.STANDARD, help=told)
    told = "write it although HCCL would refuse it; a count that contradicts its list is mended"
    command.add_argument("--no-checks", action="store_true", help=told)


def _name(text: str) -> str:
    if text:
        return text

    raise argparse.ArgumentTypeError("an empty word names no file")


def _place(text: str) -> str:
    if text != files.STANDARD:
        return _name(text)

    raise argparse.ArgumentTypeError("standard input cannot be waited for: name a file or folder")


def _server_id(text: str) -> str:
    if text and text == text.strip():
        return text

    raise argparse.ArgumentTypeError(
        f"{text!r} is no server_id: {'it has spaces around it' if text else 'it is empty'}"
    )


def _server_ids(text: str) -> tuple[str, ...]:
    server_ids = tuple(map(_server_id, text.split(",")))
    twice = next((server_id for server_id in server_ids if server_ids.count(server_id) > 1), None)
    if twice is None:
        return server_ids

    raise argparse.ArgumentTypeError(f"{twice!r} is there twice")


def _devices(text: str) -> tuple[int, ...]:
    try:
        return parse_devices(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if seconds >= 0:
        return seconds

    raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds")

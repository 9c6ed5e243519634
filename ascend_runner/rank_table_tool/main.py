"""The command line of `ascend-rank-table`: arguments to options, errors to messages and exit statuses.

Exit status: 0 success; 1 a negative answer (errors found, not a table, not completed in time, tables differ); 2 wrong
usage, or a file that cannot be read or written.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import Final

from ascend_runner.errors import AscendRunnerError, OutputError, SettingsError, UnreadableError
from ascend_runner.problems import problems_of
from ascend_runner.rank_table_tool import commands
from ascend_runner.rank_table_tool.arguments import make_parser
from ascend_runner.rank_table_tool.files import flush, prepare_streams, tell
from ascend_runner.settings.parsing import did_you_mean

USAGE: Final = 2
INTERRUPTED: Final = 130
MOST_PROBLEMS: Final = 20  # of one file, before the message refers to `validate`


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status."""
    try:
        prepare_streams()
        status = _run(argv)
        flush()
    except AscendRunnerError as error:
        tell(str(error))
    except MemoryError:
        tell("not enough memory for a table of this size")
    except RecursionError:
        tell("a table is nested too deeply")
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
    words = sys.argv[1:] if argv is None else argv
    parser, parsers = make_parser()
    name = next((word for word in words if not word.startswith("-")), "")
    if name and name not in parsers:
        raise SettingsError(
            f"unknown command {name!r}{did_you_mean(name, parsers)}; the commands are {', '.join(parsers)}"
        )
    try:
        options, unknown = parser.parse_known_args(words)
    except SystemExit as ended:  # by argparse
        return int(ended.code or 0)
    except OSError:  # of --help, in Python 3.9, where argparse lets it through: reported as for any other output
        flush()
        raise
    if unknown:  # argparse would print it without escapes
        kind = "unknown option" if unknown[0].startswith("-") else "unexpected argument"
        near = did_you_mean(unknown[0], re.findall(r"--[a-z-]+", parsers[name].format_help()))
        raise SettingsError(f"{kind} {unknown[0]!r}{near}; see ascend-rank-table {name} --help")

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
        tell(str(problem))
    if len(problems) > MOST_PROBLEMS:
        tell(f"and {len(problems) - MOST_PROBLEMS} more; ascend-rank-table validate lists all of them")

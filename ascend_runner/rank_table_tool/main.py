"""The command line of `ascend-rank-table`: arguments to a command, its answer to an exit status.

Exit status: 0 success; 1 a negative answer (errors found, not a table, not completed in time, tables differ); 2 wrong
usage, or a file that cannot be read or written.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

from ascend_runner import tool
from ascend_runner.errors import AscendRunnerError, OutputError, SettingsError, UnreadableError
from ascend_runner.problems import problems_of
from ascend_runner.rank_table_tool import commands
from ascend_runner.rank_table_tool.arguments import make_parser
from ascend_runner.rank_table_tool.files import PROGRAM, tell

MOST_PROBLEMS: Final = 20  # problems of one file, before the message refers to `validate`


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status."""
    return tool.run(PROGRAM, lambda: _run(sys.argv[1:] if argv is None else argv))


def _run(words: Sequence[str]) -> int:
    """Run one command; a negative answer becomes 1.

    Raises:
        AscendRunnerError: There is no answer.
    """
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
        tell(f"and {len(problems) - MOST_PROBLEMS} more; ascend-rank-table validate lists all of them")

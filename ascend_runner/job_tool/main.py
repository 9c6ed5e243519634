"""The command line of `ascend-job`: arguments to a command, its answer to an exit status."""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Sequence
from typing import Final

from ascend_runner import tool
from ascend_runner.errors import SettingsError
from ascend_runner.job_tool.arguments import DEFAULT, PROGRAM, make_parser
from ascend_runner.job_tool.commands.running import RefusedError
from ascend_runner.job_tool.job import jobs
from ascend_runner.job_tool.job.jobs import UnknownJobError
from ascend_runner.settings.parsing import nearest

HINT: Final = "see ascend-job list, or specify the log directory of the job"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status."""
    return tool.run(PROGRAM, lambda: _run(sys.argv[1:] if argv is None else argv))


def _run(words: Sequence[str]) -> int:
    parser, parsers = make_parser()
    first = next((word for word in words if not word.startswith("-")), "")
    asks_for_help = bool(words) and words[0] in {"-h", "--help", "--version"}
    names_command = asks_for_help or first in parsers or (nearest(first, parsers) and not _is_job(first))
    if not names_command:
        words = [DEFAULT, *words]
    options = tool.parse(parser, parsers, _with_negative_limits(words))
    options.environ = os.environ
    options.tell = functools.partial(tool.tell, PROGRAM)
    try:
        status: int = options.command(options)
    except (RefusedError, UnknownJobError) as error:
        is_neither = isinstance(error, UnknownJobError) and not names_command and not _is_job(first)
        is_name = is_neither and os.sep not in first
        neither = f"{first!r} is neither a command nor a job on this machine; {HINT}"
        tool.tell(PROGRAM, neither if is_name else str(error))
        return error.exit_status
    return status


def _is_job(word: str) -> bool:
    """Whether a word names a job, or several, or a file."""
    try:
        jobs.find(word, os.environ)
    except UnknownJobError:
        return os.path.exists(word)
    except SettingsError:
        return True
    return True


def _with_negative_limits(words: Sequence[str]) -> Sequence[str]:
    """Mark what follows as arguments if one of them is like -2h, which argparse would take for options."""
    first = next((index for index, word in enumerate(words) if re.match(r"-[0-9]", word)), None)
    return words if first is None or "--" in words else [*words[:first], "--", *words[first:]]

"""The command line of `ascend-job`: its commands and arguments, and how an answer becomes an exit status."""

from __future__ import annotations

import functools
import os
import re
import sys
from argparse import ArgumentParser, ArgumentTypeError, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import ascend_runner
from ascend_runner import programs, tool
from ascend_runner.errors import SettingsError
from ascend_runner.platforms.node import HIGHEST_PORT, LOCALHOST
from ascend_runner.settings import parsing
from ascend_runner.settings.parsing import did_you_mean, nearest
from ascend_runner.text import is_whole_number, parse_numbers, quoted
from ascend_runner.tool import commands_of, duration
from ascend_runner.tools.job import commands, jobs
from ascend_runner.tools.job.commands import EVERYTHING, RefusedError
from ascend_runner.tools.job.jobs import UnknownJobError

PROGRAM: Final = programs.JOB
DEFAULT: Final = "status"
FUNCTIONS: Final = {"list": "list_jobs", "logs": "show_logs"}  # of commands with a function of another name
SHELLS: Final = ("bash", "zsh", "fish")
JOB_HELP: Final = "a job id or an unambiguous prefix of one, the pid of one of its processes, "
COMMAND_WIDTH: Final = 14  # cells of a command in the help, with its indentation
LOG_DIR_HELP: Final = "or its log directory"
DEFAULT_HELP: Final = " (default: the job that was started in this directory or below, or else the running one)"
REPORT_TEXT: Final = """\
If the reports of several nodes of a job are in one directory, or are given as several arguments, a table of them is
printed, with the node that is likely the cause of a failure; -o then writes the page of that node."""
EPILOG: Final = """\
exit status:
  0  done; for status, the job is running
  1  the job is not running or refused the request; batch: a command failed;
     explain: no cause is known
  2  usage error, a rank that the job does not have, or a file that cannot be
     read or written
  3  status: the job has succeeded
  4  there is no such job, or its state cannot be determined
  5  status: the job has failed, was stopped, or its runner was killed

Each command has its own help with an example: {program} status --help
"""


Adder = Callable[[str, str, str], ArgumentParser]  # name, summary, example


class HelpFormatter(RawDescriptionHelpFormatter):
    """Shows each command and its summary side by side: argparse does not count the indentation of the longest names."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog)

        self._action_max_length = COMMAND_WIDTH


def make_parser() -> tuple[ArgumentParser, Mapping[str, ArgumentParser]]:
    """Return the parser, and the parsers of the commands by name; see `tool.commands_of`."""
    parser = ArgumentParser(
        prog=programs.command(PROGRAM),
        description="Show the jobs of ascend-runner, running or ended, and control running ones.\n"
        f"The default COMMAND is {DEFAULT}.",
        epilog=EPILOG.format(program=programs.command(PROGRAM)),
        formatter_class=HelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {ascend_runner.__version__}")
    add_to_parser, parsers = commands_of(parser)

    def add(name: str, summary: str, example: str) -> ArgumentParser:
        return add_to_parser(name, getattr(commands, FUNCTIONS.get(name, name)), summary, example)

    _add_viewers(add)
    _add_changers(add)
    _add_others(add)
    return parser, parsers


def _add_viewers(add: Adder) -> None:
    status = add(DEFAULT, "show one job: its state, its ranks and the cause of a failure", "train")
    _add_job(status)
    _add_job(add("top", "show one job and its ranks live, until q is pressed", "train"))
    listed = add("list", "list jobs, running and ended: those of this directory first, the newest last", "train -n 5")
    listed.add_argument("name", metavar="NAME", nargs="?", help="show only the jobs with NAME in their name")
    some = listed.add_mutually_exclusive_group()
    text = "show at most N jobs (default: as many as the terminal has lines)"
    some.add_argument("-n", dest="most", metavar="N", type=job_count, help=text)
    some.add_argument("--all", action="store_true", help="show all jobs")
    for command in (status, listed):
        command.add_argument("--json", action="store_true", help="print JSON")
    _add_logs(add("logs", "show the logs of the ranks of a job", "train -f -r 0,5"))
    _add_stacks(add("stacks", "show what ranks are doing, and which one the others wait for", "train"))
    events = add("events", "show the state changes of a job", "-f train")
    _add_job(events)
    events.add_argument("-f", "--follow", action="store_true", help="wait for further events until the job ends")
    _add_metrics(add("metrics", "print or serve the metrics of a job for Prometheus", "train"))
    _add_report(add("report", "write the report of a job as an HTML file", "train -o train.html"))
    _add_explain(add("explain", "explain an error code, or why a job of any launcher failed, from its logs", "EI0006"))


def _add_report(command: ArgumentParser) -> None:
    command.description = f"{command.description} {REPORT_TEXT}"
    text = f"{JOB_HELP}its log directory, or its JSON report; give several for the nodes of one job"
    command.add_argument("jobs", metavar="JOB", nargs="*", help=text + DEFAULT_HELP)
    text = "the file to write (default: beside the JSON report; none for several nodes)"
    command.add_argument("-o", "--output", metavar="OUT.html", help=text)
    text = "omit arguments, hosts, output, and all variables except those that number the ranks; requires -o"
    command.add_argument("--public", action="store_true", help=text)
    command.add_argument("--json", action="store_true", help="print the table of several nodes as JSON")


def _add_explain(command: ArgumentParser) -> None:
    text = (
        "an error code, exit status or signal (EI0006, 507015, 137, SIGSEGV); or a log, a directory with logs, or - for"
        " standard input; give all logs of a job at once"
    )
    command.add_argument("words", metavar="CODE|LOG", nargs="+", help=text)
    text = "TOML file with this site's own explanations of errors, as for ascend-runner"
    command.add_argument("--catalogue", metavar="FILE", help=text)
    command.add_argument("--json", action="store_true", help="print JSON")


def _add_logs(command: ArgumentParser) -> None:
    _add_job(command)
    text = "show further lines as they are written, until the job ends"
    command.add_argument("-f", "--follow", action="store_true", help=text)
    _add_ranks(command)
    text = "number of lines to show for each rank, or 'all' (default: 10; all with --since or --grep)"
    command.add_argument("-n", "--lines", metavar="LINES", type=line_count, help=text)
    text = "show only the lines of the last DURATION, such as 10m, according to their timestamps"
    command.add_argument("--since", metavar="DURATION", type=duration, help=text)
    text = "show only the lines that match this regular expression"
    command.add_argument("--grep", metavar="PATTERN", type=pattern, help=text)


def _add_stacks(command: ArgumentParser) -> None:
    _add_job(command)
    _add_ranks(command)
    text = "compare the ranks for at most DURATION, until one stands out; 0 takes a single sample"
    help_text = f"{text} (default: 10s)"
    command.add_argument("--for", dest="seconds", metavar="DURATION", type=duration, help=help_text)


def _add_metrics(command: ArgumentParser) -> None:
    _add_job(command)
    ways = command.add_mutually_exclusive_group()
    text = "serve the metrics at http://ADDRESS:PORT/metrics until interrupted (default ADDRESS: 127.0.0.1)"
    ways.add_argument("--listen", metavar="ADDRESS:PORT", type=address, help=text)
    text = "write the metrics to a file in DIR for node-exporter until the job ends"
    ways.add_argument("--textfile", metavar="DIR", help=text)
    text = "time between writes of --textfile (default: 15s)"
    command.add_argument("--every", metavar="DURATION", type=interval, help=text)


def _add_ranks(command: ArgumentParser) -> None:
    command.add_argument("-r", "--ranks", metavar="RANKS", type=rank_ids, help="ranks, such as 0,8-15 (default: all)")


def _add_changers(add: Adder) -> None:
    _add_job(add("checkpoint", "ask the ranks of a running job for a checkpoint", "train"))
    summary = "change the time limit of a running job, without affecting its ranks"
    limit = add("limit", summary, "train +12h")
    _add_job(limit)
    text = "the limit since the start of the job (72h), a change to it (+12h, -90m), or off"
    limit.add_argument("limit", metavar="LIMIT", type=time_limit, help=text)
    _add_job(add("stop", "stop a job, on all nodes if they are linked, as SIGTERM does", "train"))
    _add_job(add("release", "release a job that is held after a failure", "train"))


def _add_others(add: Adder) -> None:
    summary = "run the commands of a file one after another; a second run skips those that have succeeded"
    batch = add("batch", summary, "sweep.txt --keep-going")
    text = (
        "a file with one command per line, preceded by its options for ascend-runner; # starts a comment;"
        " with RESULT set, each command gets a subdirectory of it, so that one tensorboard --logdir shows all"
    )
    batch.add_argument("file", metavar="FILE", help=text)
    batch.add_argument("--keep-going", action="store_true", help="continue after a command has failed")
    summary = "print a completion script for bash, zsh or fish"
    completion = add("completion", summary, "bash")
    completion.add_argument("shell", metavar="|".join(SHELLS), choices=SHELLS, help="the shell")


def _add_job(command: ArgumentParser) -> None:
    command.add_argument("job", metavar="JOB", nargs="?", help=JOB_HELP + LOG_DIR_HELP + DEFAULT_HELP)


def rank_ids(text: str) -> frozenset[int]:
    """Return ranks like "0,8-15"."""
    try:
        return frozenset(parse_numbers(text))
    except ValueError as error:
        raise ArgumentTypeError(f"invalid value {text!r}: {error}") from None


def job_count(text: str) -> int:
    """Return a number of jobs, at least one."""
    try:
        return parsing.count(text)
    except ValueError as error:
        raise ArgumentTypeError(f"invalid value {text!r}, expected {error}") from None


def line_count(text: str) -> int:
    """Return a number of lines."""
    if text == parsing.ALL:
        return EVERYTHING
    if is_whole_number(text):
        return int(text)
    raise ArgumentTypeError(f"invalid value {text!r}: expected a number of lines or {parsing.ALL}")


def interval(text: str) -> float:
    """Return a duration in seconds that is not zero."""
    return duration(text, parsing.positive_seconds)


def address(text: str) -> tuple[str, int]:
    """Return a host, the local one by default, and a port."""
    host, _colon, port = text.rpartition(":")
    if not is_whole_number(port):
        raise ArgumentTypeError(f"invalid value {text!r}: expected PORT or ADDRESS:PORT")
    if int(port) > HIGHEST_PORT:
        raise ArgumentTypeError(f"invalid value {text!r}: expected a port from 0 to {HIGHEST_PORT}")
    return host.strip("[]") or LOCALHOST, int(port)


def pattern(text: str) -> re.Pattern[str]:
    """Return a regular expression."""
    try:
        return re.compile(text)
    except re.error as error:
        raise ArgumentTypeError(f"invalid regular expression {quoted(text)}: {error}") from None


def time_limit(text: str) -> dict[str, float | None]:
    """Return the members of a request for a time limit, or for a change to it."""
    sign = text[:1]
    try:
        if text == parsing.OFF:
            return {"seconds": None}
        if sign in {"+", "-"} and text[1:2].isdigit():
            return {"by": float(f"{sign}1") * parsing.seconds(text[1:])}
        return {"seconds": parsing.seconds(text)}
    except ValueError:
        expected = "a duration such as 72h, a change such as +12h or -90m, or off"
        raise ArgumentTypeError(f"invalid value {text!r}: expected {expected}") from None


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
        tool.tell(PROGRAM, _neither(first, parsers) if is_name else str(error))
        return error.exit_status
    return status


def _neither(word: str, commands: Iterable[str]) -> str:
    """Return the error message for a word that is neither a command nor a job."""
    meant = did_you_mean(word, [*commands, *(job.name for job in jobs.all_jobs(os.environ))])
    hint = f"see {programs.command(PROGRAM)} list, or specify the log directory of the job"
    return f"{word!r} is neither a command nor a job on this machine{meant}; {hint}"


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
    """Insert -- before a word such as -2h, which argparse would take for an option, unlike -9."""
    first = next((index for index, word in enumerate(words) if re.match(r"-[0-9.]+[a-z]", word)), None)
    return words if first is None or "--" in words else [*words[:first], "--", *words[first:]]

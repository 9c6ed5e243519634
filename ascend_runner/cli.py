"""argv and environ to settings, errors to exit statuses. The only module that reads either."""

from __future__ import annotations

import argparse
import contextlib
import os
import time
from typing import TYPE_CHECKING, NoReturn

import ascend_runner
from ascend_runner import errors, reporter
from ascend_runner.job import settings as job_settings
from ascend_runner.launcher import Launcher, launch
from ascend_runner.linux.console import STDERR, STDOUT, Console
from ascend_runner.linux.signals import Signals
from ascend_runner.reporter import Level, Reporter
from ascend_runner.supervision.outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ascend_runner.job.plan import JobSpec
    from ascend_runner.job.settings import Settings


def main(argv: Sequence[str], environ: Mapping[str, str], result_fd: int | None = None) -> int:
    """Run the command line; the exit status. What came of it is written to `result_fd` as well (see result.py)."""
    try:
        with Signals() as signals:
            outcome = _run(argv, dict(environ), signals)
    except errors.AscendRunnerError as error:
        with contextlib.suppress(OSError):  # nobody reads it: the status says what is left to say
            os.write(STDERR, reporter.own_line(Level.ERROR, str(error)))
        _hand_back(error, result_fd)
        return error.exit_status

    _hand_back(outcome, result_fd)
    return outcome.status


def _run(argv: Sequence[str], environ: Mapping[str, str], signals: Signals) -> Outcome:
    flags, command = _parse(argv)
    settings = job_settings.decode(flags, environ)
    if not command:
        raise errors.SettingsError("there is no command to run, expected: ascend-runner [OPTIONS] COMMAND [ARG ...]")

    console = Console(_skipped_notice)
    out = Reporter(console.say, _lowest_level(settings))
    launcher = Launcher(settings, environ, signals, out)
    console.start()
    try:
        if settings.dry_run:
            _print_plan(launcher.prepare(command), environ)
            return Outcome(cause=None, ranks=())
        start, guardian = time.monotonic(), os.getppid()
        outcome, job = launch(command, launcher, console)
        _report(outcome, job, out, seconds=time.monotonic() - start, guardian=guardian)
        return outcome
    finally:
        console.close()


def _hand_back(what: Outcome | errors.AscendRunnerError, fd: int | None) -> None:
    if fd is None:
        return
    from ascend_runner import result  # only for a runner that launch() has started

    with open(fd, "wb") as file:
        file.write(result.encode(what))


def _report(outcome: Outcome, job: JobSpec | None, out: Reporter, *, seconds: float, guardian: int) -> None:
    if job is None:
        out.error(f"{outcome.cause} before any rank was started")
        return
    if os.getppid() != guardian:
        out.warn("the guardian was killed: everything was stopped, but nobody is left to hand the exit status to")
    level = Level.INFO if outcome.cause is None else Level.ERROR
    out.say(level, reporter.ended(outcome, job, seconds))


def _print_plan(job: JobSpec, environ: Mapping[str, str]) -> None:
    import json  # only here: 4 ms

    plan = {
        "job_id": job.job_id,
        "rank_size": job.rank_size,
        "server_id": job.server_id,
        "pod_name": job.pod_name,
        "rank_table": job.table.path if job.table else None,
        "ranks": [
            {
                "rank_id": rank.rank_id,
                "local_rank": rank.local_rank,
                "executable": rank.executable,
                "argv": rank.argv,
                "variables": {name: value for name, value in rank.env.items() if environ.get(name) != value},
                "unset": [name for name in environ if name not in rank.env],
                "cwd": rank.cwd,
                "log": rank.log_path,
            }
            for rank in job.ranks
        ],
    }
    text = json.dumps(plan, indent=2, ensure_ascii=False) + "\n"
    with open(STDOUT, "wb", closefd=False) as out:
        # Words that were no text are surrogates here; escaped with a backslash they are JSON.
        out.write(text.encode(errors="backslashreplace"))


def _lowest_level(settings: Settings) -> Level:
    if settings.quiet:
        return Level.WARNING
    return Level.DEBUG if settings.verbose else Level.INFO


def _skipped_notice(lines: int) -> bytes:
    return reporter.own_line(
        Level.WARNING, f"{lines} lines not shown here, the console is slower than the ranks; the log files are complete"
    )


# --- argv ------------------------------------------------------------------------------------------------------------


class _Parser(argparse.ArgumentParser):
    """argparse, but a wrong flag is a SettingsError and thereby one sentence and status 125."""

    def error(self, message: str) -> NoReturn:
        raise errors.SettingsError(f"{message}; see ascend-runner --help")


class _Formatter(argparse.HelpFormatter):
    """One column of options and one of what they mean, whatever the terminal's width."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=36, width=118)


def _parse(argv: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Split the words into flags by option name, and the training command.

    Parsing stops at the first word that is no option, or at `--`: the command needs no quoting.
    """
    values = vars(_parser().parse_args(argv))
    command: list[str] = values.pop("command")
    if command[:1] == ["--"]:
        command = command[1:]

    return {name: value for name, value in values.items() if value is not None}, command


def _parser() -> _Parser:
    parser = _Parser(
        prog="ascend-runner",
        usage="ascend-runner [OPTIONS] COMMAND [ARG ...]",
        description="Start COMMAND once per Ascend NPU of this node, as the platform's rank table says; keep every"
        " rank's log, stop all at the first failure, leave nothing behind, and name the cause.",
        epilog="A flag beats its variable. Exit status: 0 when every rank exited 0, else that of the first rank to fail"
        " (128 + signal), 128 + signal when told to stop, 125 when the runner itself failed, 126 or 127 when COMMAND"
        " cannot be executed or is not there.  Example: ascend-runner python train.py --epochs 5",
        formatter_class=_Formatter,
        allow_abbrev=False,
        add_help=False,
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    options = parser.add_argument_group("options, each beside its variable")
    for option in job_settings.OPTIONS:
        variable = f" [{option.variable}]" if option.has_variable else ""
        text = (option.help + variable).replace("%", "%%")
        if option.is_switch:
            options.add_argument(option.flag, dest=option.name, help=text, action="store_const", const="1")
        else:
            options.add_argument(option.flag, dest=option.name, help=text, metavar=option.metavar)
    options.add_argument("--version", action="version", version=ascend_runner.__version__, help="show the version")
    options.add_argument("--help", "-h", action="help", help="show this text")
    return parser

"""argv and environ to settings, errors to exit statuses. The only module that reads either."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

import ascend_runner
from ascend_runner import errors, reporter
from ascend_runner.job import command_line
from ascend_runner.job import settings as job_settings
from ascend_runner.launcher import Launcher, launch
from ascend_runner.linux.console import STDERR, Console
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
        os.write(STDERR, reporter.own_line(Level.ERROR, str(error)))
        _hand_back(error, result_fd)
        return error.exit_status

    _hand_back(outcome, result_fd)
    return outcome.status


def _run(argv: Sequence[str], environ: Mapping[str, str], signals: Signals) -> Outcome:
    flags, command = command_line.parse(argv)
    if command_line.HELP in flags or command_line.VERSION in flags:
        _print(command_line.help_text() if command_line.HELP in flags else f"{ascend_runner.__version__}\n")
        return Outcome(cause=None, ranks=())
    settings = job_settings.decode(flags, environ)
    if not command:
        raise errors.SettingsError(f"there is no command to run, expected: {command_line.USAGE}")

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
    _print(json.dumps(plan, indent=2, ensure_ascii=False) + "\n")


def _print(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _lowest_level(settings: Settings) -> Level:
    if settings.quiet:
        return Level.WARNING
    return Level.DEBUG if settings.verbose else Level.INFO


def _skipped_notice(lines: int) -> bytes:
    return reporter.own_line(
        Level.WARNING, f"{lines} lines not shown here, the console is slower than the ranks; the log files are complete"
    )

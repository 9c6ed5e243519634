"""argv and environ to settings, errors to exit statuses, the last words to the screen."""

from __future__ import annotations

import os

import ascend_runner
from ascend_runner import errors, reporter
from ascend_runner.annotations import TYPE_CHECKING, Final
from ascend_runner.errors import StopRequestedError
from ascend_runner.job import command_line
from ascend_runner.job import settings as job_settings
from ascend_runner.launcher import Launcher
from ascend_runner.linux.console import Console
from ascend_runner.linux.guardian import may_write_from_the_background
from ascend_runner.linux.signals import WATCHED, Signals
from ascend_runner.plain_signal import SIG_UNBLOCK, pthread_sigmask
from ascend_runner.reporter import Reporter
from ascend_runner.supervision.outcome import Interrupted, Outcome
from ascend_runner.text import printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ascend_runner.job.plan import JobSpec, RankSpec
    from ascend_runner.job.settings import Settings
    from ascend_runner.reporter import Level

NO_JOB: Final = Outcome(cause=None, ranks=())


def main(argv: Sequence[str], environ: Mapping[str, str], result_fd: int | None = None) -> int:
    """Run the command line; the exit status. What came of it is written to `result_fd` as well (see result.py)."""
    with Signals() as signals:
        console = Console(_skipped_notice, _failure_notice)
        try:
            console.start()
        except errors.AscendRunnerError as error:
            _write_last_words(str(error))
            return error.exit_status
        out = Reporter(console.say)
        result: Outcome | errors.AscendRunnerError
        text = ""
        try:
            named = {name: value for name, value in environ.items() if name}  # "=x" is no variable that can be set
            result, text = _run(argv, named, signals, (console, out))
            status = result.status
        except StopRequestedError as stop:
            out.error(str(stop))
            result = Outcome(Interrupted(stop.signum), ranks=())
            status = stop.exit_status
        except errors.AscendRunnerError as error:
            told = errors.sentences(error)
            if isinstance(error, errors.RankTableFormatError):  # names of a table stand in these
                told = list(map(printable, told))
            out.error("\n  ".join(told))
            result, status = error, error.exit_status
        finally:
            console.close()

    if console.has_lost_text:
        status = errors.RUNNER_FAILED  # what was asked for is not there
    _hand_back(result, result_fd)
    return _print(text) if text else status


def _print(text: str) -> int:
    """Write what was asked for, as cat(1) would: a signal ends it, and a reader may take its time; the exit status."""
    pthread_sigmask(SIG_UNBLOCK, WATCHED)
    may_write_from_the_background()
    try:
        with open(1, "w", errors="backslashreplace", closefd=False) as stdout:  # it may hold what was no text
            stdout.write(text)
    except BrokenPipeError:
        return 0  # whoever reads has seen enough
    except OSError as error:
        _write_last_words(f"standard output cannot be written: {errors.reason(error)}")
        return errors.RUNNER_FAILED
    return 0


def _write_last_words(sentence: str) -> None:
    may_write_from_the_background()
    os.write(2, reporter.own_line("ERROR", sentence))


def _run(
    argv: Sequence[str], environ: Mapping[str, str], signals: Signals, screen: tuple[Console, Reporter]
) -> tuple[Outcome, str]:
    """Do what the words say; what came of it, and what is to be printed where that is all."""
    console, out = screen
    flags, command = command_line.parse(argv)
    if command_line.HELP in flags or command_line.VERSION in flags:
        return NO_JOB, command_line.help_text() if command_line.HELP in flags else f"{ascend_runner.__version__}\n"
    settings = job_settings.decode(flags, environ)
    out.lowest = _lowest_level(settings)
    if settings.check:
        from ascend_runner.check.run import check  # only for a check

        check(settings, environ, tuple(command), (signals, console, out))
        return NO_JOB, ""
    if not command:
        raise errors.SettingsError(f"there is no command to run, expected: {command_line.USAGE}")

    launcher = Launcher(settings, environ, signals, out)
    job = launcher.prepare(command)
    if settings.dry_run:
        return NO_JOB, _plan_text(job, environ)

    guardian = os.getppid()
    outcome = launcher.run(job, console)
    if os.getppid() != guardian:
        out.warn("the guardian was killed: everything was stopped, but nobody is left to hand the exit status to")
    out.say("ERROR" if outcome.cause else "INFO", reporter.ended(outcome, job))
    return outcome, ""


def _hand_back(what: Outcome | errors.AscendRunnerError, fd: int | None) -> None:
    if fd is None:
        return
    from ascend_runner import result  # only for a runner that launch() has started

    with open(fd, "wb") as file:
        file.write(result.encode(what))


def _plan_text(job: JobSpec, environ: Mapping[str, str]) -> str:
    import json  # only here: 4 ms

    plan = {
        "job_id": job.job_id,
        "rank_size": job.rank_size or None,
        "server_id": job.server_id,
        "pod_name": job.pod_name,
        "rank_table": job.table.path if job.table else None,
        "ranks": [
            {
                "rank_id": rank.rank_id,
                "local_rank": rank.local_rank,
                **_process_plan(rank, environ),
            }
            for rank in job.ranks
        ],
        "beside": [{"name": process.name, **_process_plan(process, environ)} for process in job.beside],
        "host_files": [{"path": file.path, "lines": os.fsdecode(file.content).splitlines()} for file in job.host_files],
    }
    text = json.dumps(plan, indent=2, ensure_ascii=False) + "\n"
    # JSON lets DEL and the control characters beyond it stand, and a terminal obeys some of them.
    return "".join(char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1] for char in text)


def _process_plan(process: RankSpec, environ: Mapping[str, str]) -> dict[str, object]:
    from ascend_runner.job.secrets import mask  # only here

    return {
        "executable": process.executable,
        "argv": process.argv,
        "variables": mask({name: value for name, value in process.env.items() if environ.get(name) != value}),
        "unset": [name for name in environ if name not in process.env],
        "cwd": process.cwd,
        **({} if process.cores is None else {"cores": sorted(process.cores)}),
        "log": process.log_path,
    }


def _lowest_level(settings: Settings) -> Level:
    if settings.quiet:
        return "WARNING"
    return "DEBUG" if settings.verbose else "INFO"


def _skipped_notice(lines: int) -> bytes:
    return reporter.own_line(
        "WARNING", f"{lines} lines not shown here, the console did not take them in time: see the log files"
    )


def _failure_notice(error: OSError) -> bytes:
    return reporter.own_line(
        "WARNING", f"standard output cannot be written any more: {errors.reason(error)}; see the log files"
    )

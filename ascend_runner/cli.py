"""The command line: arguments and environment in, exit status out. Errors become messages and statuses here."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Mapping, Sequence
from signal import SIG_UNBLOCK, pthread_sigmask
from typing import TYPE_CHECKING

import attrs

import ascend_runner
from ascend_runner.errors import RUNNER_FAILED, AscendRunnerError, SettingsError, reason
from ascend_runner.guardian.guard import may_write_from_the_background
from ascend_runner.guardian.signal_sets import WATCHED
from ascend_runner.node import terminal
from ascend_runner.problems import RankTableFormatError, problems_of
from ascend_runner.ranks.console import Console
from ascend_runner.ranks.message_format import Level, format_message
from ascend_runner.ranks.messages import Messages
from ascend_runner.ranks.signals import Signals
from ascend_runner.settings import command_line
from ascend_runner.settings.command_line import CommandLine, help_text, usage
from ascend_runner.settings.options import COLOR_ALWAYS, COLOR_AUTO
from ascend_runner.text import printable

if TYPE_CHECKING:
    from ascend_runner.job.launch import Ended
    from ascend_runner.record.rank_record import Outcome
    from ascend_runner.settings.model import Settings


def main(
    argv: Sequence[str],
    environ: Mapping[str, str],
    tell_guardian: Callable[[str], None],
    pass_on: Callable[[Outcome | AscendRunnerError], None] | None = None,
) -> int:
    """Run a command line and return its exit status.

    `tell_guardian` takes lines for the guardian, see `guard.guard`, and `pass_on` the result.
    """
    with Signals(tell_guardian, has_launcher=pass_on is not None) as signals:
        console = Console(_skipped_notice, _failure_notice)
        try:
            console.start()
        except AscendRunnerError as error:
            _write_last_message(str(error))
            return error.exit_status
        try:
            # The kernel accepts "=x", which is not a variable that can be set for a rank.
            variables = {name: value for name, value in environ.items() if name}
            messages = Messages(console.show_message, has_colors=terminal.has_colors(terminal.STDERR, variables))
            ended, text = Program(variables, signals, console, messages).run(argv)
        finally:
            console.close(signals.is_hurried)

    if pass_on and ended:
        pass_on(ended)
    if console.has_lost_text:
        return RUNNER_FAILED
    if text:
        return _print(text)
    return ended.exit_status if ended else 0


@attrs.frozen(eq=False, repr=False)
class Program:
    """The surroundings of a command line: the environment, the signals that stop it, and where its output goes."""

    environ: Mapping[str, str]
    signals: Signals
    console: Console
    messages: Messages

    def run(self, argv: Sequence[str]) -> Ended:
        """Run a command line and report its errors."""
        try:
            return self._run(command_line.parse(argv))
        except AscendRunnerError as error:
            sentences = [str(problem) for problem in problems_of(error)]
            if isinstance(error, RankTableFormatError):  # a name in a table may contain a line break
                sentences = list(map(printable, sentences))
            self.messages.error("\n  ".join(sentences))
            return error, ""

    def _run(self, line: CommandLine) -> Ended:
        if line.help_on is not None:
            return None, help_text(line.help_on)
        if line.wants_version:
            return None, f"{ascend_runner.__version__}\n"
        from ascend_runner.settings.model import decode, unknown_variables  # noqa: PLC0415  as below

        settings = decode(line.values, self.environ)
        self.messages.lowest = _lowest_level(settings)
        self.messages.begins_with_time = settings.timestamps
        if settings.color != COLOR_AUTO:
            self.messages.has_colors = settings.color == COLOR_ALWAYS
        for sentence in unknown_variables(self.environ):
            self.messages.warning(printable(sentence))
        if not (line.command or settings.check):
            raise SettingsError(f"no command given ({usage()})")
        surroundings = self.signals, self.console, self.messages
        if settings.simulate:
            from ascend_runner.job import simulation  # noqa: PLC0415  only --simulate needs it

            simulation.simulate(settings, line, self.environ, surroundings)
            return None, ""
        from ascend_runner.job import launch  # noqa: PLC0415  a usage error or --version needs nothing of a job

        gc.freeze()  # the modules, which were imported without collections, see __main__
        gc.enable()
        return launch.launch(settings, self.environ, line.command, surroundings, ascend_runner.__version__)


def _print(text: str) -> int:
    """Write to standard output like cat(1): blocking, and interruptible by signals. Return the exit status."""
    pthread_sigmask(SIG_UNBLOCK, WATCHED)
    may_write_from_the_background()
    try:
        with open(1, "w", errors="backslashreplace", closefd=False) as stdout:  # arguments may be undecodable bytes
            stdout.write(text)
    except BrokenPipeError:
        return 0  # the reader has seen enough
    except OSError as error:
        _write_last_message(f"cannot write to standard output: {reason(error)}")
        return RUNNER_FAILED
    return 0


def _write_last_message(sentence: str) -> None:
    may_write_from_the_background()
    os.write(terminal.STDERR, format_message(Level.ERROR, sentence))


def _lowest_level(settings: Settings) -> Level:
    if settings.quiet:
        return Level.WARNING
    return Level.DEBUG if settings.verbose else Level.INFO


def _skipped_notice(lines: int) -> bytes:
    return format_message(
        Level.WARNING, f"{lines} lines were not shown because the console was too slow; see the log files"
    )


def _failure_notice(error: OSError) -> bytes:
    return format_message(Level.WARNING, f"cannot write to standard output: {reason(error)}; see the log files")

"""Runs a command as a job, from its preparation to its end; an error on the way is in the report, once there is one."""

from __future__ import annotations

from collections.abc import Sequence

from ascend_runner.errors import AscendRunnerError, LimitReachedError, StopRequestedError
from ascend_runner.launcher.job_runner import JobRunner
from ascend_runner.launcher.launcher import Launcher
from ascend_runner.observations.rank_record import Outcome
from ascend_runner.output.console import Console
from ascend_runner.plan.job import JobSpec
from ascend_runner.preparation.record import Preparation


def prepare(launcher: Launcher, command: Sequence[str], version: str, console: Console) -> Preparation:
    """Prepare a job, see `Launcher.prepare`. If it has begun but cannot run, the hooks for its end run as well.

    Raises:
        SettingsError: The current directory cannot be used.
        StopRequestedError: A stop signal arrived during a wait.
        LimitReachedError: The time limit of the job was reached during a wait.
    """
    try:
        prepared = launcher.prepare(command, version)
    except (StopRequestedError, LimitReachedError) as end:
        _give_up(launcher, end, console)
        raise
    if prepared.error:
        _give_up(launcher, prepared.error, console)
    return prepared


def run(launcher: Launcher, spec: JobSpec, console: Console) -> Outcome:
    """Run a job to its end, which is shown on the screen.

    Raises:
        AscendRunnerError: The runner itself has failed; no rank is alive.
    """
    with launcher.log_dir:
        journal = launcher.begin(spec)
        journal.spec = spec
        runner = JobRunner(launcher, journal, console)
        try:
            journal.staged = launcher.await_staging()
            return runner.run()
        except AscendRunnerError as error:
            runner.fail(error)
            raise


def _give_up(launcher: Launcher, error: AscendRunnerError, console: Console) -> None:
    """Report that a job that was waiting will not run."""
    with launcher.log_dir:
        if launcher.journal:
            JobRunner(launcher, launcher.journal, console).fail(error)

"""Runs a command as a job, from its preparation to its end; an error on the way is in the report, once there is one."""

from __future__ import annotations

from collections.abc import Sequence

from ascend_runner.errors import AscendRunnerError, LimitReachedError, StopRequestedError
from ascend_runner.launcher.job_runner import JobRunner
from ascend_runner.launcher.job_setup import JobSetup
from ascend_runner.observations.rank_record import Outcome
from ascend_runner.output.console import Console
from ascend_runner.plan.job import JobSpec
from ascend_runner.preparation.record import Preparation


def prepare(setup: JobSetup, command: Sequence[str], version: str, console: Console) -> Preparation:
    """Prepare a job, see `JobSetup.prepare`. If it has begun but cannot run, the hooks for its end run as well.

    Raises:
        SettingsError: The current directory cannot be used.
        StopRequestedError: A stop signal arrived during a wait.
        LimitReachedError: The time limit of the job was reached during a wait.
    """
    try:
        prepared = setup.prepare(command, version)
    except (StopRequestedError, LimitReachedError) as end:
        _give_up(setup, end, console)
        raise
    if prepared.error:
        _give_up(setup, prepared.error, console)
    return prepared


def run(setup: JobSetup, spec: JobSpec, console: Console) -> Outcome:
    """Run a job to its end, which is shown on the screen.

    Raises:
        AscendRunnerError: The runner itself has failed; no rank is alive.
    """
    with setup.resources:
        journal = setup.begin(spec)
        journal.spec = spec
        runner = JobRunner(setup, journal, console)
        try:
            journal.staged = setup.await_staging()
            return runner.run()
        except AscendRunnerError as error:
            runner.fail(error)
            raise
        finally:
            setup.signals.refuse_arrived()


def _give_up(setup: JobSetup, error: AscendRunnerError, console: Console) -> None:
    """Report that a job that was waiting will not run."""
    with setup.resources:
        if setup.journal:
            JobRunner(setup, setup.journal, console).fail(error)
            setup.signals.refuse_arrived()

"""Runs a command as a job, from its settings to its end; an error on the way is in the report, once there is one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Union

import attrs

from ascend_runner.errors import AscendRunnerError, LimitReachedError, StopRequestedError
from ascend_runner.job.precheck import Precheck, Subjects
from ascend_runner.job.preparation import Preparation
from ascend_runner.job.runner import JobRunner
from ascend_runner.job.setup import JobSetup
from ascend_runner.plan.spec import JobSpec
from ascend_runner.ranks.console import Console
from ascend_runner.ranks.messages import Messages
from ascend_runner.ranks.signals import Signals
from ascend_runner.record.rank_record import Outcome
from ascend_runner.settings.model import Settings
from ascend_runner.settings.options import PRECHECK_STOP
from ascend_runner.settings.parsing import OFF
from ascend_runner.supervision.causes import SignalReceived

# The outcome, None for --help and --version; and text to print if no job was run.
Ended = tuple[Union[Outcome, AscendRunnerError, None], str]
Surroundings = tuple[Signals, Console, Messages]


def launch(
    settings: Settings,
    environ: Mapping[str, str],
    command: tuple[str, ...],
    surroundings: Surroundings,
    version: str,
) -> Ended:
    """Do what the settings ask for: check the command, show its plan, or run it to its end.

    Raises:
        AscendRunnerError: The job cannot be started, or the runner itself has failed; no rank is alive.
    """
    signals, console, messages = surroundings
    try:
        if settings.check:
            from ascend_runner.job.check import check  # noqa: PLC0415  reads a whole machine; jobs do not need it

            check(settings, environ, command, surroundings)
            return Outcome(cause=None), ""
        setup = JobSetup(settings, environ, signals, messages)
        setup.precheck = _precheck(settings, command, setup)
        setup.resources.callback(setup.end_precheck)
        prepared = prepare(setup, command, version, console)
        if prepared.error:
            return prepared.error, ""
        job = prepared.job()
        if settings.dry_run:
            from ascend_runner.job import dry_run  # noqa: PLC0415  only --dry-run needs it

            return Outcome(cause=None), dry_run.plan_text(prepared, environ)
        return run(setup, job, console), ""
    except StopRequestedError as stop:
        messages.error(str(stop))
        return Outcome(cause=SignalReceived(stop.signum)), ""


def _precheck(settings: Settings, command: tuple[str, ...], setup: JobSetup) -> Precheck | None:
    if settings.precheck == OFF or settings.dry_run:
        return None

    def look() -> Subjects:
        from ascend_runner.job.check import problems_of_this_node  # noqa: PLC0415  as above, and in a thread

        return problems_of_this_node(settings, setup.environ, command)

    can_stop = settings.precheck == PRECHECK_STOP
    return Precheck(look, setup.requests.pass_on, setup.messages, can_stop=can_stop)


def prepare(setup: JobSetup, command: Sequence[str], version: str, console: Console) -> Preparation:
    """Prepare a job, see `JobSetup.prepare`, and show its problems.

    If it cannot run, the other nodes are told and, if it has begun, the hooks for its end run as well.

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
    setup.show(prepared)
    if prepared.error:
        _tell(setup, prepared.outline, prepared.error)
        _give_up(setup, prepared.error, console)
    return prepared


def run(setup: JobSetup, spec: JobSpec, console: Console) -> Outcome:
    """Run a job to its end, which is shown on the screen.

    Raises:
        AscendRunnerError: The runner itself has failed; no rank is alive.
    """
    with setup.resources:
        try:
            writer = setup.begin(spec)
        except AscendRunnerError as error:
            _tell(setup, spec, error)
            raise
        writer.plan(spec)
        runner = JobRunner(setup, writer, console)
        try:
            writer.record = attrs.evolve(writer.record, staged=setup.await_staging())
            return runner.run()
        except AscendRunnerError as error:
            runner.fail(error)
            raise
        finally:
            setup.signals.refuse_arrived()


def _tell(setup: JobSetup, spec: JobSpec | None, error: AscendRunnerError) -> None:
    """Tell the other nodes of an error before this one is linked to them, see `Nodes.fail`."""
    if spec and spec.link:
        from ascend_runner.job import nodes  # noqa: PLC0415  most jobs have one node

        with closing(nodes.Nodes(setup, spec, spec.link)) as others:
            others.open()
            others.fail(error)
            others.leave(error.exit_status)


def _give_up(setup: JobSetup, error: AscendRunnerError, console: Console) -> None:
    """Report that a job that was waiting will not run."""
    with setup.resources:
        if setup.writer:
            JobRunner(setup, setup.writer, console).fail(error)
            setup.signals.refuse_arrived()

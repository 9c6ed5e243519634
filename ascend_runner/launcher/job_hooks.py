"""Runs the hooks of a job: those for checkpoints when the ranks have saved one, the others when its runner asks."""

from __future__ import annotations

from collections.abc import Collection

from ascend_runner.errors import AscendRunnerError
from ascend_runner.launcher.job_setup import JobSetup
from ascend_runner.lifecycle.state import JobState
from ascend_runner.observations.facts import CheckpointEnded, Fact
from ascend_runner.report import checkpoint
from ascend_runner.report.journal import Journal
from ascend_runner.services import hooks
from ascend_runner.services.checkpoint_hooks import CheckpointHooks
from ascend_runner.supervision.state import Phase, State


class JobHooks:
    """The hooks of one job. An observer of the manager's facts."""

    def __init__(self, setup: JobSetup, journal: Journal) -> None:
        self._setup, self._journal = setup, journal
        self._due = {hooks.BEFORE_START, hooks.BEFORE_EXIT}  # events whose hooks may run
        self._for_checkpoints: CheckpointHooks | None = None
        self._why = ""  # the reason of the newest request for a checkpoint

    def begin_attempt(self) -> Collection[int]:
        """Prepare for an attempt. Return the pids of the parents of hooks, in a collection that changes."""
        self._due.add(hooks.AFTER_ATTEMPT)
        for_checkpoints = self._of(hooks.CHECKPOINT)
        if not for_checkpoints.commands:
            return ()

        self._for_checkpoints = CheckpointHooks(for_checkpoints)
        return self._for_checkpoints.pids

    def observe(self, fact: Fact, _at: float) -> None:
        """Run the hooks for a checkpoint, beside the ranks, when one was saved on request."""
        if isinstance(fact, State) and fact.phase is Phase.CHECKPOINTING:
            self._why = checkpoint.why(fact)
        elif isinstance(fact, CheckpointEnded) and fact.parts and self._for_checkpoints:
            saved = checkpoint.member(fact, "")
            path = str(saved["path"])
            variables = hooks.variables(self._journal.spec, self._journal.job, self._journal.report, path)
            self._for_checkpoints.start({**variables, **hooks.of_checkpoint(saved, self._why)})

    def are_due(self, event: str) -> bool:
        """Whether hooks of an event are to run: those of an end run only once, and none after a second stop signal."""
        is_due = event in self._due & dict(self._journal.spec.hooks).keys()
        return is_due and not self._setup.signals.is_hurried()

    def run(self, event: str, newest: str) -> None:
        """Run the hooks of an event; `newest` is the newest complete checkpoint.

        Raises:
            AscendRunnerError: A hook before the start has failed.
            StopRequestedError: A stop signal has arrived, and ended a hook.
        """
        spec, job = self._journal.spec, self._journal.job
        self._due -= {event} - {hooks.BEFORE_START}
        variables = hooks.variables(spec, job, self._journal.report, newest)
        self._journal.flush()  # a hook may read the report and the events
        for problem in self._of(event).run(variables, self._wait):
            if event == hooks.BEFORE_START:
                raise AscendRunnerError(f"{problem}; no {'further attempt' if job.attempt else 'rank'} was started")
            self._setup.messages.warning(problem)

    def end_attempt(self) -> None:
        """Wait for the hooks for checkpoints, unless a second stop signal has arrived.

        Raises:
            StopRequestedError: A stop signal has arrived, and ended them.
        """
        running, self._for_checkpoints = self._for_checkpoints, None
        if running and self._setup.signals.is_hurried():
            running.close()
        elif running:
            running.finish(self._wait)

    def _of(self, event: str) -> hooks.Hooks:
        spec, environ, messages = self._journal.spec, self._setup.environ, self._setup.messages
        return hooks.Hooks(job=spec, event=event, environ=environ, info=messages.info, warn=messages.warning)

    def _wait(self, seconds: float) -> None:
        is_running_on = self._journal.job.state in {JobState.PREPARING, JobState.RESTARTING}
        wait = self._setup.wait_in_time if is_running_on else self._setup.signals.wait_unless_stopped
        wait(seconds)

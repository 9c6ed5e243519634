"""Runs a job: performs what the state machine of `lifecycle` asks for, and answers it with events."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing, suppress
from typing import TYPE_CHECKING, Final

import attrs

from ascend_runner.board import board
from ascend_runner.errors import AscendRunnerError, LimitReachedError, StopRequestedError
from ascend_runner.launcher.job_hooks import JobHooks
from ascend_runner.launcher.job_setup import JobSetup
from ascend_runner.lifecycle.state import Action, Event, JobState, Kind, Verdict
from ascend_runner.manager.managed_node import ManagedNode
from ascend_runner.manager.manager import Manager
from ascend_runner.observations.rank_record import Outcome
from ascend_runner.output.console import Console
from ascend_runner.output.rank_output import HUNG_DISK_LIMIT, RankOutputs
from ascend_runner.plan.attempts import of_attempt, with_checkpoint_requests
from ascend_runner.plan.job import JobSpec
from ascend_runner.preparation import inspection, machine
from ascend_runner.processes.rank_processes import RankProcesses
from ascend_runner.report import causes, checkpoint, holding, screen
from ascend_runner.report.journal import REPORT_LIMIT, Journal
from ascend_runner.report.progress import Progress
from ascend_runner.report.recorder import Recorder
from ascend_runner.services import checkpoint_dir, hooks, run_folder
from ascend_runner.services.heartbeats import receiving
from ascend_runner.supervision.checkpoints import SAVE_BEFORE
from ascend_runner.supervision.events import LimitReached, SignalReceived

if TYPE_CHECKING:
    from ascend_runner.inspection.inspector import Inspector
    from ascend_runner.services.step_reader import StepReader
    from ascend_runner.training.checkpoints import Checkpoints

RELEASE_LIMIT: Final = 0.5  # seconds for the disk with the report of a job that is no longer held


class JobRunner:
    """Runs one job."""

    def __init__(self, setup: JobSetup, journal: Journal, console: Console) -> None:
        self.journal = journal
        self._setup = setup
        self._signals, self._messages = setup.signals, setup.messages
        self._console = console
        self._outcome = Outcome(cause=None, started_at=time.time())  # of the newest attempt
        self._last_failure: Outcome | None = None  # of the newest attempt that another one was to follow
        self._limit = REPORT_LIMIT  # seconds for the disk with the report
        self._checkpoints: Checkpoints | None = None  # before the attempt; None if unknown
        self._hooks = JobHooks(setup, journal)
        self._inspector: Inspector | inspection.NoInspector = inspection.NoInspector()

    def run(self) -> Outcome:
        """Run the job to its end.

        Raises:
            AscendRunnerError: The runner itself has failed; no rank is alive.
        """
        performers: Mapping[Action, Callable[[], Event]] = {
            Action.START: self._start,
            Action.WAIT: self._wait,
            Action.HOLD: self._hold,
            Action.PREPARE: self._prepare_again,
        }
        inspector = inspection.inspector(self.journal.spec, self._setup.environ, self._setup.requests.pass_on)
        self._inspector = self._setup.resources.enter_context(closing(inspector))
        event = self._make(self.journal.spec)
        machine.note_what_is_missing(self.journal.spec, self._messages)
        while actions := self._feed(event):
            try:
                event = performers[actions[0]]()
            except StopRequestedError as stop:
                event = Event(kind=Kind.STOP_REQUESTED, signum=stop.signum, sentence=str(self._stop()))
            except LimitReachedError:
                event = Event(kind=Kind.LIMIT_REACHED, sentence=str(self._limit_reached()))
        self._run_last_hooks()
        return self._outcome

    def fail(self, error: AscendRunnerError) -> None:
        """Report an error of the runner, after the failure of the last attempt if there was one."""
        if self._outcome.cause:
            last = self.journal.with_reruns(self._outcome, self._setup.environ, self._limit)
            self._messages.error(f"the previous attempt failed: {screen.last_failure(last)}")
        self._setup.end_requests()
        self.journal.fail(error)
        self._run_last_hooks()

    def _run_last_hooks(self) -> None:
        """Run the hooks for the end of a job that have not been run. A stop signal ends one of them, not the next."""
        for event in (hooks.AFTER_ATTEMPT, hooks.BEFORE_EXIT):
            with suppress(StopRequestedError):
                self._run_hooks(event)

    # --- Performing ---------------------------------------------------------------------------------------------------

    def _make(self, spec: JobSpec) -> Event:
        """Make what an attempt needs on disk."""
        self._checkpoints = self._look_for_checkpoints()
        newest = self._checkpoints and self._checkpoints.newest
        spec = of_attempt(spec, self.journal.job.attempt, newest.path if newest else "")
        self.journal.spec = spec
        self.journal.spec = self._setup.make(spec)
        self._run_hooks(hooks.BEFORE_START)
        self.journal.note_size()
        return Event(kind=Kind.PREPARED)

    def _start(self) -> Event:
        spec, folder = self.journal.spec, self._setup.run_folder
        recorder = Recorder(spec, self._signals.is_hurried, self._signals.is_stopped)
        progress = Progress(spec, self._messages)
        with ExitStack() as beside:
            run_folder.begin_attempt(folder)
            shown = board.opened(folder, spec, lambda: self._setup.requests.deadline)
            spec = with_checkpoint_requests(spec, folder)
            warn, wake = self._messages.warning, self._signals.wake
            reports = receiving(spec, folder, warn, wake=wake, show_step=shown.store_step)
            spec, heartbeats = beside.enter_context(reports)
            processes = beside.enter_context(closing(RankProcesses(self._hooks.begin_attempt(), self._inspector.pids)))
            self._signals.watch(processes.exits)
            beside.callback(self._signals.unwatch, processes.exits)
            steps = self._read_steps(beside, shown)
            output = RankOutputs(spec, self._console, warn, shown.activities, tap=steps.tap if steps else None)
            node = ManagedNode(
                processes=processes,
                output=output,
                clock=self._signals,
                evidence=recorder.investigation,
                heartbeats=heartbeats,
                requests=self._setup.requests,
            )
            observers = (shown, progress, self.journal, recorder, heartbeats, self._hooks, self._inspector)
            Manager(spec, node, observers=(*observers, steps) if steps else observers).run()
        return self._end_of_attempt(recorder)

    def _read_steps(self, beside: ExitStack, shown: board.Board) -> StepReader | None:
        """Read the steps of the training, and sum up the job at intervals, if an option needs that."""
        if not self.journal.spec.reads_steps:
            return None
        from ascend_runner.board import summary  # noqa: PLC0415  only --perf-* and --summary need these two
        from ascend_runner.services import step_reader  # noqa: PLC0415

        spec, environ, warn = self.journal.spec, self._setup.environ, self._messages.warn_once
        pass_on = self._setup.requests.pass_on
        reading = step_reader.reading(spec, environ, warn, pass_on=pass_on, show_step=shown.store_step)
        steps = beside.enter_context(reading)
        self.journal.last_step = steps.last_step
        beside.enter_context(summary.writing(spec, shown, steps, self._messages.info))
        return steps

    def _hold(self) -> Event:
        """Keep the job, whatever its time limit, until a stop signal arrives. The time includes that of the hooks."""
        end = self._signals.now() + self.journal.job.delay
        self._run_hooks(hooks.AFTER_ATTEMPT)
        self._run_hooks(hooks.BEFORE_EXIT)
        while (left := end - self._signals.now()) > 0:
            self._signals.wait_unless_stopped(left)
        return Event(kind=Kind.RELEASED)

    def _wait(self) -> Event:
        self._run_hooks(hooks.AFTER_ATTEMPT)
        self._setup.pause(self.journal.job.delay)
        return Event(kind=Kind.DELAY_OVER)

    def _prepare_again(self) -> Event:
        machine.await_release(self.journal.spec, self._setup.environ, self._setup.pause, self._messages)
        return self._make(self._setup.prepare_again())

    def _run_hooks(self, event: str) -> None:
        if event == hooks.AFTER_ATTEMPT:
            self._hooks.end_attempt()
        if self._hooks.are_due(event):
            found = self._checkpoints if event == hooks.BEFORE_START else self._look_for_checkpoints()
            self._hooks.run(event, found.newest.path if found and found.newest else "")

    def _look_for_checkpoints(self) -> Checkpoints | None:
        return checkpoint_dir.look(self.journal.spec.checkpoint_dir, self._signals.is_stopped, self._signals.is_hurried)

    # --- Afterwards ---------------------------------------------------------------------------------------------------

    def _end_of_attempt(self, recorder: Recorder) -> Event:
        outcome = recorder.finish(self._messages.warning)
        if isinstance(outcome.cause, SignalReceived):
            outcome = attrs.evolve(outcome, cause=self._signals.received(outcome.cause.signum))
        self._outcome, cause = outcome, outcome.cause
        self._limit = HUNG_DISK_LIMIT if recorder.is_disk_hung else REPORT_LIMIT
        if cause is None or outcome.is_from_outside:
            kind = Kind.LIMIT_REACHED if isinstance(cause, LimitReached) else Kind.ENDED
            return Event(kind=kind, status=outcome.status, sentence=causes.sentence(outcome))
        has_progressed = self._has_progressed()
        restart, fingerprint = recorder.investigation().judge(outcome, has_progressed=has_progressed)
        return Event(
            kind=Kind.ENDED,
            status=outcome.status,
            signum=self._stop().origin,
            restart=restart,
            fingerprint=fingerprint,
            has_progressed=has_progressed,
            is_clear=not recorder.has_survivors,
            is_local=True if self.journal.spec.has_all_ranks else outcome.is_local,
            time_left=self._setup.requests.time_left,
            sentence=causes.sentence_with_doubt(outcome),
        )

    def _has_progressed(self) -> bool | None:
        """Return whether there is a newer checkpoint than before the attempt, or None if that is unknown."""
        spec = self.journal.spec
        if not (spec.checkpoint_dir and (spec.restarts.max_restarts or spec.restarts.gives_verdict)):
            return False
        found = self._look_for_checkpoints()
        return found.is_progress_since(self._checkpoints) if found and self._checkpoints else None

    def _feed(self, event: Event) -> tuple[Action, ...]:
        was_held = self.journal.job.state is JobState.HOLDING
        if was_held:  # the last event has the cause as well
            cause, is_orphaned = causes.sentence_with_doubt(self._outcome), self._stop().launcher != 0
            event = attrs.evolve(event, is_orphaned=is_orphaned, sentence=cause)
        actions = self.journal.feed(event)
        self._setup.requests.note(self.journal.job.state)
        if was_held:
            self._release(event)
        elif event.kind in {Kind.ENDED, Kind.STOP_REQUESTED, Kind.LIMIT_REACHED}:
            self._report(event)
        return actions

    def _release(self, event: Event) -> None:
        """Report that a job is no longer held."""
        self._messages.info(holding.released(event, self.journal.job))
        self._outcome = self._with_report(self._outcome, RELEASE_LIMIT)
        self.journal.write_page(self._messages.debug)

    def _report(self, event: Event) -> None:
        """Report an attempt that has ended, or a job that was stopped between two."""
        job, outcome, environ = self.journal.job, self._outcome, self._setup.environ
        if job.state in {JobState.FAILED, JobState.HOLDING}:
            outcome = self.journal.with_reruns(outcome, environ, self._limit)
        elif event.restart and job.verdict:
            self._messages.warning(holding.attempt_failed(event, job))
        outcome = attrs.evolve(
            outcome,
            warnings=tuple(self._messages.warnings),
            findings=tuple(self.journal.findings.values()),
            last_failure=self._last_failure if outcome.is_from_outside else None,
        )
        if job.state is JobState.RESTARTING:
            self._outcome = self._last_failure = outcome
            self.journal.finish(outcome, environ, self._limit)
            return
        outcome = self._with_report(outcome, self._limit)
        end = self._end_from_outside()
        if end and not outcome.is_from_outside:
            last = self.journal.with_reruns(outcome, environ, self._limit) if outcome.cause else None
            outcome = attrs.evolve(outcome, cause=end, root=None, suspected_peer=None, last_failure=last)
            outcome = self._with_report(outcome, self._limit)
        self._outcome = attrs.evolve(outcome, exit_verdict=job.exit_verdict)
        self._show_end(event)

    def _with_report(self, outcome: Outcome, limit: float) -> Outcome:
        """Write the report of an outcome, and return the outcome with what was written, and where."""
        self.journal.finish(outcome, self._setup.environ, limit)
        writer = self.journal.writer
        return attrs.evolve(outcome, report=writer.newest, report_place=writer.place, report_problem=writer.problem)

    def _show_end(self, event: Event) -> None:
        """Show how the job has ended, and that it is held, or why it is not. This node is no longer inspected."""
        self._inspector.close()
        journal, job, outcome = self.journal, self.journal.job, self._outcome
        show = self._messages.error if outcome.cause else self._messages.result
        if outcome.is_from_outside:
            outcome = attrs.evolve(outcome, seconds=self._signals.now() - self._setup.requests.began)
        text = screen.ended(outcome, journal.spec) + holding.attempts(job)
        if journal.last_checkpoint and isinstance(outcome.cause, SAVE_BEFORE):
            text += f"\n  saved  {checkpoint.last(journal.last_checkpoint)}"
        if job.state is JobState.HOLDING and not event.is_local:
            text += holding.lingering(job)
        elif job.state is JobState.HOLDING:
            way_in = machine.way_in(journal.spec, self._setup.environ)
            text += holding.held(journal.spec, job, journal.held_until, way_in=way_in, pid=os.getppid())
        show(text)
        journal.write_page(self._messages.info)
        if job.policy.hold and not event.is_local:
            self._messages.info(holding.NOT_HELD)

    def _end_from_outside(self) -> SignalReceived | LimitReached | None:
        if self.journal.job.state is JobState.STOPPED:
            return self._stop()
        return self._limit_reached() if self.journal.job.state is JobState.EXPIRED else None

    def _limit_reached(self) -> LimitReached:
        delay = self.journal.job.delay if self.journal.job.verdict is Verdict.NO_TIME else 0.0
        return LimitReached(self._setup.requests.limit or 0.0, delay)

    def _stop(self) -> SignalReceived:
        """Return the first stop signal, as it is seen now: the guardian may have been killed since then."""
        return self._signals.received(self._signals.stop_signum)

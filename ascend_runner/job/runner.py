"""Runs a job: performs what its state machine asks for, answers it with events, and reports how it ends.

The hooks of the job run here as well: those for a checkpoint beside the ranks, the others while no rank runs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from typing import TYPE_CHECKING, Any, Final

import attrs

from ascend_runner.errors import AscendRunnerError, LimitReachedError, StopRequestedError
from ascend_runner.job import preparation
from ascend_runner.job.setup import JobSetup
from ascend_runner.manager.manager import Manager
from ascend_runner.manager.node import ManagedNode
from ascend_runner.node import bounded
from ascend_runner.node.bounded import Patience
from ascend_runner.plan.spec import Attempt, JobSpec, RankSpec
from ascend_runner.ranks.console import Console
from ascend_runner.ranks.output import HUNG_DISK_LIMIT, RankOutputs
from ascend_runner.ranks.processes import RankProcesses
from ascend_runner.record.facts import CheckpointEnded, Fact
from ascend_runner.record.rank_record import Outcome, RankRecord
from ascend_runner.report.journal import REPORT_LIMIT, Journal
from ascend_runner.report.recorder import Recorder
from ascend_runner.services import hooks, live, run_folder
from ascend_runner.services.heartbeats import receiving
from ascend_runner.services.hooks import CheckpointHooks
from ascend_runner.services.live import Live
from ascend_runner.supervision.causes import LimitReached, SignalReceived
from ascend_runner.supervision.job_machine import Action, Event, JobState, Kind, Verdict
from ascend_runner.supervision.state import Phase, State
from ascend_runner.views import facts, screen, wording
from ascend_runner.views.progress import Progress

if TYPE_CHECKING:
    from ascend_runner.services.inspector import Inspector
    from ascend_runner.services.pace import StepReader
    from ascend_runner.training.checkpoints import Checkpoints

LOOK_LIMITS: Final = (12.0, 3.0)  # seconds; a search takes at most 10 s if the disk responds
RELEASE_LIMIT: Final = 0.5  # seconds for the disk with the report of a job that is no longer held


class EndReporter:
    """Reports the ends of the attempts of one job. `outcome` belongs to the newest attempt, then to the job."""

    def __init__(self, setup: JobSetup, journal: Journal) -> None:
        self.outcome = Outcome(cause=None, started_at=time.time())
        self.processes: Sequence[RankSpec] = ()  # of the newest attempt
        self.limit = REPORT_LIMIT  # seconds for the disk with the report
        self._setup, self._journal = setup, journal
        self._signals, self._messages = setup.signals, setup.messages
        self._last_failure: Outcome | None = None  # the newest attempt that was to be followed by another

    def report(self, event: Event) -> None:
        """Report an attempt that has ended, or a job that was stopped between two."""
        job, attempt = self._journal.job, self.outcome
        has_failed = job.state in {JobState.FAILED, JobState.HOLDING}
        if event.restart and job.verdict and not has_failed:
            self._messages.warning(screen.attempt_failed(event, job))
        ranks = self._with_reruns(attempt.ranks) if has_failed else attempt.ranks
        changes: dict[str, Any] = {"last_failure": self._last_failure if attempt.is_from_outside else None}
        end = None if attempt.is_from_outside else self._end_from_outside()
        if end:
            last = attrs.evolve(attempt, ranks=self._with_reruns(attempt.ranks)) if attempt.cause else None
            changes = {"cause": end, "root": None, "suspected_peer": None, "last_failure": last}
        outcome = attrs.evolve(
            attempt,
            ranks=ranks,
            warnings=tuple(self._messages.warnings),
            findings=tuple(self._journal.findings.values()),
            exit_verdict=job.exit_verdict,
            **changes,
        )
        if job.state is JobState.RESTARTING:
            self.outcome = self._last_failure = outcome
            self._journal.finish(outcome, self.limit)
        else:
            self.outcome = self._with_report(outcome, self.limit, attempt)

    def show(self, event: Event) -> None:
        """Show how the job has ended, and that it is held, or why it is not."""
        journal, job, outcome = self._journal, self._journal.job, self.outcome
        show = self._messages.error if outcome.cause else self._messages.result
        began = self._setup.requests.began
        seconds = self._signals.now() - began if outcome.is_from_outside else outcome.seconds
        text = screen.ended(outcome, journal.spec, seconds) + screen.attempts(job)
        if journal.last_checkpoint and outcome.cause and outcome.cause.saves_first:
            text += f"\n  saved  {facts.checkpoint(journal.last_checkpoint)}"
        if job.state is JobState.HOLDING and not event.is_local:
            text += screen.lingering(job)
        elif job.state is JobState.HOLDING:
            way_in = preparation.way_in(journal.spec, self._setup.environ)
            text += screen.held(journal.spec, job, journal.held_until, way_in=way_in, pid=os.getppid())
        show(text)
        journal.write_page(self._messages.info)
        if job.policy.hold and not event.is_local:
            self._messages.info(screen.NOT_HELD)

    def report_release(self, event: Event) -> None:
        """Report that a job is no longer held."""
        self._messages.info(screen.released(event, self._journal.job))
        self.outcome = self._with_report(self.outcome, RELEASE_LIMIT)
        self._journal.write_page(self._messages.debug)

    def report_error(self, error: AscendRunnerError) -> None:
        """Report an error of the runner, after the failure of the last attempt if there was one."""
        if self.outcome.cause:
            last = attrs.evolve(self.outcome, ranks=self._with_reruns(self.outcome.ranks))
            self._messages.error(f"the previous attempt failed: {screen.last_failure(last)}")
        self._setup.end_requests()
        self._journal.fail(error)

    def limit_reached(self) -> LimitReached:
        """Return the time limit as the cause of the end, which may come before a restart."""
        delay = self._journal.job.delay if self._journal.job.verdict is Verdict.NO_TIME else 0.0
        return LimitReached(self._setup.requests.limit or 0.0, delay)

    def _end_from_outside(self) -> SignalReceived | LimitReached | None:
        if self._journal.job.state is JobState.STOPPED:
            return self._signals.first_stop()
        return self.limit_reached() if self._journal.job.state is JobState.EXPIRED else None

    def _with_reruns(self, ranks: Sequence[RankRecord]) -> tuple[RankRecord, ...]:
        """Write the scripts that run ranks again, and return the ranks with the commands."""
        commands = self._journal.write_reruns(self.processes, self._setup.environ, self.limit)
        return tuple(attrs.evolve(rank, rerun=commands.get(rank.rank_id, "")) for rank in ranks)

    def _with_report(self, outcome: Outcome, limit: float, attempt: Outcome | None = None) -> Outcome:
        """Write the report of an outcome, and return the outcome with what was written, and where."""
        self._journal.finish(outcome, limit, attempt)
        writer = self._journal.writer
        return attrs.evolve(outcome, report=writer.newest, report_place=writer.place, report_problem=writer.problem)


class JobHooks:
    """The hooks of one job. An observer of the manager's facts."""

    def __init__(self, setup: JobSetup, journal: Journal) -> None:
        self._setup, self._journal = setup, journal
        self._due = {hooks.BEFORE_START, hooks.BEFORE_EXIT}  # events with hooks that may run
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
            self._why = wording.why(fact)
        elif isinstance(fact, CheckpointEnded) and fact.parts and self._for_checkpoints:
            saved = wording.checkpoint_record(fact, 0.0)
            variables = hooks.variables(self._journal.spec, self._journal.job, self._journal.report, saved.path)
            self._for_checkpoints.start({**variables, **hooks.of_checkpoint(attrs.asdict(saved), self._why)})

    def are_due(self, event: str) -> bool:
        """Whether hooks of an event are to run: at an end only once, and never after a second stop signal."""
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


class JobRunner:
    """Runs one job."""

    def __init__(self, setup: JobSetup, journal: Journal, console: Console) -> None:
        self._setup, self._journal = setup, journal
        self._signals, self._messages = setup.signals, setup.messages
        self._console = console
        self._reporter = EndReporter(setup, journal)
        self._checkpoints: Checkpoints | None = None  # before the attempt; None if unknown
        self._attempt: Attempt | None = None  # the newest; None: none is prepared
        self._hooks = JobHooks(setup, journal)
        self._inspector: Inspector | preparation.NoInspector = preparation.NoInspector()

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
        inspector = preparation.inspector(self._journal.spec, self._setup.environ, self._setup.requests.pass_on)
        self._inspector = self._setup.resources.enter_context(closing(inspector))
        event = self._make(self._journal.spec)
        preparation.note_what_is_missing(self._journal.spec, self._messages)
        while actions := self._feed(event):
            try:
                event = performers[actions[0]]()
            except StopRequestedError as stop:
                event = Event(kind=Kind.STOP_REQUESTED, signum=stop.signum, sentence=str(self._signals.first_stop()))
            except LimitReachedError:
                event = Event(kind=Kind.LIMIT_REACHED, sentence=str(self._reporter.limit_reached()))
        self._run_last_hooks()
        return self._reporter.outcome

    def fail(self, error: AscendRunnerError) -> None:
        """Report an error of the runner, after the failure of the last attempt if there was one."""
        self._reporter.report_error(error)
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
        self._journal.spec = spec = self._setup.make(spec)
        self._attempt = Attempt(spec, self._journal.job.attempt, newest.path if newest else "")
        self._reporter.processes = self._attempt.processes
        self._run_hooks(hooks.BEFORE_START)
        self._journal.note_missing_nodes()
        return Event(kind=Kind.PREPARED)

    def _start(self) -> Event:
        attempt, folder = self._attempt or Attempt(self._journal.spec), self._setup.run_folder
        spec = attempt.job
        recorder = Recorder(spec, self._setup.patience, self._setup.environ, attempt.processes)
        progress = Progress(spec, self._messages, attempt.number)
        with ExitStack() as beside:
            run_folder.begin_attempt(folder)
            shown = Live(spec, recorder, lambda: self._setup.requests.deadline)
            self._setup.requests.show = shown.encode
            warn, wake = self._messages.warning, self._signals.wake
            rank_ids = [rank.rank_id for rank in spec.ranks]
            reports = receiving(rank_ids, folder, warn, wake=wake, show_step=shown.note_step)
            addresses, heartbeats = beside.enter_context(reports)
            processes = beside.enter_context(closing(RankProcesses(self._hooks.begin_attempt(), self._inspector.pids)))
            self._signals.watch(processes.exits)
            beside.callback(self._signals.unwatch, processes.exits)
            steps = self._read_steps(beside, shown)
            output = RankOutputs(attempt, self._console, warn, shown.activities, tap=steps.tap if steps else None)
            node = ManagedNode(
                processes=processes,
                output=output,
                clock=self._signals,
                evidence=recorder.investigation,
                heartbeats=heartbeats,
                requests=self._setup.requests,
            )
            observers = (shown, progress, self._journal, recorder, heartbeats, self._hooks, self._inspector)
            started = attempt.processes_with(folder, addresses)
            Manager(attempt, started, node, (*observers, steps) if steps else observers).run()
        return self._end_of_attempt(recorder)

    def _read_steps(self, beside: ExitStack, shown: Live) -> StepReader | None:
        """Read the steps of the training, and sum up the job at intervals, if an option needs that."""
        if not self._journal.spec.watching.reads_steps:
            return None
        from ascend_runner.services import pace  # noqa: PLC0415  only --perf-* and --summary need it

        spec, environ, warn = self._journal.spec, self._setup.environ, self._messages.warn_once
        pass_on = self._setup.requests.pass_on
        reading = pace.reading(spec, environ, warn, pass_on=pass_on, show_step=shown.note_step)
        steps = beside.enter_context(reading)
        self._journal.last_step = steps.last_step
        beside.enter_context(live.writing(spec, shown, steps, self._messages.info))
        return steps

    def _hold(self) -> Event:
        """Keep the job, whatever its time limit, until a stop signal arrives. The hooks count as part of this time."""
        end = self._signals.now() + self._journal.job.delay
        self._run_hooks(hooks.AFTER_ATTEMPT)
        self._run_hooks(hooks.BEFORE_EXIT)
        while (left := end - self._signals.now()) > 0:
            self._signals.wait_unless_stopped(left)
        return Event(kind=Kind.RELEASED)

    def _wait(self) -> Event:
        self._run_hooks(hooks.AFTER_ATTEMPT)
        self._setup.pause(self._journal.job.delay)
        return Event(kind=Kind.DELAY_OVER)

    def _prepare_again(self) -> Event:
        preparation.await_release(self._journal.spec, self._setup.environ, self._setup.pause, self._messages)
        return self._make(self._setup.prepare_again())

    def _run_hooks(self, event: str) -> None:
        if event == hooks.AFTER_ATTEMPT:
            self._hooks.end_attempt()
        if self._hooks.are_due(event):
            found = self._checkpoints if event == hooks.BEFORE_START else self._look_for_checkpoints()
            self._hooks.run(event, found.newest.path if found and found.newest else "")

    def _look_for_checkpoints(self) -> Checkpoints | None:
        return look_for_checkpoints(self._journal.spec.files.checkpoint_dir, self._setup.patience)

    # --- Afterwards ---------------------------------------------------------------------------------------------------

    def _end_of_attempt(self, recorder: Recorder) -> Event:
        outcome = recorder.finish(self._signals.first_stop)
        cause, self._reporter.outcome = outcome.cause, outcome
        self._reporter.limit = HUNG_DISK_LIMIT if recorder.is_disk_hung else REPORT_LIMIT
        if cause is None or outcome.is_from_outside:
            is_limit = cause is not None and cause.stop_signal is None
            kind = Kind.LIMIT_REACHED if is_limit else Kind.ENDED
            return Event(kind=kind, status=outcome.status, sentence=wording.sentence(outcome))
        has_progressed = self._has_progressed()
        restart, fingerprint = recorder.investigation().judge(outcome, cause, has_progressed=has_progressed)
        return Event(
            kind=Kind.ENDED,
            status=outcome.status,
            signum=self._signals.first_stop().stop_signal,
            restart=restart,
            fingerprint=fingerprint,
            has_progressed=has_progressed,
            is_clear=not recorder.has_survivors,
            is_local=True if self._journal.spec.has_all_ranks else outcome.is_local,
            time_left=self._setup.requests.time_left,
            sentence=wording.sentence_with_certainty(outcome),
        )

    def _has_progressed(self) -> bool | None:
        """Return whether there is a newer checkpoint than before the attempt, or None if that is unknown."""
        spec = self._journal.spec
        if not (spec.files.checkpoint_dir and (spec.restarts.max_restarts or spec.restarts.gives_verdict)):
            return False
        found = self._look_for_checkpoints()
        return found.is_progress_since(self._checkpoints) if found and self._checkpoints else None

    def _feed(self, event: Event) -> tuple[Action, ...]:
        was_held = self._journal.job.state is JobState.HOLDING
        if was_held:  # the last event has the cause as well
            is_orphaned = self._signals.first_stop().launcher != 0
            cause = wording.sentence_with_certainty(self._reporter.outcome)
            event = attrs.evolve(event, is_orphaned=is_orphaned, sentence=cause)
        actions = self._journal.feed(event)
        self._setup.requests.note(self._journal.job.state)
        if was_held:
            self._reporter.report_release(event)
        elif event.kind in {Kind.ENDED, Kind.STOP_REQUESTED, Kind.LIMIT_REACHED}:
            self._reporter.report(event)
            if self._journal.job.state is not JobState.RESTARTING:
                self._inspector.close()
                self._reporter.show(event)
        return actions


def look_for_checkpoints(
    folder: str, patience: Patience, limits: tuple[float, float] = LOOK_LIMITS
) -> Checkpoints | None:
    """Return the checkpoints in a directory, or None if there is no directory or its disk does not respond.

    The next stop signal cuts that short. The second of the `limits` holds once the job was stopped.
    """
    if not folder:
        return None
    from ascend_runner.training import checkpoints  # noqa: PLC0415  only --checkpoint-dir needs it

    found: list[Checkpoints] = []
    is_stopped = patience.is_stopped()
    is_cut = patience.is_hurried if is_stopped else patience.is_stopped
    bounded.call(limits[is_stopped], lambda: found.append(checkpoints.look(folder)), is_cut)
    return found[0] if found else None

"""Runs a job: performs what its state machine asks for, and answers it with events. Its end is in `end`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any

import attrs

from ascend_runner.errors import AscendRunnerError, LimitReachedError, StopRequestedError
from ascend_runner.job import preparation
from ascend_runner.job.end import End
from ascend_runner.job.job_hooks import JobHooks, look_for_checkpoints
from ascend_runner.job.setup import JobSetup
from ascend_runner.manager.manager import Manager
from ascend_runner.manager.node import ManagedNode
from ascend_runner.plan.spec import Attempt, JobSpec
from ascend_runner.ranks.console import Console
from ascend_runner.ranks.output import HUNG_DISK_LIMIT, RankOutputs
from ascend_runner.ranks.processes import RankProcesses
from ascend_runner.record.facts import Fact
from ascend_runner.record.rank_record import Outcome
from ascend_runner.report.job_writer import REPORT_LIMIT, JobWriter
from ascend_runner.report.recorder import Recorder
from ascend_runner.services import hooks, live, run_folder
from ascend_runner.services.hccl_heartbeats import HcclHeartbeats
from ascend_runner.services.heartbeats import Heartbeats, receiving
from ascend_runner.services.live import Live
from ascend_runner.supervision import cloud_events
from ascend_runner.supervision.causes import LimitReached
from ascend_runner.supervision.job_machine import (
    Action,
    AllStarted,
    CheckpointBegun,
    CheckpointOver,
    DelayOver,
    Ended,
    Event,
    Expired,
    Failed,
    Job,
    Prepared,
    StopRequested,
    TeardownBegun,
    transition,
)
from ascend_runner.supervision.state import Phase, State
from ascend_runner.views import screen, wording
from ascend_runner.views.progress import Progress

if TYPE_CHECKING:
    from ascend_runner.job.nodes import Nodes
    from ascend_runner.plan.spec import LinkPlan
    from ascend_runner.services.inspector import Inspector
    from ascend_runner.services.pace import StepReader
    from ascend_runner.training.checkpoints import Checkpoints


class JobRunner:
    """Runs one job. An observer of the manager's facts."""

    def __init__(self, setup: JobSetup, writer: JobWriter, console: Console) -> None:
        self._setup, self._writer = setup, writer
        self._signals, self._messages = setup.signals, setup.messages
        self._console = console
        self._job = Job(policy=writer.spec.restarts)
        self._why = ""  # the reason for the newest request for a checkpoint
        self._checkpoints: Checkpoints | None = None  # before the attempt; None if unknown
        self._attempt: Attempt | None = None  # the newest; None: none is prepared
        self._hooks = JobHooks(setup, writer)
        self._end = End(setup, writer, self._hooks)
        self._nodes: Nodes | None = None  # without a link to other nodes
        self._inspector: Inspector | preparation.NoInspector = preparation.NoInspector()

    def run(self) -> Outcome:
        """Run the job to its end.

        Raises:
            AscendRunnerError: The runner itself has failed; no rank is alive.
        """
        inspector = preparation.inspector(self._writer.spec, self._setup.environ, self._setup.requests.pass_on)
        self._inspector = self._setup.resources.enter_context(closing(inspector))
        self._setup.resources.enter_context(closing(self._end.page))
        self._open_link()
        event = self._make(self._writer.spec)
        preparation.note_what_is_missing(self._writer.spec, self._messages)
        job, actions = self._feed(event)
        while actions and actions != (Action.HOLD,):
            event = self._answer(actions[0])
            job, actions = self._feed(event)
            if isinstance(event, (Ended, Failed, StopRequested, Expired)):
                if self._nodes and self._writer.spec.node_number == 0:
                    self._writer.note_nodes(self._nodes.rows())
                self._end.report(job, event)
        self._inspector.close()
        self._setup.end_precheck()
        outcome = self._end.finish(job, event, self._feed)
        if self._nodes:
            self._nodes.leave(outcome.exit_status)
        return outcome

    def _open_link(self) -> None:
        spec = self._writer.spec
        self._setup.requests.has_other_nodes = spec.nodes[0] > 1 and not spec.is_passed_through
        if spec.link:
            from ascend_runner.job import nodes  # noqa: PLC0415  most jobs have one node

            self._nodes = nodes.Nodes(self._setup, spec, spec.link)
            self._setup.resources.enter_context(closing(self._nodes))
            self._nodes.open()
            self._setup.check_nodes = self._nodes.check

    def fail(self, error: AscendRunnerError) -> None:
        """End the job by an error of the runner."""
        if not self._nodes:
            self._open_link()
        if self._nodes:
            self._nodes.fail(error)
        self._end.fail(error, self.change)
        if self._nodes:
            self._nodes.leave(error.exit_status)

    def observe(self, fact: Fact, _at: float) -> None:
        """Follow the phases of an attempt."""
        if not isinstance(fact, State):
            return
        if fact.is_tearing_down and fact.cause:
            self._signals.expect_end(fact.cause.exit_status)
        was_saving = self._job.state is Phase.CHECKPOINTING
        if fact.phase is Phase.RUNNING:
            self.change(CheckpointOver() if was_saving else AllStarted())
        elif fact.phase in {Phase.TERMINATING, Phase.KILLING}:
            self.change(TeardownBegun(str(fact.cause or "")))
        elif fact.phase is Phase.CHECKPOINTING:
            before, self._why = self._why if was_saving else "", wording.why(fact)
            if not was_saving:
                self.change(CheckpointBegun(self._why))
            elif before != self._why:
                self._writer.note(cloud_events.STOP_PENDING, {"sentence": self._why})

    def change(self, event: Event) -> tuple[Action, ...]:
        """Let an event change the state of the job, and write the change; return the actions to perform."""
        before = self._job.state
        self._job, actions = transition(self._job, event)
        if self._job.state is not before:
            self._writer.change(self._job, event)
        return actions

    def _feed(self, event: Event) -> tuple[Job, tuple[Action, ...]]:
        actions = self.change(event)
        self._setup.requests.note(self._job.state)
        return self._job, actions

    # --- Performing ---------------------------------------------------------------------------------------------------

    def _answer(self, action: Action) -> Event:
        """Perform an action; return the event that answers it."""
        performers = {Action.START: self._start, Action.WAIT: self._wait, Action.PREPARE: self._prepare_again}
        try:
            return performers[action]()
        except StopRequestedError as stop:
            self._end.stopped = self._nodes.stopped() if self._nodes else Outcome(cause=self._signals.first_stop())
            return StopRequested(stop.signum, sentence=str(self._end.stopped.cause))
        except LimitReachedError:
            return Expired(str(self._end.limit_reached(self._job)))

    def _make(self, spec: JobSpec) -> Event:
        """Make what an attempt needs on disk."""
        before, self._checkpoints = self._checkpoints, self._look_for_checkpoints()
        newest = self._checkpoints and self._checkpoints.newest
        if self._checkpoints and self._checkpoints.is_unclear and not (before and before.is_unclear):
            self._messages.warn_once(screen.unclear_checkpoints(spec, self._checkpoints))
        self._plan(spec, newest.path if newest else "")
        self._signals.begin(spec.stopping.grace)
        self._hooks.run(hooks.BEFORE_START, self._checkpoints)
        self._writer.note_missing_nodes()
        if self._nodes:
            self._await_start(self._nodes)
        return Prepared()

    def _plan(self, spec: JobSpec, checkpoint: str) -> None:
        spec = self._setup.make(spec)
        self._writer.plan(spec)
        self._attempt = self._end.page.attempt = Attempt(spec, self._job.attempt, checkpoint)
        self._end.processes = self._attempt.processes

    def _await_start(self, nodes: Nodes) -> None:
        """Wait for the other nodes, which may be at a later attempt, or have another rank table."""

        def read_plan() -> LinkPlan:
            if self._attempt and self._setup.is_table_changed():
                self._plan(self._setup.prepare_again(awaits_table=False), self._attempt.checkpoint)
            return self._writer.spec.link or nodes.plan

        number = nodes.await_start(self._job.attempt, self._writer.spec.link or nodes.plan, read_plan)
        if number != self._job.attempt and self._attempt:
            self._job = attrs.evolve(self._job, attempt=number)
            self._attempt = self._end.page.attempt = attrs.evolve(self._attempt, number=number)

    def _start(self) -> Event:
        attempt = self._attempt or Attempt(self._writer.spec)
        recorder = Recorder(attempt.job, self._setup.patience, self._setup.environ, attempt.processes)
        with ExitStack() as beside:
            run_folder.begin_attempt(self._setup.run_folder)
            if self._nodes:
                self._nodes.begin_attempt(attempt.number)
            self._manager(attempt, recorder, beside).run()
        return self._end_of_attempt(recorder)

    def _manager(self, attempt: Attempt, recorder: Recorder, beside: ExitStack) -> Manager:
        """Set up the loop of an attempt, with what works in `beside` until its end."""
        spec, folder = attempt.job, self._setup.run_folder
        shown = self._show_live(spec, recorder)
        warn, wake = self._messages.warn_once, self._signals.wake
        rank_ids = [rank.rank_id for rank in spec.ranks]
        reports = receiving(rank_ids, folder, warn, wake=wake, show_step=self._show_step(shown))
        addresses, heartbeats = beside.enter_context(reports)
        others = self._hooks.begin_attempt(), self._inspector.pids, self._nodes.pids if self._nodes else ()
        processes = beside.enter_context(closing(RankProcesses(*others)))
        self._signals.watch(processes.exits)
        beside.callback(self._signals.unwatch, processes.exits)
        steps = self._read_steps(beside, shown)
        output = RankOutputs(attempt, self._console, warn, shown.activities, tap=steps.tap if steps else None)
        output.note = self._messages.note
        peers = self._listen_to_hccl(beside, spec, output, heartbeats)
        node = ManagedNode(
            processes=processes,
            output=output,
            clock=self._signals,
            evidence=recorder.investigation,
            heartbeats=heartbeats,
            peer_reports=peers,
            requests=self._setup.requests,
        )
        progress = Progress(spec, self._messages, attempt.number)
        observers = (shown, progress, self, self._writer, self._end.page, recorder, heartbeats, peers, self._hooks)
        last = [one for one in (self._nodes, self._inspector, steps) if one]
        recorder.running = attempt.processes_with(folder, addresses)
        return Manager(attempt, recorder.running, node, (*observers, *last))

    def _show_live(self, spec: JobSpec, recorder: Recorder) -> Live:
        shown = Live(spec, recorder, lambda: self._setup.requests.deadline)
        self._setup.requests.show = shown.encode
        return shown

    def _show_step(self, shown: Live) -> Callable[..., None]:
        """Return what shows a step of the training to viewers, and to the other nodes."""

        def show_step(at: float, step: int | None, *figures: Any) -> None:
            shown.note_step(at, step, *figures)
            if self._nodes:
                self._nodes.note_step(at, step)

        return show_step

    def _listen_to_hccl(
        self, beside: ExitStack, spec: JobSpec, output: RankOutputs, heartbeats: Heartbeats
    ) -> HcclHeartbeats:
        rank_ids = {rank.rank_id for rank in spec.ranks}

        def pulse() -> tuple[float, float]:
            beats = heartbeats.of(rank_ids).values()
            return max((beat.at for beat in beats), default=output.last_activity), heartbeats.announced_until

        found = beside.enter_context(closing(HcclHeartbeats(spec, pulse, self._signals.wake)))
        if self._nodes:
            found.tell_lost = self._nodes.note_lost
        return found

    def _read_steps(self, beside: ExitStack, shown: Live) -> StepReader | None:
        """Read the steps of the training, and sum up the job at intervals, if an option needs that."""
        if not self._writer.spec.watching.reads_steps:
            return None
        from ascend_runner.services import pace  # noqa: PLC0415  only --perf-* and --summary need it

        spec, environ, warn = self._writer.spec, self._setup.environ, self._messages.warn_once
        pass_on = self._setup.requests.pass_on
        reading = pace.reading(spec, environ, warn, pass_on=pass_on, show_step=self._show_step(shown))
        steps = beside.enter_context(reading)
        self._writer.last_step = steps.last_step
        beside.enter_context(live.writing(spec, shown, steps, self._messages.info))
        return steps

    def _wait(self) -> Event:
        self._hooks.run(hooks.AFTER_ATTEMPT)
        if self._nodes:
            self._nodes.prepare(self._job.attempt + 1)
        self._setup.pause(self._job.delay)
        return DelayOver()

    def _prepare_again(self) -> Event:
        preparation.await_release(self._writer.spec, self._setup.environ, self._setup.pause, self._messages)
        awaits_table = self._nodes is None or self._nodes.awaits_replacement
        return self._make(self._setup.prepare_again(awaits_table=awaits_table))

    def _look_for_checkpoints(self) -> Checkpoints | None:
        return look_for_checkpoints(self._writer.spec.files.checkpoint_dir, self._setup.patience)

    # --- Afterwards ---------------------------------------------------------------------------------------------------

    def _end_of_attempt(self, recorder: Recorder) -> Event:
        outcome = recorder.finish(self._signals.first_stop if self._signals.is_stopped() else None)
        if self._nodes:
            outcome = self._nodes.await_end(outcome)
        cause, self._end.outcome = outcome.cause, outcome
        self._end.limit = HUNG_DISK_LIMIT if recorder.is_disk_hung else REPORT_LIMIT
        if cause is None or outcome.is_from_outside:
            sentence = wording.sentence(outcome)
            return Expired(sentence) if isinstance(cause, LimitReached) else Ended(outcome.status, sentence)
        has_progressed = self._has_progressed()
        restart, fingerprint = recorder.investigation().judge(outcome, cause, has_progressed=has_progressed)
        failed = Failed(
            status=outcome.status,
            signum=self._signals.first_stop().stop_signal,
            restart=restart,
            fingerprint=fingerprint,
            has_progressed=has_progressed,
            is_clear=not recorder.has_survivors,
            is_local=True if self._writer.spec.has_all_ranks else outcome.is_local,
            time_left=self._setup.requests.time_left,
            sentence=wording.sentence_with_certainty(outcome),
        )
        return self._agreed(failed, outcome)

    def _agreed(self, failed: Failed, outcome: Outcome) -> Failed:
        """Return the end of an attempt with what the nodes of the job have decided, if there are several."""
        if not self._nodes:
            return failed
        self.change(TeardownBegun(failed.sentence))  # so far, the ranks may have ended by themselves
        failed = self._nodes.confer(failed, outcome)
        verdict = self._nodes.verdict
        outcome = self._end.outcome = attrs.evolve(outcome, verdict=verdict, node=self._nodes.plan.node)
        if verdict and not verdict.is_alone:
            self._writer.note_verdict(verdict)
        return attrs.evolve(failed, sentence=wording.sentence_with_certainty(outcome))

    def _has_progressed(self) -> bool | None:
        """Return whether there is a newer checkpoint than before the attempt, or None if that is unknown."""
        spec = self._writer.spec
        if not (spec.files.checkpoint_dir and (spec.restarts.max_restarts or spec.restarts.gives_verdict)):
            return False
        found = self._look_for_checkpoints()
        return found.is_progress_since(self._checkpoints) if found and self._checkpoints else None

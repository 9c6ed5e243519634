"""The state of a job, and the records of each change: a line of the events, and the report.

The report is written when the job is prepared, and replaced soon after its state has changed (see `write_queue`). It is
therefore always about the newest run: a runner that is killed leaves a report that says, for example, "running". A job
that failed leaves scripts beside it that run its ranks again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, cast

import attrs

from ascend_runner import files
from ascend_runner.errors import AscendRunnerError, LimitReachedError, OutputError, StopRequestedError
from ascend_runner.lifecycle import cloud_events, job_machine
from ascend_runner.lifecycle.job_machine import Action, Event, Job, JobState, Kind
from ascend_runner.node import bounded
from ascend_runner.observations.facts import CheckpointEnded, Fact, LimitChanged
from ascend_runner.observations.rank_record import Outcome
from ascend_runner.plan.spec import JobSpec
from ascend_runner.report import build, checkpoint, clocks, document, health, html_page, reruns
from ascend_runner.report.event_log import EventLog
from ascend_runner.report.report_writer import ReportWriter
from ascend_runner.report.write_queue import TERMINATION_LOG, WriteQueue, write_last_cause
from ascend_runner.supervision.causes import FindingKind, HangDetected, NodeFinding, Rule, Slowdown
from ascend_runner.supervision.events import Spawned
from ascend_runner.supervision.state import Phase, State

if TYPE_CHECKING:
    from ascend_runner.plan.ranks import Staged

_KINDS: Final = {
    Phase.RUNNING: Kind.ALL_STARTED,
    Phase.CHECKPOINTING: Kind.CHECKPOINT,
    Phase.TERMINATING: Kind.TEARDOWN,
    Phase.KILLING: Kind.TEARDOWN,
}
REPORT_LIMIT: Final = 2.0  # seconds for a disk to take the report; the cause is shown only after that


class Journal:
    """Keeps the state of one job. A disk that fails only causes a warning, so that the job keeps its exit status.

    An observer of the manager's facts. `spec` is the plan, without ranks while they are not known.
    """

    def __init__(self, spec: JobSpec, warn: Callable[[str], None], is_cut: Callable[[], bool] = bounded.never) -> None:
        """Once `is_cut` returns true, waiting for a disk that does not respond is cut short."""
        self.spec = spec
        self.job = Job(policy=spec.restarts)
        self.termination_log = TERMINATION_LOG
        self.staged: Sequence[Staged] = ()
        self.last_step: Callable[[], Mapping[str, object] | None] = lambda: None
        self._conditions: dict[tuple[Rule | None, int], Mapping[str, object]] = {}  # in the newest attempt
        self.findings: dict[str, NodeFinding] = {}  # the newest finding about each subject
        self.last_checkpoint: Mapping[str, object] | None = None  # the member of the report
        self._why = ""  # the reason for the newest request for a checkpoint
        self._outcome_of_request = ""  # the result of a request that is over, until an event has recorded it
        self._writes = WriteQueue(warn, is_cut)
        self.writer = ReportWriter(self._writes)
        self._limit = REPORT_LIMIT  # seconds for the disk, as at the end of the newest attempt
        self._page = html_page.PageWriter(WriteQueue(warn, is_cut))  # another thread: no event waits for a page
        self._warn = warn
        self._began = time.time()  # start of the attempt, in seconds since the epoch
        self._events = EventLog(spec, self._writes)
        self.held_until = 0.0  # in seconds since the epoch; 0: the job is not held
        self._ended: Event | None = None  # the end of an attempt that is not among the records yet
        self._attempts: list[Mapping[str, object]] = []  # records of the attempts that have ended
        self._over_at = 0.0  # the end of a job that has ended without an attempt, in seconds since the epoch
        # Composes the members of the newest report about the attempt, with secrets.
        self._base: Callable[[], Mapping[str, object]] = dict
        self._started: dict[int, tuple[int, float]] = {}  # pid and time of the ranks of the newest attempt

    @property
    def report(self) -> Mapping[str, object]:
        """The newest content of the report."""
        return self.writer.newest

    def begin(self, run_file: bytes, spare_path: str = "") -> None:
        """Record that the job is being prepared, and where it runs. `spare_path`: see `ReportWriter`."""
        self.writer.spare_path = spare_path
        self._write_run_file(run_file)
        self._events.write_change(self.job, None)
        self._replace_unfinished()
        self.flush()

    def rename(self, spec: JobSpec, run_file: bytes) -> None:
        """Give the files of a job that is being prepared their final names, now that its rank table is known."""
        before, self.spec = self.spec, spec
        self._events.rename(spec)
        self._write_run_file(run_file)
        self._replace_unfinished()
        self._writes.put(before.log_dir, lambda: files.remove(before.report_path, before.run_path))
        self.flush()

    def _write_run_file(self, content: bytes) -> None:
        path = self.spec.run_path

        def write() -> None:
            with suppress(OutputError):  # the events already warn about a full disk
                files.write_atomically(path, content)

        self._writes.put(path, write)

    def note_missing_nodes(self) -> None:
        """Write a line of the events if an attempt has fewer nodes than it could have."""
        nodes = self.spec.nodes
        if nodes[0] < nodes[1]:
            self._write_note(cloud_events.RESIZED, {"nodes": nodes[0], "nnodes": nodes[1]})

    def observe(self, fact: Fact, _at: float) -> None:
        """Follow the phases of an attempt, and the ranks that are started."""
        if isinstance(fact, Spawned):
            self._started[fact.rank_id] = fact.pid, time.time()
        elif isinstance(fact, LimitChanged):
            self._write_note(cloud_events.LIMIT_CHANGED, {"limit": fact.limit})
        elif isinstance(fact, (HangDetected, Slowdown)):
            self._note_condition(fact)
        elif isinstance(fact, NodeFinding):
            self._note_finding(fact)
        elif isinstance(fact, CheckpointEnded):
            self._outcome_of_request = checkpoint.ended(fact)
            if fact.parts:
                self.last_checkpoint = checkpoint.member(fact, document.iso(time.time()))
        elif isinstance(fact, State) and fact.phase in _KINDS:
            self._follow(fact)
        self._page.observe(fact, self.spec, self.job)

    def _follow(self, state: State) -> None:
        kind, was_saving = _KINDS[state.phase], self.job.state is Phase.CHECKPOINTING
        if kind is Kind.ALL_STARTED and was_saving:
            kind = Kind.CHECKPOINT_OVER
        if kind is not Kind.CHECKPOINT:
            self.feed(Event(kind=kind, sentence=str(state.cause or "")))
            return
        before, self._why = self._why if was_saving else "", checkpoint.why(state)
        if not was_saving:
            self.feed(Event(kind=kind, sentence=self._why))
        elif before != self._why:
            self._write_note(cloud_events.STOP_PENDING, {"sentence": self._why})

    def _note_condition(self, fact: HangDetected | Slowdown) -> None:
        """Begin or end a condition of the job. A training can be slow by several rules, and so can several ranks."""
        key: tuple[Rule | None, int] = None, 0
        if isinstance(fact, Slowdown):
            key = fact.rule, fact.rank_id if fact.rule.is_about_a_rank else 0
        name = cloud_events.SLOW if isinstance(fact, Slowdown) else cloud_events.HANGING
        known = attrs.asdict(fact, filter=lambda field, value: field.name != "is_over" and value not in {None, ""})
        member = document.plain_members({"condition": name, **known, "sentence": str(fact)})
        if fact.is_over:
            self._conditions.pop(key, None)
        else:
            seconds = fact.seconds if isinstance(fact, HangDetected) else 0.0  # since the last output
            self._conditions[key] = {**member, "since": document.iso(time.time() - seconds)}
        self._write_note(cloud_events.OVER % name if fact.is_over else name, member)
        self._replace_unfinished()

    def feed(self, event: Event) -> tuple[Action, ...]:
        """Record an event; return the actions to perform. `finish` follows if the event ends an attempt or the job."""
        before, event = self.job.state, attrs.evolve(event, checkpoint=self._outcome_of_request)
        self.job, actions = job_machine.transition(self.job, event)
        if self.job.state is before:
            return actions
        if self.job.state is JobState.PREPARING:
            self._began = time.time()
            self._started = {}
            self._conditions = {}
        is_held = self.job.state is JobState.HOLDING
        self.held_until = time.time() + self.job.delay if is_held else 0.0
        is_end = event.kind is Kind.ENDED or (event.kind is Kind.LIMIT_REACHED and before in job_machine.OF_AN_ATTEMPT)
        self._ended = event if is_end else None
        is_between = self.job.state.is_final and not is_end and before is not JobState.HOLDING
        self._over_at = time.time() if is_between else 0.0
        self._events.write_change(self.job, event)
        self._outcome_of_request = ""
        if not (self._ended or self.job.state.is_final):
            self._replace_unfinished()
        if self.job.state is Phase.STARTING and self._attempts:
            self.flush(self._limit)  # its ranks, which may read the report, find the attempt before
        return actions

    def fail(self, error: AscendRunnerError) -> None:
        """Record that the runner itself failed, or was stopped before it had started anything."""
        if isinstance(error, StopRequestedError):
            self.feed(Event(kind=Kind.STOP_REQUESTED, signum=error.signum, sentence=str(error)))
        elif isinstance(error, LimitReachedError):
            self.feed(Event(kind=Kind.LIMIT_REACHED, sentence=str(error)))
        else:
            self.feed(Event(kind=Kind.RUNNER_FAILED, status=error.exit_status, sentence=str(error)))
        report = build.with_last_failure(
            build.unfinished(self.spec, self.job.state, self._began, error), self._attempts
        )
        self._replace(lambda: report)
        self._end(REPORT_LIMIT)

    def finish(self, outcome: Outcome, environ: Mapping[str, str], limit: float) -> None:
        """Write the report of an attempt or job that has ended; its disk has `limit` seconds.

        That of an attempt is waited for only before the ranks of the next one start. `environ` is the environment that
        the runner was started with.
        """
        self._limit = limit
        outcome = clocks.with_disk(outcome, self.spec, self._writes, limit)
        if self._ended:
            self._attempts.append(build.attempt(outcome, self.job, self._ended))
            self._ended = None
        attempts = tuple(self._attempts) if outcome.last_failure else ()
        spec = self.spec
        self._replace(lambda: build.with_last_failure(build.build(outcome, spec, environ), attempts))
        self._end(limit)

    def with_reruns(self, outcome: Outcome, environ: Mapping[str, str], limit: float) -> Outcome:
        """Write a script for each rank that runs it again; return the outcome with the commands for those written."""
        done = reruns.write(self.spec, environ, self._writes, limit)
        ranks = tuple(attrs.evolve(rank, rerun=done.get(rank.rank_id, "")) for rank in outcome.ranks)
        return attrs.evolve(outcome, ranks=ranks)

    def write_page(self, tell: Callable[[str], None], limit: float = html_page.LIMIT) -> None:
        """Write the report as HTML if the plan has one for this state, and report its path."""
        if self.job.state in self.spec.html_states:
            self._page.write(self.spec, self.writer, tell, limit)

    def flush(self, limit: float = REPORT_LIMIT) -> None:
        """Wait at most `limit` seconds until everything has been written."""
        self._writes.flush(limit)

    def close(self) -> None:
        """Let the threads end as soon as everything has been written. Does not wait for them.

        If events are missing in their file, a warning says how many.
        """
        loss = self._events.loss()
        if loss and not self._writes.is_closed:
            self._warn(loss)
        self._writes.close()
        self._page.close()

    def _write_note(self, name: str, members: Mapping[str, object]) -> None:
        """Write a line of the events for anything other than a change of state."""
        self._events.write_note(name, {"state": self.job.state.value, "attempt": self.job.attempt, **members})

    def _note_finding(self, finding: NodeFinding) -> None:
        if finding.kind is not FindingKind.NOTICE:
            self.findings[finding.subject] = finding
            if self.job.state is JobState.RESTARTING:
                self._replace(self._base)  # the report is still about the attempt that has failed
            else:
                self._replace_unfinished()
        self._write_note(finding.kind.value, {"sentence": finding.sentence, "is_error": finding.is_error})

    def _end(self, limit: float) -> None:
        """Wait for the report of a job that has ended, and report to Kubernetes how it has."""
        if self.job.state is JobState.RESTARTING:
            return
        self.flush(limit)
        self.writer.write_spare(limit)
        cause = self.report["cause"]
        if isinstance(cause, Mapping):
            bounded.call(limit, partial(write_last_cause, self.termination_log, str(cause["sentence"])))

    def _replace_unfinished(self) -> None:
        started = dict(self._started)
        self._replace(partial(build.unfinished, self.spec, self.job.state, self._began, started=started))

    def _replace(self, compose: Callable[[], Mapping[str, object]]) -> None:
        """Queue a write of the report; `compose` returns its members about the attempt."""
        self._base, over_at = compose, self._over_at
        members = {
            "state": self.job.state.value,
            "status": self.job.status,
            "exit_verdict": self.job.exit_verdict,
            "attempt": self.job.attempt,
            "held_until": document.iso(self.held_until) if self.held_until else "",
            "attempts": tuple(self._attempts),
            "findings": tuple(map(health.member, self.findings.values())),
            **document.plain_members(
                {
                    "staged": self.staged,
                    "conditions": (*self._conditions.values(), *health.conditions(self.findings.values())),
                    "last_step": self._last_step(),
                    "last_checkpoint": self.last_checkpoint,
                }
            ),
        }

        def compose_all() -> Mapping[str, object]:
            report = compose()
            return document.masked({**report, **members, **(build.end(report, over_at) if over_at else {})})

        self.writer.put(self.spec.report_path, compose_all)

    def _last_step(self) -> Mapping[str, object] | None:
        last = self.last_step()
        return last and {**last, "at": document.iso(cast("float", last["at"]))}

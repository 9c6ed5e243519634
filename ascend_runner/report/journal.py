"""The state of a job, and the records of each change: a line of the events, and the report.

The report is written when the job is prepared, and replaced soon after its state has changed (see `writing`). It is
therefore always about the newest run: a runner that is killed leaves a report that says, for example, "running". A job
that failed leaves scripts beside it that run its ranks again.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

import attrs

from ascend_runner import files
from ascend_runner.errors import AscendRunnerError, LimitReachedError, OutputError, StopRequestedError
from ascend_runner.members import plain
from ascend_runner.node import bounded, clock
from ascend_runner.node.bounded import Patience
from ascend_runner.node.clock import Clock
from ascend_runner.plan.spec import JobSpec, RankSpec
from ascend_runner.record.facts import CheckpointEnded, Fact, LimitChanged
from ascend_runner.record.job_record import AttemptRecord, CheckpointRecord, Condition, JobRecord, Staged, StepRecord
from ascend_runner.record.rank_record import Outcome, RankState
from ascend_runner.report import html_page
from ascend_runner.report.recorder import planned
from ascend_runner.report.writing import TERMINATION_LOG, EventLog, ReportWriter, WriteQueue, composed, write_last_cause
from ascend_runner.supervision import cloud_events, job_machine
from ascend_runner.supervision.causes import FindingKind, HangDetected, NodeFinding, Rule, Slowdown
from ascend_runner.supervision.events import Spawned
from ascend_runner.supervision.job_machine import Action, Event, Job, JobState, Kind
from ascend_runner.supervision.state import Phase, State
from ascend_runner.text import printable
from ascend_runner.views import wording

_KINDS: Final = {
    Phase.RUNNING: Kind.ALL_STARTED,
    Phase.CHECKPOINTING: Kind.CHECKPOINT,
    Phase.TERMINATING: Kind.TEARDOWN,
    Phase.KILLING: Kind.TEARDOWN,
}
REPORT_LIMIT: Final = 2.0  # seconds for a disk to take the report; the cause is shown only after that
CLOCK_LIMIT: Final = 0.5  # seconds for a disk to return its time


class Journal:
    """Keeps the state of one job. A disk that fails only causes a warning, so that the job keeps its exit status.

    An observer of the manager's facts. `spec` is the plan, without ranks while they are not known.
    """

    def __init__(self, spec: JobSpec, patience: Patience) -> None:
        self.spec = spec
        self.job = Job(policy=spec.restarts)
        self.termination_log = TERMINATION_LOG
        self.staged: Sequence[Staged] = ()
        self.last_step: Callable[[], Mapping[str, Any] | None] = lambda: None
        self._conditions: dict[tuple[Rule | None, int], Condition] = {}  # in the newest attempt
        self.findings: dict[str, NodeFinding] = {}  # the newest finding about each subject
        self.last_checkpoint: CheckpointRecord | None = None
        self._why = ""  # the reason for the newest request for a checkpoint
        self._outcome_of_request = ""  # the result of a request that is over, until an event has recorded it
        self._writes = WriteQueue(patience)
        self.writer = ReportWriter(self._writes)
        self._limit = REPORT_LIMIT  # seconds for the disk, as at the end of the newest attempt
        self._page = html_page.PageWriter(WriteQueue(patience))  # another thread: no event waits for a page
        self._warn = patience.warn
        self._began = time.time()  # start of the attempt, in seconds since the epoch
        self._events = EventLog(spec, self._writes)
        self.held_until = 0.0  # in seconds since the epoch; 0: the job is not held
        self._ended: Event | None = None  # the end of an attempt that is not among the records yet
        self._attempts: list[AttemptRecord] = []  # attempts that have ended
        self._over_at = 0.0  # the end of a job that has ended without an attempt, in seconds since the epoch
        self._ended_record: JobRecord | None = None  # of the newest attempt or the job, once that has ended
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
        self._write_report()
        self.flush()

    def rename(self, spec: JobSpec, run_file: bytes) -> None:
        """Give the files of a job that is being prepared their final names, now that its rank table is known."""
        before, self.spec = self.spec, spec
        self._events.rename(spec)
        self._write_run_file(run_file)
        self._write_report()
        self._writes.put(before.files.log_dir, lambda: files.remove(before.report_path, before.run_path))
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
            self._outcome_of_request = wording.ended(fact)
            if fact.parts:
                self.last_checkpoint = wording.checkpoint_record(fact, time.time())
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
        before, self._why = self._why if was_saving else "", wording.why(state)
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
        facts = plain(known)
        if fact.is_over:
            self._conditions.pop(key, None)
        else:
            since = time.time() - (fact.seconds if isinstance(fact, HangDetected) else 0.0)  # the last output
            self._conditions[key] = Condition(condition=name, facts=facts, sentence=str(fact), since=since)
        member = {"condition": name, **facts, "sentence": str(fact)}
        self._write_note(cloud_events.OVER % name if fact.is_over else name, member)
        self._write_report()

    def feed(self, event: Event) -> tuple[Action, ...]:
        """Record an event; return the actions to perform. `finish` follows if the event ends an attempt or the job."""
        before, event = self.job.state, attrs.evolve(event, checkpoint=self._outcome_of_request)
        self.job, actions = job_machine.transition(self.job, event)
        if self.job.state is before:
            return actions
        if self.job.state is JobState.PREPARING:
            self._began = time.time()
            self._ended_record = None
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
            self._write_report()
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
        self._over_at = self._over_at or time.time()
        record = attrs.evolve(of_plan(self.spec, self._began), cause=wording.of_error(error))
        self._ended_record = self._with_last_failure(record)
        self._end(REPORT_LIMIT)

    def finish(self, outcome: Outcome, limit: float, attempt: Outcome | None = None) -> None:
        """Write the report of an attempt or job that has ended; its disk has `limit` seconds.

        That of an attempt is waited for only before the ranks of the next one start. `attempt` is the outcome of the
        attempt if something else has ended the job.
        """
        self._limit = limit
        if self._ended:
            self._attempts.append(_attempt(attempt or outcome, self.job, self._ended))
            self._ended = None
        compared = compared_clock(outcome, self.spec, self._writes, limit)
        record = attrs.evolve(of_outcome(outcome, self.spec), clock=compared)
        self._ended_record = self._with_last_failure(record) if outcome.last_failure else record
        self._end(limit)

    def _with_last_failure(self, record: JobRecord) -> JobRecord:
        """Return the record of a job that ended for another reason after a failed attempt, with both in its cause."""
        last = next((attempt.sentence for attempt in reversed(self._attempts) if attempt.verdict), "")
        if not (last and record.cause):
            return record
        sentence = f"{record.cause.sentence}; the previous attempt failed: {last}"
        return attrs.evolve(record, cause=attrs.evolve(record.cause, sentence=sentence))

    def write_reruns(
        self, processes: Sequence[RankSpec], environ: Mapping[str, str], limit: float
    ) -> Mapping[int, str]:
        """Write a script for each rank that runs it again, within `limit` seconds.

        Return the commands of the scripts that were written, by rank.
        """
        from ascend_runner.plan import rerun  # noqa: PLC0415  only failures need it

        written: dict[int, str] = {}
        job = self.spec

        def write() -> None:
            for spec in processes:
                path = job.rerun_path(spec)
                files.write_atomically(path, rerun.script(spec, job, environ), files.SCRIPT_MODE)
                written[spec.rank_id] = f"sh {printable(shlex.quote(path))}"

        self._writes.put(job.files.log_dir, write)
        self._writes.flush(limit)
        return dict(written)  # a copy, because the thread may still be running

    def write_page(self, tell: Callable[[str], None], limit: float = html_page.LIMIT) -> None:
        """Write the report as HTML if the plan has one for this state, and report its path."""
        if self.job.state in self.spec.files.html_states:
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
            self._write_report()  # between two attempts, it is still about the one that has failed
        self._write_note(finding.kind.value, {"sentence": finding.sentence, "is_error": finding.is_error})

    def _end(self, limit: float) -> None:
        """Write the report of an attempt or job that has ended.

        For that of a job, wait, and report to Kubernetes how it has ended.
        """
        self._write_report()
        if self.job.state is JobState.RESTARTING:
            return
        self.flush(limit)
        self.writer.write_spare(limit)
        cause = self.report["cause"]
        if isinstance(cause, Mapping):
            bounded.call(limit, partial(write_last_cause, self.termination_log, str(cause["sentence"])))

    def _write_report(self) -> None:
        """Queue a write of the report as it is now. Its record is made by the thread that writes."""
        ended, spec, began, over_at, last = self._ended_record, self.spec, self._began, self._over_at, self.last_step()
        started = {} if ended else dict(self._started)
        unhealthy = (one for one in self.findings.values() if one.kind is FindingKind.UNHEALTHY)
        facts: dict[str, Any] = {
            "state": self.job.state,
            "status": self.job.status,
            "exit_verdict": self.job.exit_verdict,
            "attempt": self.job.attempt,
            "held_until": self.held_until or None,
            "attempts": tuple(self._attempts),
            "findings": tuple(self.findings.values()),
            "staged": tuple(self.staged),
            "conditions": (*self._conditions.values(), *map(_condition, unhealthy)),
            "last_step": StepRecord(**last) if last else None,
            "last_checkpoint": self.last_checkpoint,
        }

        def compose() -> Mapping[str, object]:
            record = ended or of_plan(spec, began, started)
            seconds = over_at - round(record.started_at, 3) if over_at else record.seconds
            return composed(attrs.evolve(record, **facts, seconds=seconds))

        self.writer.put(spec.report_path, compose)


def of_plan(spec: JobSpec, began: float, started: Mapping[int, tuple[int, float]] = {}) -> JobRecord:
    """Return the record of an attempt that began then, with the ranks that were started: pid and time of each."""
    return JobRecord(
        job_id=spec.job_id,
        node_rank=spec.node_number,
        node_count=spec.nodes[0],
        server_id=spec.server_id,
        pod_name=spec.pod_name,
        platform=spec.platform,
        rank_size=spec.rank_size,
        started_at=began,
        log_dir=spec.files.log_dir,
        rank_table=spec.files.table.path if spec.files.table else "",
        ranks=tuple(
            attrs.evolve(
                planned(rank),
                state=RankState.RUNNING,
                pid=started[rank.rank_id][0],
                started_after=started[rank.rank_id][1] - began,
            )
            for rank in spec.processes
            if rank.rank_id in started
        ),
        framework=spec.framework,
        runner_version=spec.runner_version,
    )


def of_outcome(outcome: Outcome, spec: JobSpec) -> JobRecord:
    """Return the record of an attempt that has ended."""
    return attrs.evolve(
        of_plan(spec, outcome.started_at),
        status=outcome.status,
        seconds=outcome.seconds,
        cause=wording.cause_record(outcome),
        ranks=outcome.ranks,
        hang=outcome.hang,
        clock=outcome.clock,
        warnings=outcome.warnings,
        secrets_masked=outcome.secrets_masked,
    )


def compared_clock(outcome: Outcome, spec: JobSpec, writes: WriteQueue, limit: float) -> Clock | None:
    """Return the clock, compared with the clock of the logs' disk after a failure of one of several nodes.

    The result has no time of a disk that does not respond within CLOCK_LIMIT, or within `limit` if that is less.
    """
    if outcome.clock is None or outcome.cause is None or spec.nodes[0] == 1:
        return outcome.clock
    found: list[tuple[float, float]] = []

    def compare() -> None:
        with suppress(OSError):
            if clock.is_of_disk(spec.report_path):
                found.append(clock.compare_with_disk(spec.report_path))

    writes.put(spec.report_path, compare)
    writes.wait(min(limit, CLOCK_LIMIT))
    offset, round_trip = found[0] if found else (None, None)
    return attrs.evolve(outcome.clock, disk_offset=offset, disk_round_trip=round_trip)


def _attempt(outcome: Outcome, job: Job, ended: Event) -> AttemptRecord:
    """Return the record of an attempt from its outcome, its end, and the job after that."""
    return AttemptRecord(
        attempt=job.attempt,
        started_at=outcome.started_at,
        seconds=outcome.seconds,
        cause=wording.cause_record(outcome),
        status=ended.status,
        fingerprint=ended.fingerprint,
        restart=ended.restart,
        progress=ended.has_progressed,
        verdict=job.verdict,
        delay=job.delay,
        log_starts={rank.rank_id: rank.log_start for rank in outcome.ranks},
    )


def _condition(finding: NodeFinding) -> Condition:
    facts = {"is_error": finding.is_error}
    return Condition(condition=finding.kind.value, sentence=finding.sentence, since=finding.at, facts=facts)

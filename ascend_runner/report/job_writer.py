"""The record of a job, and each change of it: a line of the events, and the report.

The report is written when the job is prepared, and replaced soon after its state has changed (see `writing`). It is
therefore always about the newest run: a runner that is killed leaves a report that says, for example, "running".
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import attrs

from ascend_runner import files
from ascend_runner.errors import AscendRunnerError, OutputError
from ascend_runner.members import plain
from ascend_runner.node import bounded, versions
from ascend_runner.node.bounded import Patience
from ascend_runner.node.host import Host
from ascend_runner.plan.spec import JobSpec
from ascend_runner.record.facts import CheckpointEnded, Fact, HangSeen, LimitChanged
from ascend_runner.record.job_record import AttemptRecord, Condition, JobRecord, StepRecord
from ascend_runner.record.rank_record import Outcome, RankState
from ascend_runner.report.recorder import planned
from ascend_runner.report.writing import TERMINATION_LOG, EventLog, ReportWriter, WriteQueue, composed, write_last_cause
from ascend_runner.supervision import cloud_events
from ascend_runner.supervision.causes import FindingKind, HangDetected, NodeFinding, Rule, Slowdown
from ascend_runner.supervision.events import Spawned
from ascend_runner.supervision.job_machine import Event, Job, JobState
from ascend_runner.supervision.state import Phase
from ascend_runner.views import wording

if TYPE_CHECKING:
    from ascend_runner.record.nodes import JobVerdict, NodeRecord

REPORT_LIMIT: Final = 2.0  # seconds for a disk to take the report; the cause is shown only after that
SOFTWARE_LIMIT: Final = 0.5  # seconds of these for the disk with the ranks' Python; 1 ms if it responds
# Of a verdict, in the events; a line of them has no room for the end of a log.
OF_A_VERDICT: Final = ("node", "rank_id", "kind", "certainty", "status", "tied", "missing", "restarts")
_OF_THE_JOB: Final = ("attempts", "findings", "staged", "last_step", "last_checkpoint")  # kept from attempt to attempt


class JobWriter:
    """Writes the record of one job. A disk that fails only causes a warning, so that the job keeps its exit status.

    An observer of the manager's facts. `spec` is the plan, without ranks while they are not known.
    """

    def __init__(self, spec: JobSpec, patience: Patience) -> None:
        self.spec = spec
        self.record = of_plan(spec, time.time())  # of the newest attempt, or of the job once that has ended
        self.writes = WriteQueue(patience)
        self.reports = ReportWriter(self.writes)
        self.termination_log = TERMINATION_LOG
        self.last_step: Callable[[], Mapping[str, Any] | None] = lambda: None
        self._conditions: dict[tuple[Rule | None, int], Condition] = {}  # in the newest attempt
        self._outcome_of_request = ""  # the result of a request that is over, until an event has recorded it
        self._limit = REPORT_LIMIT  # seconds for the disk, as at the end of the newest attempt
        self._software: Mapping[str, str] | None = None  # None: not read yet
        self._warn = patience.warn
        self._events = EventLog(spec, self.writes)
        self._over_at = 0.0  # the end of a job that has ended without an attempt, in seconds since the epoch

    def begin(self, run_file: bytes, spare_path: str = "") -> None:
        """Record that the job is being prepared, and where it runs. `spare_path`: see `ReportWriter`."""
        self.reports.spare_path = spare_path
        self._write_run_file(run_file)
        self._events.write_change(Job(policy=self.spec.restarts), None)
        self._write_report()
        self.flush()

    def plan(self, spec: JobSpec) -> None:
        """Continue with a more complete plan of the job."""
        self.spec = spec
        self.record = attrs.evolve(self.record, **_of_spec(spec))

    def rename(self, spec: JobSpec, run_file: bytes) -> None:
        """Give the files of a job that is being prepared their final names, now that its rank table is known."""
        before = self.spec
        self.plan(spec)
        self._events.rename(spec)
        self._write_run_file(run_file)
        self._write_report()
        self.writes.put(before.files.log_dir, lambda: files.remove(before.report_path, before.run_path))
        self.flush()

    def _write_run_file(self, content: bytes) -> None:
        path = self.spec.run_path

        def write() -> None:
            with suppress(OutputError):  # the events already warn about a full disk
                files.write_atomically(path, content)

        self.writes.put(path, write)

    def change(self, job: Job, event: Event) -> None:
        """Write the change that has led to `job`. `finish` or `fail` follows if it ends an attempt or the job."""
        before, now = self.record.state, time.time()
        if job.state is JobState.PREPARING:
            kept = {name: getattr(self.record, name) for name in _OF_THE_JOB}
            self.record, self._conditions = attrs.evolve(of_plan(self.spec, now), **kept), {}
        self.record = attrs.evolve(
            self.record,
            state=job.state,
            status=job.status,
            exit_verdict=job.exit_verdict,
            attempt=job.attempt,
            held_until=now + job.delay if job.state is JobState.HOLDING else None,
        )
        if job.state.is_final and before in {JobState.PREPARING, JobState.RESTARTING}:
            self._over_at = now
        saved = {"checkpoint": self._outcome_of_request} if self._outcome_of_request else {}
        self._events.write_change(job, event, saved)
        self._outcome_of_request = ""
        if not (job.state.is_final or job.state in {JobState.RESTARTING, JobState.HOLDING}):
            self._write_report()
        if job.state is Phase.STARTING and self.record.attempts:
            self.flush(self._limit)  # its ranks, which may read the report, find the attempt before

    def observe(self, fact: Fact, _at: float) -> None:
        """Record the ranks that start, and what else happens during an attempt."""
        if isinstance(fact, Spawned):
            self._note_start(fact)
        elif isinstance(fact, LimitChanged):
            self.note(cloud_events.LIMIT_CHANGED, {"limit": fact.limit})
        elif isinstance(fact, (HangDetected, Slowdown)):
            self._note_condition(fact)
        elif isinstance(fact, HangSeen):
            self.record = attrs.evolve(
                self.record, hang=fact.stacks, collectives=fact.collectives, no_collectives=fact.no_collectives
            )
            self.note(cloud_events.STACKS, {"sentence": wording.places(fact.stacks)})
            self._write_report()
        elif isinstance(fact, NodeFinding):
            self._note_finding(fact)
        elif isinstance(fact, CheckpointEnded):
            self._outcome_of_request = wording.ended(fact)
            if fact.parts:
                self.record = attrs.evolve(self.record, last_checkpoint=wording.checkpoint_record(fact, time.time()))

    def note(self, name: str, members: Mapping[str, object]) -> None:
        """Write a line of the events for anything other than a change of state."""
        state = self.record.state or JobState.PREPARING
        self._events.write_note(name, {"state": state.value, "attempt": self.record.attempt, **members})

    def note_verdict(self, verdict: JobVerdict) -> None:
        """Write a line of the events for the verdict that the nodes of the job have reached on an attempt."""
        members = {name: getattr(verdict, name) for name in OF_A_VERDICT}
        self.note(cloud_events.VERDICT, {**members, "sentence": str(verdict)})

    def note_nodes(self, nodes: tuple[NodeRecord, ...]) -> None:
        """Record the nodes of the job as they are at the end of an attempt, before its report is written."""
        self.record = attrs.evolve(self.record, nodes=nodes)

    def note_missing_nodes(self) -> None:
        """Write a line of the events if an attempt has fewer nodes than it could have."""
        nodes = self.spec.nodes
        if nodes[0] < nodes[1]:
            self.note(cloud_events.RESIZED, {"nodes": nodes[0], "nnodes": nodes[1]})

    def _note_start(self, fact: Spawned) -> None:
        plan = next(rank for rank in self.spec.processes if rank.rank_id == fact.rank_id)
        after = time.time() - self.record.started_at
        started = attrs.evolve(planned(plan), state=RankState.RUNNING, pid=fact.pid, started_after=after)
        self.record = attrs.evolve(self.record, ranks=(*self.record.ranks, started))

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
        self.note(cloud_events.OVER % name if fact.is_over else name, member)
        self._write_report()

    def _note_finding(self, finding: NodeFinding) -> None:
        if finding.kind not in {FindingKind.NOTICE, FindingKind.PRECHECKED}:
            findings = {one.subject: one for one in (*self.record.findings, finding)}
            self.record = attrs.evolve(self.record, findings=tuple(findings.values()))
            self._write_report()  # between two attempts, it is still about the one that has failed
        self.note(finding.kind.value, {"sentence": finding.sentence, "is_error": finding.is_error})

    def finish(self, outcome: Outcome, limit: float, attempt: AttemptRecord | None = None) -> None:
        """Write the report of an attempt or job that has ended; `attempt` is the record of its last attempt.

        The disk has `limit` seconds. If another attempt follows, the report is awaited only before its ranks start.
        """
        self._limit = limit
        record = of_outcome(outcome, self.record)
        seconds = self._over_at - round(record.started_at, 3) if self._over_at else record.seconds
        self.record = attrs.evolve(
            record, seconds=seconds, attempts=(*record.attempts, *((attempt,) if attempt else ()))
        )
        self._end(limit, after_failure=outcome.last_failure is not None)

    def fail(self, error: AscendRunnerError) -> None:
        """Write the report of a job that an error of the runner, a stop signal or its time limit has ended."""
        record, cause = self.record, wording.of_error(error)
        seconds = (self._over_at or time.time()) - round(record.started_at, 3)
        self.record = of_outcome(Outcome(cause=None, started_at=record.started_at, seconds=seconds), record)
        self.record = attrs.evolve(self.record, cause=cause)
        self._end(REPORT_LIMIT, after_failure=True)

    def _end(self, limit: float, *, after_failure: bool) -> None:
        """Write the report of an attempt or job that has ended. If a failed attempt came before, the cause names both.

        At the end of the job, wait for the disk, and report the cause to Kubernetes.
        """
        last = next((attempt.sentence for attempt in reversed(self.record.attempts) if attempt.verdict), "")
        if after_failure and last and self.record.cause:
            sentence = f"{self.record.cause.sentence}; the previous attempt failed: {last}"
            self.record = attrs.evolve(self.record, cause=attrs.evolve(self.record.cause, sentence=sentence))
        self._write_report()
        if self.record.state is JobState.RESTARTING:
            return
        self.flush(limit)
        self.reports.write_spare(limit)
        cause = self.reports.newest["cause"]
        if isinstance(cause, Mapping):
            bounded.call(limit, partial(write_last_cause, self.termination_log, str(cause["sentence"])))

    def _write_report(self) -> None:
        """Queue a write of the report as it is now; the thread that writes composes it."""
        last = self.last_step()
        unhealthy = (one for one in self.record.findings if one.kind is FindingKind.UNHEALTHY)
        conditions = (*self._conditions.values(), *map(_condition, unhealthy))
        step = StepRecord(**last) if last else None
        self.record = attrs.evolve(self.record, conditions=conditions, last_step=step)
        self.reports.put(self.spec.report_path, partial(self._compose, self.record))

    def _compose(self, record: JobRecord) -> Mapping[str, object]:
        """Compose a report in the thread that writes it; once ranks were started, with the versions of their software.

        A rank waits for neither, and a disk that hangs delays the first of these reports only.
        """
        rank = next(iter(self.spec.processes), None)
        if record.ranks and self._software is None and rank and rank.executable:
            read = partial(versions.of_rank, Host(), rank.executable, rank.env, rank.cwd)
            self._software = bounded.on_disk(SOFTWARE_LIMIT, read) or {}
        return composed(attrs.evolve(record, software=self._software or {}))

    def flush(self, limit: float = REPORT_LIMIT) -> None:
        """Wait at most `limit` seconds until everything has been written."""
        self.writes.flush(limit)

    def close(self) -> None:
        """Let the thread end as soon as everything has been written. Does not wait for it.

        If events are missing in their file, a warning says how many, unless one says that its disk is gone.
        """
        loss = self._events.loss()
        if loss and not (self.writes.is_closed or self.writes.has_lost_disk):
            self._warn(loss)
        self.writes.close()


def of_plan(spec: JobSpec, began: float) -> JobRecord:
    """Return the record of an attempt that began then, before any rank was started."""
    return JobRecord(state=JobState.PREPARING, started_at=began, **_of_spec(spec))


def _of_spec(spec: JobSpec) -> dict[str, Any]:
    """Return the members of a record that the plan gives."""
    return {
        "job_id": spec.job_id,
        "node_rank": spec.node_number,
        "node_count": spec.nodes[0],
        "server_id": spec.server_id,
        "pod_name": spec.pod_name,
        "platform": spec.platform,
        "rank_size": spec.rank_size,
        "log_dir": spec.files.log_dir,
        "rank_table": spec.files.table.path if spec.files.table else "",
        "framework": spec.framework,
        "runner_version": spec.runner_version,
    }


def of_outcome(outcome: Outcome, record: JobRecord) -> JobRecord:
    """Return the record of an attempt that has ended, from the one before its end."""
    return attrs.evolve(
        record,
        started_at=outcome.started_at,
        seconds=outcome.seconds,
        cause=wording.cause_record(outcome),
        ranks=outcome.ranks,
        hang=outcome.hang,
        collectives=outcome.collectives,
        warnings=outcome.warnings,
        secrets_masked=outcome.secrets_masked,
        verdict=outcome.verdict,
    )


def _condition(finding: NodeFinding) -> Condition:
    facts = {"is_error": finding.is_error}
    return Condition(condition=finding.kind.value, sentence=finding.sentence, since=finding.at, facts=facts)

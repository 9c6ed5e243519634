"""The end of an attempt or a job: the report first, then screen, page, hooks, hold and exit status.

A job that has failed leaves scripts beside its report that run its ranks again.
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import attrs

from ascend_runner import files
from ascend_runner.errors import AscendRunnerError, LimitReachedError, StopRequestedError
from ascend_runner.job import preparation
from ascend_runner.job.job_hooks import JobHooks
from ascend_runner.job.setup import JobSetup
from ascend_runner.plan.spec import RankSpec
from ascend_runner.record.job_record import AttemptRecord
from ascend_runner.record.rank_record import Outcome, RankRecord
from ascend_runner.report import html_page
from ascend_runner.report.html_page import PageWriter
from ascend_runner.report.job_writer import REPORT_LIMIT, JobWriter
from ascend_runner.report.writing import WriteQueue
from ascend_runner.services import hooks
from ascend_runner.supervision.causes import Cause, LimitReached
from ascend_runner.supervision.job_machine import (
    Event,
    Expired,
    Failed,
    Job,
    JobState,
    Released,
    RunnerFailed,
    StopRequested,
    Verdict,
)
from ascend_runner.text import printable
from ascend_runner.views import facts, screen, wording

RELEASE_LIMIT: Final = 0.5  # seconds for the disk with the report of a job that is no longer held


class End:
    """Ends the attempts of one job, and then the job. `outcome` belongs to the newest attempt, and then to the job."""

    def __init__(self, setup: JobSetup, writer: JobWriter, job_hooks: JobHooks) -> None:
        self.outcome = Outcome(cause=None, started_at=time.time())
        self.stopped: Outcome | None = None  # by a stop signal between two attempts
        self.processes: Sequence[RankSpec] = ()  # of the newest attempt
        self.limit = REPORT_LIMIT  # seconds for the disk with the report
        self.page = PageWriter(WriteQueue(setup.patience))  # another thread: no event waits for a page
        self._setup, self._writer, self._hooks = setup, writer, job_hooks
        self._signals, self._messages = setup.signals, setup.messages
        self._reported = self.outcome  # the newest that is in the report
        self._last_failure: Outcome | None = None  # the newest attempt that was to be followed by another

    def report(self, job: Job, event: Event) -> None:
        """Report an attempt that has ended, or a job that was stopped between two."""
        attempt, has_failed = self.outcome, job.state in {JobState.FAILED, JobState.HOLDING}
        if isinstance(event, Failed) and job.verdict and not has_failed:
            self._messages.warning(screen.attempt_failed(event, job))
        ranks = self._with_reruns(attempt) if has_failed else attempt.ranks
        changes: dict[str, Any] = {"last_failure": self._last_failure if attempt.is_from_outside else None}
        end = None if attempt.is_from_outside else self._from_outside(job)
        if end:
            last = attrs.evolve(attempt, ranks=self._with_reruns(attempt)) if attempt.cause else None
            verdict = self.stopped.verdict if self.stopped else None
            changes = {"cause": end, "verdict": verdict, "root": None, "suspected_peer": None, "last_failure": last}
        record = None if attempt is self._reported else _record(attempt, job, event)
        self.outcome = self._reported = attrs.evolve(
            attempt,
            ranks=ranks,
            warnings=tuple(self._messages.warnings),
            findings=self._writer.record.findings,
            exit_verdict=job.exit_verdict,
            **changes,
        )
        if job.state in {JobState.RESTARTING, JobState.HOLDING}:
            self._signals.begin(self._writer.spec.stopping.grace)  # it is not ending yet
        else:
            self._signals.expect_end(self.outcome.exit_status)
        self._writer.finish(self.outcome, self.limit, record)
        if job.state is JobState.RESTARTING:
            self._last_failure = self.outcome

    def finish(self, job: Job, event: Event, feed: Callable[[Event], tuple[Job, object]]) -> Outcome:
        """Show the end of a job that was reported, write its page, run its hooks, and keep it as long as it is held.

        `feed` changes the state of the job. Return the outcome, with what was written, and where.
        """
        self._take_report()
        self._show(job, event)
        self._write_page(job, self._messages.info)
        if job.policy.hold and isinstance(event, Failed) and not event.is_local:
            self._messages.info(screen.NOT_HELD)
        if job.state is JobState.HOLDING:
            released = self._hold(job)
            self._signals.expect_end(self.outcome.exit_status)
            job, _actions = feed(released)
            self._messages.info(screen.released(released, job))
            self._writer.finish(self.outcome, RELEASE_LIMIT)
            self._take_report()
            self._write_page(job, self._messages.debug)
        self._hooks.run_last()
        return self.outcome

    def fail(self, error: AscendRunnerError, feed: Callable[[Event], object]) -> None:
        """End a job by an error of the runner, and show the failure of the last attempt if there was one."""
        if self.outcome.cause:
            last = attrs.evolve(self.outcome, ranks=self._with_reruns(self.outcome))
            self._messages.error(f"the previous attempt failed: {screen.last_failure(last)}")
        self._setup.end_requests()
        feed(_of_error(error))
        self._writer.fail(error)
        self._hooks.run_last()

    def limit_reached(self, job: Job) -> LimitReached:
        """Return the time limit as the cause of the end, which may come before a restart."""
        delay = job.delay if job.verdict is Verdict.NO_TIME else 0.0
        return LimitReached(self._setup.requests.limit or 0.0, delay)

    def _from_outside(self, job: Job) -> Cause | None:
        if job.state is JobState.STOPPED:
            return self.stopped.cause if self.stopped else self._signals.first_stop()
        return self.limit_reached(job) if job.state is JobState.EXPIRED else None

    def _with_reruns(self, outcome: Outcome) -> tuple[RankRecord, ...]:
        """Write a script for each rank that runs it again; return the ranks with the commands."""
        from ascend_runner.plan import rerun  # noqa: PLC0415  only a failure is run again

        written: dict[int, str] = {}
        job, environ = self._writer.spec, self._setup.environ

        def write() -> None:
            for spec in self.processes:
                path = job.rerun_path(spec)
                files.write_atomically(path, rerun.script(spec, job, environ), files.SCRIPT_MODE)
                written[spec.rank_id] = f"sh {printable(shlex.quote(path))} {rerun.argument(spec, job)}".rstrip()

        if self.processes:
            self._writer.writes.put(job.rerun_path(self.processes[0]), write)
            self._writer.flush(self.limit)
        commands = dict(written)  # a copy, because the thread may still be running
        return tuple(attrs.evolve(rank, rerun=commands.get(rank.rank_id, "")) for rank in outcome.ranks)

    def _take_report(self) -> None:
        reports = self._writer.reports
        self.outcome = attrs.evolve(
            self.outcome, report=reports.newest, report_place=reports.place, report_problem=reports.problem
        )

    def _show(self, job: Job, event: Event) -> None:
        """Show how the job has ended, and that it is held."""
        outcome, spec, record = self.outcome, self._writer.spec, self._writer.record
        seconds = self._signals.now() - self._setup.requests.began if outcome.is_from_outside else outcome.seconds
        text = screen.ended(outcome, spec, seconds) + screen.attempts(job)
        if record.last_checkpoint and outcome.cause and outcome.cause.saves_first:
            text += f"\n  saved  {facts.checkpoint(record.last_checkpoint)}"
        if job.state is JobState.HOLDING and isinstance(event, Failed) and not event.is_local:
            text += screen.lingering(job)
        elif job.state is JobState.HOLDING:
            way_in = preparation.way_in(spec, self._setup.environ)
            text += screen.held(spec, job, record.held_until or 0.0, way_in=way_in, pid=os.getppid())
        (self._messages.error if outcome.cause else self._messages.result)(text)

    def _write_page(self, job: Job, tell: Callable[[str], None]) -> None:
        """Write the report as HTML if the plan has a page for this state."""
        if job.state in self._writer.spec.files.html_states:
            limit = html_page.LIMIT_OF_SUCCESS if job.state is JobState.SUCCEEDED else html_page.LIMIT
            self.page.write(self._writer.spec, self._writer.reports, tell, limit)

    def _hold(self, job: Job) -> Released | StopRequested:
        """Keep the job until its hold ends or a stop signal arrives, whatever the time limit. Hooks run meanwhile."""
        end, cause = self._signals.now() + job.delay, wording.sentence_with_certainty(self.outcome)
        try:
            self._hooks.run(hooks.AFTER_ATTEMPT)
            self._hooks.run(hooks.BEFORE_EXIT)
            while (left := end - self._signals.now()) > 0:
                self._signals.wait_unless_stopped(left)
        except StopRequestedError as stop:
            return StopRequested(stop.signum, is_orphaned=self._signals.first_stop().launcher != 0, sentence=cause)
        return Released(cause)


def _of_error(error: AscendRunnerError) -> Event:
    if isinstance(error, StopRequestedError):
        return StopRequested(error.signum, sentence=str(error))
    if isinstance(error, LimitReachedError):
        return Expired(str(error))
    return RunnerFailed(error.exit_status, str(error))


def _record(outcome: Outcome, job: Job, end: Event) -> AttemptRecord:
    """Return the record of an attempt from its outcome, its end, and the job after that."""
    failure = end if isinstance(end, Failed) else None
    return AttemptRecord(
        attempt=job.attempt,
        started_at=outcome.started_at,
        seconds=outcome.seconds,
        cause=wording.cause_record(outcome),
        status=outcome.status,
        fingerprint=failure.fingerprint if failure else "",
        restart=failure.restart if failure else None,
        progress=failure.has_progressed if failure else False,
        verdict=job.verdict,
        delay=job.delay,
        log_starts={rank.rank_id: rank.log_start for rank in outcome.ranks},
    )

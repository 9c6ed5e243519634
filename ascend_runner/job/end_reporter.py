"""Reports how each attempt of a job has ended, and how the job has: in its files and on the screen."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any, Final

import attrs

from ascend_runner.errors import AscendRunnerError
from ascend_runner.job import preparation
from ascend_runner.job.setup import JobSetup
from ascend_runner.lifecycle.job_machine import Event, JobState, Verdict
from ascend_runner.observations.rank_record import Outcome, RankRecord
from ascend_runner.plan.spec import RankSpec
from ascend_runner.report import screen
from ascend_runner.report.journal import REPORT_LIMIT, Journal
from ascend_runner.supervision.causes import LimitReached, SignalReceived
from ascend_runner.views import facts

RELEASE_LIMIT: Final = 0.5  # seconds for the disk with the report of a job that is no longer held


class EndReporter:
    """Reports the ends of the attempts of one job. `outcome` is that of the newest attempt, and then of the job."""

    def __init__(self, setup: JobSetup, journal: Journal) -> None:
        self.outcome = Outcome(cause=None, started_at=time.time())
        self.processes: Sequence[RankSpec] = ()  # those of the newest attempt
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

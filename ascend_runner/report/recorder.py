"""Records what is observed of each rank while a job runs, and finds out at the end why ranks failed.

An observer of the manager's facts. It decides nothing, but answers the manager which of several failures came first.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import attrs

from ascend_runner import facts
from ascend_runner.diagnosis.finding import Finding, StackGroup
from ascend_runner.facts import Fact, Failure, HangSeen, RankOutput, Usage
from ascend_runner.host import memory
from ascend_runner.host.host import Host
from ascend_runner.plan.job import JobSpec
from ascend_runner.plan.rerun import rerun_command
from ascend_runner.rank_record import Outcome, RankRecord
from ascend_runner.supervision.outcome import AttemptOutcome, RankFailed, RankNotStarted, RankOutcome
from ascend_runner.text import last_lines

if TYPE_CHECKING:
    from ascend_runner.report.investigation import Investigation

# Seconds after the start of a job until the modules that a failure needs are loaded. A short job does without them; in
# a long one the disk that holds them may hang, the package be upgraded or file descriptors run out before a rank fails.
LOAD_AFTER: Final = 1.0


class Recorder:
    """Records one job."""

    def __init__(self, job: JobSpec, environ: Mapping[str, str]) -> None:
        """`environ` is the environment that the runner was started with."""
        self._environ = environ
        self._job = job
        self._specs = {spec.rank_id: spec for spec in job.processes}
        self._started: dict[int, facts.RankStarted] = {}
        self._ended_at: dict[int, float] = {}
        self._usages: dict[int, Usage] = {}
        self._outputs: dict[int, RankOutput] = {}
        self._hang: tuple[StackGroup, ...] = ()
        self._began = (time.time(), time.monotonic())  # on the wall clock and on the manager's
        self._ended: facts.JobEnded | None = None
        self._memory = memory.sample(Host())
        self._loading = threading.Timer(LOAD_AFTER, _load_ahead)
        self._loading.daemon = True

    def observe(self, fact: Fact) -> None:
        """Record one fact."""
        if isinstance(fact, facts.JobStarting):
            self._began = (time.time(), fact.at)
            with suppress(RuntimeError):  # no thread can be started here: it is only a precaution
                self._loading.start()
        elif isinstance(fact, facts.RankStarted):
            self._started[fact.rank_id] = fact
        elif isinstance(fact, facts.RankExited):
            self._ended_at[fact.rank_id] = fact.at
        elif isinstance(fact, facts.RankReaped):
            self._usages[fact.rank_id] = fact.usage
        elif isinstance(fact, facts.OutputComplete):
            self._outputs[fact.rank_id] = fact.output
        elif isinstance(fact, facts.HangSeen):
            self._hang = fact.stacks
        elif isinstance(fact, facts.JobEnded):
            self._ended = fact
            self._loading.cancel()

    def order_failures(self, failures: Sequence[Failure], *, is_ordered: bool) -> Sequence[int]:
        """Return the ids of ranks that failed at the same moment, the most likely first cause first.

        With `is_ordered`, `failures` are in the order in which the kernel saw them end.
        """
        return self._investigation().order(failures, is_ordered=is_ordered)

    @property
    def is_disk_hung(self) -> bool:
        """Whether the disk with the logs did not respond at the end of the job."""
        return any(output.is_disk_hung for output in self._outputs.values())

    def find_stacks(self, pids: Mapping[int, int]) -> HangSeen:
        """Return the stacks of all ranks; `pids` are those of their leaders by rank id."""
        return self._investigation().find_stacks(pids)

    def finish(self, attempt: AttemptOutcome, warn: Callable[[str], None]) -> Outcome:
        """Diagnose the ranks that failed, and return everything that is known of the job, after its end.

        `warn` is called if a disk does not respond.
        """
        cause = attempt.cause
        if isinstance(cause, (RankFailed, RankNotStarted)):
            cause = attrs.evolve(cause, name=self._specs[cause.rank_id].name)
        failures = [
            Failure(rank.rank_id, rank.ending, self._outputs[rank.rank_id])
            for rank in attempt.ranks
            if rank.ending and not rank.ending.is_success and not rank.is_stopped
        ]
        diagnosis = None
        if failures:
            diagnosis = self._investigation().diagnose(failures, warn, is_disk_hung=self.is_disk_hung)
        findings = diagnosis.findings if diagnosis else {}

        return Outcome(
            cause=cause,
            ranks=tuple(self._record(rank, findings.get(rank.rank_id)) for rank in attempt.ranks),
            started_at=self._began[0],
            seconds=self._job_ended_at() - self._began[1],
            suspected_peer=diagnosis.suspected_peer if diagnosis else None,
            hang=self._hang,
        )

    def _record(self, rank: RankOutcome, finding: Finding | None) -> RankRecord:
        rank_id = rank.rank_id
        output, started = self._outputs[rank_id], self._started.get(rank_id)
        usage = self._usages.get(rank_id)
        ended_at = self._ended_at.get(rank_id, self._job_ended_at())

        return RankRecord(
            rank_id=rank_id,
            ending=rank.ending,
            is_started=rank.is_started,
            is_stopped=rank.is_stopped,
            name=self._specs[rank_id].name,
            pid=started.pid if started else 0,
            started_after=started.at - self._began[1] if started else 0.0,
            seconds=ended_at - started.at if started else 0.0,
            max_rss=usage.max_rss if usage else None,
            user_seconds=usage.user_seconds if usage else None,
            system_seconds=usage.system_seconds if usage else None,
            log_path=self._specs[rank_id].log_path,
            log_size=output.size,
            log_lost=output.lost,
            log_lost_from=output.lost_from,
            last_lines=tuple(last_lines(output.tail)),
            rerun=rerun_command(self._specs[rank_id], self._environ),
            finding=finding,
        )

    def _job_ended_at(self) -> float:
        return self._ended.at if self._ended else time.monotonic()

    def _investigation(self) -> Investigation:
        return _load()(
            job=self._job,
            began=self._began[0],
            memory=self._memory,
            pids={rank_id: started.pid for rank_id, started in self._started.items()},
        )


def _load() -> type[Investigation]:
    from ascend_runner.report.investigation import Investigation  # noqa: PLC0415  60 ms that only a failure needs

    return Investigation


def _load_ahead() -> None:
    with suppress(ImportError, OSError):  # a failure will try again, and report it
        _load()

"""What was seen of each rank while it ran, and what that says about its end: pid, times, resources, output.

Kept by the manager, which decides nothing by it but who failed first of several that ended in one moment.
"""

from __future__ import annotations

import time

from ascend_runner.annotations import TYPE_CHECKING
from ascend_runner.linux import memory
from ascend_runner.supervision.outcome import RankFailed, RankNotStarted
from ascend_runner.text import last_lines

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from ascend_runner.autopsy import Remains
    from ascend_runner.diagnosis.finding import Finding
    from ascend_runner.diagnosis.stack_groups import StackGroup
    from ascend_runner.job.plan import JobSpec
    from ascend_runner.linux.process import Usage
    from ascend_runner.linux.pump import Stream
    from ascend_runner.report import RankSeen, Seen
    from ascend_runner.reporter import Reporter
    from ascend_runner.supervision.events import Ending, Exited
    from ascend_runner.supervision.outcome import Outcome, RankOutcome


class Ledger:
    """One job's."""

    def __init__(self, job: JobSpec) -> None:
        self.streams: dict[int, Stream] = {}
        self.pids: dict[int, int] = {}
        self.ended_at: dict[int, float] = {}
        self.usages: dict[int, Usage] = {}
        self.hang: tuple[StackGroup, ...] = ()
        self._job = job
        self._specs = {spec.rank_id: spec for spec in job.processes}
        self._started_at: dict[int, float] = {}
        self._began = (time.time(), time.monotonic())  # on the wall clock and on the monotonic one
        self._memory = memory.sample()

    def note_start(self, rank_id: int, pid: int) -> None:
        """Note that a rank was started just now."""
        self.pids[rank_id] = pid
        self._started_at[rank_id] = time.monotonic()

    def describe(self, outcome: Outcome) -> Outcome:
        """Add to an outcome what was seen of each rank, and the name of who is none."""
        seconds = time.monotonic() - self._began[1]
        cause = outcome.cause
        if isinstance(cause, (RankFailed, RankNotStarted)):
            cause = cause._replace(name=self._specs[cause.rank_id].name)
        return outcome._replace(cause=cause, ranks=tuple(map(self._describe_rank, outcome.ranks)), seconds=seconds)

    def lost(self) -> dict[int, int]:
        """Give how many bytes of their output the logs of ranks lack, of those that lack some."""
        sizes = {rank_id: sum(gap.size for gap in stream.log.gaps) for rank_id, stream in self.streams.items()}
        return {rank_id: size for rank_id, size in sizes.items() if size}

    def by_suspicion(self, failures: Collection[Exited], *, is_ordered: bool) -> list[Exited]:
        """Order ranks that failed in one wake-up, the likeliest first cause first.

        `is_ordered` is whether they are in the order in which the kernel saw them end.
        """
        from ascend_runner import autopsy  # only where several ranks fail in one moment

        remains = [self._remains(event.rank_id, event.ending) for event in failures]
        order = autopsy.order(remains, memory.since(self._memory), is_ordered=is_ordered)
        return sorted(failures, key=lambda event: order.index(event.rank_id))

    def seen(self, outcome: Outcome, environ: Mapping[str, str], said: Reporter) -> Seen:
        """Tell, after the job, what the report wants beside the outcome; `environ` is the caller's environment."""
        from ascend_runner import report  # the job is over: time for imports

        findings: dict[int, Finding] = {}
        accused = None
        remains = [
            self._remains(rank.rank_id, rank.ending)
            for rank in outcome.ranks
            if rank.ending and not rank.ending.is_success and not rank.is_told_to_stop
        ]
        if remains:
            from ascend_runner import autopsy

            circumstances, places = memory.since(self._memory), autopsy.places_of(self._job)
            findings, accused = autopsy.examine(remains, circumstances, places, said.warn)
        return report.Seen(
            started_at=self._began[0],
            seconds=outcome.seconds,
            environ=environ,
            ranks={rank.rank_id: self._rank_seen(rank.rank_id, findings.get(rank.rank_id)) for rank in outcome.ranks},
            sentence=str(outcome.cause or ""),
            accused=accused,
            hang=self.hang,
            warnings=tuple(said.warnings),
        )

    def _describe_rank(self, rank: RankOutcome) -> RankOutcome:
        rank_id, stream = rank.rank_id, self.streams[rank.rank_id]
        ended_at = self.ended_at.get(rank_id, time.monotonic())
        return rank._replace(
            pid=self.pids.get(rank_id, 0),
            seconds=ended_at - self._started_at.get(rank_id, ended_at),
            log_path=self._specs[rank_id].log_path,
            log_size=stream.size,
            last_lines=tuple(last_lines(stream.tail)),
        )

    def _rank_seen(self, rank_id: int, finding: Finding | None) -> RankSeen:
        from ascend_runner import report

        gaps, usage = self.streams[rank_id].log.gaps, self.usages.get(rank_id)
        return report.RankSeen(
            started_after=self._started_at.get(rank_id, self._began[1]) - self._began[1],
            max_rss=usage and usage.max_rss,
            user_seconds=usage and usage.user_seconds,
            system_seconds=usage and usage.system_seconds,
            log_lost=sum(gap.size for gap in gaps),
            log_lost_from=min((gap.offset for gap in gaps), default=None),
            finding=finding,
        )

    def _remains(self, rank_id: int, ending: Ending) -> Remains:
        from ascend_runner import autopsy  # only at a failure

        stream = self.streams[rank_id]
        is_all_in_tail = stream.size <= len(stream.tail)
        return autopsy.Remains(
            rank_id,
            pid=self.pids[rank_id],
            ending=ending,
            tail=stream.tail,
            log_path="" if is_all_in_tail or stream.log.gaps else stream.log.path,
            plog_folder=self._specs[rank_id].env.get("ASCEND_PROCESS_LOG_PATH", ""),
            is_own_folder=self._job.has_own_process_logs,
            started_at=self._began[0],
        )

"""What the console shows of a job while it runs: an observer that turns facts into the runner's own lines."""

from __future__ import annotations

from typing import Callable, Protocol

from ascend_runner import facts
from ascend_runner.facts import Fact, Survivor
from ascend_runner.plan.job import JobSpec
from ascend_runner.report import screen
from ascend_runner.supervision.events import signal_name
from ascend_runner.text import rank_list


class Messages(Protocol):
    """Where the lines go; see `output.messages`."""

    def debug(self, sentence: str) -> None:
        """Write what only --verbose shows."""

    def info(self, sentence: str) -> None:
        """Write progress."""

    def warning(self, sentence: str) -> None:
        """Write a warning."""

    def error(self, text: str) -> None:
        """Write a failure, in one or more lines."""


class Progress:
    """Writes a line for each fact that a user should read when it happens."""

    def __init__(self, job: JobSpec, messages: Messages) -> None:
        self._job = job
        self._messages = messages
        self._specs = {spec.rank_id: spec for spec in job.processes}
        self._lost: dict[int, int] = {}  # bytes that log files lack, by rank
        self._is_cut_off = False
        self._writers: dict[type[Fact], Callable[..., None]] = {
            facts.JobStarting: self._begin,
            facts.RankStarted: self._started,
            facts.RankExited: self._exited,
            facts.TeardownStarted: self._stopping,
            facts.SignalUnhandled: self._unhandled,
            facts.HangSeen: self._hanging,
            facts.EscapedKilled: self._killed,
            facts.ProcessesSurvived: self._survived,
            facts.OutputComplete: self._completed,
            facts.JobEnded: self._end,
        }

    def observe(self, fact: Fact) -> None:
        """Write a line if the fact deserves one."""
        write = self._writers.get(type(fact))
        if write:
            write(fact)

    def _begin(self, fact: facts.JobStarting) -> None:
        if fact.is_proc_hidden:
            self._messages.warning(
                "/proc belongs to another PID namespace: processes that leave their rank's session cannot be found"
                " and stopped (use unshare --mount-proc)"
            )
        self._messages.info(screen.starting(self._job))

    def _stopping(self, fact: facts.TeardownStarted) -> None:
        if fact.rank_ids and fact.cause is not None:
            self._messages.info(screen.stopping(fact, self._job))

    def _started(self, fact: facts.RankStarted) -> None:
        spec = self._specs[fact.rank_id]
        self._messages.debug(f"{spec.title} has pid {fact.pid}, working directory {spec.cwd}")

    def _exited(self, fact: facts.RankExited) -> None:
        self._messages.debug(f"{self._specs[fact.rank_id].title} ended: {fact.ending}")

    def _unhandled(self, fact: facts.SignalUnhandled) -> None:
        name = signal_name(fact.signum)
        self._messages.warning(f"{name} was not forwarded: no process of this job handles it")

    def _hanging(self, fact: facts.HangSeen) -> None:
        self._messages.error(screen.stacks(fact.stacks, fact.refusal))

    def _killed(self, fact: facts.EscapedKilled) -> None:
        names = ", ".join(f"{pid} ({name})" for pid, name in fact.names.items())
        self._messages.warning(f"killed processes that had left their rank's session: {names}")

    def _survived(self, fact: facts.ProcessesSurvived) -> None:
        self._messages.warning(f"still alive after SIGKILL: {', '.join(map(_survivor, fact.survivors))}")

    def _completed(self, fact: facts.OutputComplete) -> None:
        self._is_cut_off = self._is_cut_off or fact.is_cut_off
        if fact.output.lost:
            self._lost[fact.rank_id] = fact.output.lost

    def _end(self, _fact: facts.JobEnded) -> None:
        if self._is_cut_off:
            self._messages.warning("the last lines may be missing: some output was still unread at the time limit")
        if self._lost:
            ranks, size = rank_list(list(self._lost)), sum(self._lost.values())
            self._messages.warning(f"log files are missing {size} bytes of {ranks}; see log_lost_from in the report")


def _survivor(survivor: Survivor) -> str:
    rank = "" if survivor.rank_id is None else f"rank {survivor.rank_id}: "
    return f"{rank}{survivor.description}"

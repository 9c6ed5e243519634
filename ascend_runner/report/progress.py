"""What the console shows of a job while it runs: an observer that turns facts into the runner's own lines."""

from __future__ import annotations

from typing import Callable, Protocol

from ascend_runner.facts import Fact, HangSeen, RankOutput, SignalUnhandled, Swept
from ascend_runner.plan.job import JobSpec
from ascend_runner.report import screen
from ascend_runner.supervision.events import DeadlineReached, Emptied, Exited, Spawned, signal_name
from ascend_runner.supervision.state import Phase, State
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
        self._living: set[int] = set()
        self._lost: dict[int, int] = {}  # bytes that log files lack, by rank
        self._is_cut_off = False
        self._unhandled_signals: set[int] = set()  # told once each: a user may send hundreds
        self._writers: dict[type[Fact], Callable[..., None]] = {
            State: self._phase_began,
            Spawned: self._started,
            Exited: self._exited,
            Emptied: self._emptied,
            DeadlineReached: self._still_stopping,
            SignalUnhandled: self._unhandled,
            HangSeen: self._hanging,
            Swept: self._swept,
            RankOutput: self._completed,
        }

    def observe(self, fact: Fact, _at: float) -> None:
        """Write a line if the fact deserves one."""
        write = self._writers.get(type(fact))
        if write:
            write(fact)

    def _phase_began(self, state: State) -> None:
        if state.phase is Phase.STARTING:
            self._messages.info(screen.starting(self._job))
        elif state.phase is Phase.TERMINATING and state.cause is not None and state.alive:
            self._messages.info(screen.stopping(state, self._job, len(state.alive | self._living)))
        elif state.phase is Phase.DONE:
            self._end()

    def _still_stopping(self, _fact: DeadlineReached) -> None:
        self._messages.debug(f"still running: {screen.names(self._living, self._job)}")

    def _started(self, fact: Spawned) -> None:
        self._living.add(fact.rank_id)
        spec = self._specs[fact.rank_id]
        self._messages.debug(f"{spec.title} has pid {fact.pid}, working directory {spec.cwd}")

    def _exited(self, fact: Exited) -> None:
        if not fact.has_stragglers:
            self._living.discard(fact.rank_id)
        self._messages.debug(f"{self._specs[fact.rank_id].title} ended: {fact.ending}")

    def _emptied(self, fact: Emptied) -> None:
        self._living.discard(fact.rank_id)

    def _unhandled(self, fact: SignalUnhandled) -> None:
        if fact.signum not in self._unhandled_signals:
            self._unhandled_signals.add(fact.signum)
            name = signal_name(fact.signum)
            self._messages.warning(f"{name} was not forwarded: no process of this job handles it")

    def _hanging(self, fact: HangSeen) -> None:
        self._messages.error(screen.stacks(fact.stacks, fact.refusal))

    def _swept(self, fact: Swept) -> None:
        if fact.killed:
            names = ", ".join(f"{pid} ({name})" for pid, name in fact.killed.items())
            self._messages.warning(f"killed processes that had left their rank's session: {names}")
        if fact.survivors:
            self._messages.warning(f"still alive after SIGKILL: {', '.join(fact.survivors)}")

    def _completed(self, output: RankOutput) -> None:
        self._is_cut_off = self._is_cut_off or output.is_cut_off
        if output.lost:
            self._lost[output.rank_id] = output.lost

    def _end(self) -> None:
        if self._is_cut_off:
            self._messages.warning("the last lines may be missing: some output was still unread at the time limit")
        if self._lost:
            ranks, size = rank_list(list(self._lost)), sum(self._lost.values())
            self._messages.warning(f"log files are missing {size} bytes of {ranks}; see log_lost_from in the report")

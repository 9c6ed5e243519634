"""The progress of a job on the console: an observer that turns facts into the runner's own lines."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

from ascend_runner.plan.spec import JobSpec
from ascend_runner.record.facts import (
    CheckpointAsked,
    CheckpointEnded,
    CheckpointPostponed,
    CheckpointRefused,
    EngineSeen,
    Escaped,
    Fact,
    HangSeen,
    Messages,
    RankOutput,
    SignalUnhandled,
    Swept,
)
from ascend_runner.supervision.causes import (
    Cause,
    Exited,
    FindingKind,
    HangDetected,
    NodeFinding,
    SignalReceived,
    Slowdown,
    WatchAction,
)
from ascend_runner.supervision.events import DeadlineReached, Emptied, Spawned
from ascend_runner.supervision.state import Phase, State
from ascend_runner.text import rank_list, signal_name
from ascend_runner.views import screen, wording


class Progress:
    """Writes a line for each fact that a user should know at once."""

    def __init__(self, job: JobSpec, messages: Messages, attempt: int = 0) -> None:
        self._job, self._attempt = job, attempt
        self._messages = messages
        self._specs = {spec.rank_id: spec for spec in job.processes}
        self._state = State(grace=job.stopping.grace)
        self._grace_ends = 0.0
        self._told: Cause | None = None  # the reason that a line has already given
        self._has_waited = False  # whether it has waited for processes that successful ranks left behind
        self._living: set[int] = set()
        self._lost: dict[int, int] = {}  # bytes that log files lack, by rank
        self._asked: frozenset[int] | None = None  # ranks asked for a checkpoint; None: no line has said so
        self._unhandled_signals: set[int] = set()  # reported once each: a user may send hundreds
        self._refusals: set[str] = set()  # likewise, of requests for a checkpoint
        self._writers = self._methods()

    def observe(self, fact: Fact, at: float) -> None:
        """Write a line if the fact deserves one."""
        if isinstance(fact, State):
            self._state = fact
            self._phase_began(fact, at)
        elif type(fact) in self._writers:
            self._writers[type(fact)](fact)

    def _methods(self) -> Mapping[type[Fact], Callable[..., None]]:
        """Return the methods that write a line, by the type of their fact."""
        return {
            Spawned: self._started,
            Exited: self._exited,
            Emptied: lambda fact: self._living.discard(fact.rank_id),
            DeadlineReached: self._still_stopping,
            SignalReceived: self._signalled,
            SignalUnhandled: self._unhandled,
            EngineSeen: lambda fact: self._messages.warning(str(fact)),
            HangDetected: self._hanging,
            HangSeen: self._hang_seen,
            Slowdown: self._slow,
            CheckpointAsked: self._checkpoint_asked,
            CheckpointPostponed: lambda fact: self._messages.info(str(fact)),
            CheckpointRefused: self._checkpoint_refused,
            CheckpointEnded: self._checkpoint_ended,
            NodeFinding: functools.partial(show_finding, messages=self._messages),
            Escaped: self._waiting_for_escaped,
            Swept: self._swept,
            RankOutput: self._completed,
        }

    def _phase_began(self, state: State, at: float) -> None:
        if state.phase is Phase.STARTING:
            self._messages.info(screen.starting(self._job, self._attempt))
        elif state.phase is Phase.CHECKPOINTING and state.cause:
            if state.cause != state.checkpoint.before_limit:  # otherwise it was reported before any rank received it
                self._asked = None
        elif state.phase is Phase.HOLDING and state.cause:
            self._told = state.cause
            self._messages.info(screen.holding(state.cause, self._job))
        elif state.phase is Phase.TERMINATING:
            self._grace_ends = at + state.grace
            self._stopping(state)
        elif state.phase is Phase.KILLING:
            self._killing(state, is_grace_over=at >= self._grace_ends)
        elif state.phase is Phase.DONE and self._lost:
            self._messages.warning(f"log files are missing {sum(self._lost.values())} bytes of {rank_list(self._lost)}")

    def _checkpoint_asked(self, fact: CheckpointAsked) -> None:
        """Write which ranks were asked, once for each: a user may send hundreds of requests."""
        if self._asked is not None and fact.reached <= self._asked:
            return
        self._asked = fact.reached | (self._asked or frozenset())
        self._told = self._state.cause
        (self._messages.info if fact.reached else self._messages.warning)(wording.asked(fact, self._state))

    def _checkpoint_refused(self, fact: CheckpointRefused) -> None:
        """Write once for each reason that a request has no effect: a user may send hundreds."""
        why = "the ranks are being stopped" if self._living else "no rank is running"
        if why not in self._refusals:
            self._refusals.add(why)
            self._messages.info(f"{signal_name(fact.signum)} has no effect because {why}")

    def _checkpoint_ended(self, fact: CheckpointEnded) -> None:
        asked, self._asked = self._asked, None
        if not (asked or fact.saved):
            return  # it was reported that no rank handles the signal
        sentence = wording.ended(fact)
        is_incomplete = fact.missing or fact.failed or fact.failed_since or fact.unasked
        if is_incomplete or (fact.saved and not fact.parts):
            self._messages.warning(sentence)
        elif sentence:
            self._messages.info(sentence)
        if fact.missing and fact.stacks.stacks:
            self._messages.error(wording.text(fact.stacks, wording.UNSAVED))

    def _stopping(self, state: State) -> None:
        if state.cause is None or not state.alive:
            return
        reason = "" if state.cause == self._told else screen.reason(state.cause, self._job)
        self._messages.info(screen.stopping(state, reason, state.alive | self._living))

    def _killing(self, state: State, *, is_grace_over: bool) -> None:
        """Write the line on why ranks are killed, unless no process is left that may be signaled."""
        ranks = self._names() if state.leaders else f"the remaining processes of {self._names()}"
        if state.killed_by:
            self._messages.info(f"received {signal_name(state.killed_by)}; killing {ranks}")
        elif is_grace_over:
            over = f"grace period of {state.grace:g} s is over; " if state.grace else ""
            self._messages.info(f"{over}killing {ranks}")

    def _names(self) -> str:
        return screen.names(self._living, self._job)

    def _still_stopping(self, _fact: DeadlineReached) -> None:
        if self._state.cause or self._has_waited:
            self._messages.debug(f"still running: {self._names()}")
            return
        self._has_waited = True  # successful ranks often leave processes that end within moments
        self._messages.info(
            f"all ranks have ended; stopping processes that {self._names()} left behind"
            f"{screen.time_to_exit(self._state.grace, screen.way_out(None))}"
        )

    def _signalled(self, fact: SignalReceived) -> None:
        doing = f"already stopping {self._names()} ({screen.way_out(fact)})" if self._living else "all ranks have ended"
        self._messages.info(f"{screen.reason(fact, self._job)}; {doing}")

    def _started(self, fact: Spawned) -> None:
        self._living.add(fact.rank_id)
        spec = self._specs[fact.rank_id]
        self._messages.debug(f"{spec.title} has pid {fact.pid}, working directory {spec.cwd}")

    def _exited(self, fact: Exited) -> None:
        if not fact.has_stragglers:
            self._living.discard(fact.rank_id)
        self._messages.debug(f"{self._specs[fact.rank_id].title} ended: {fact.ending}")

    def _unhandled(self, fact: SignalUnhandled) -> None:
        if fact.signum not in self._unhandled_signals:
            self._unhandled_signals.add(fact.signum)
            name = signal_name(fact.signum)
            self._messages.warning(f"{name} was not sent to the ranks: no process of this job handles it yet")

    def _hanging(self, fact: HangDetected) -> None:
        if fact.is_over:
            self._messages.info(str(fact))
        elif self._job.watching.hang_action is WatchAction.WARN:
            self._messages.warning(f"{fact}; the job continues (--hang-action warn); see its report for the stacks")
        else:
            self._told = fact
            self._messages.info(f"{fact}; collecting the stacks of all ranks")

    def _hang_seen(self, fact: HangSeen) -> None:
        """Show what the ranks wait for, and the stacks unless the job continues: events and report have them."""
        is_warning = self._job.watching.hang_action is WatchAction.WARN
        for sentence in wording.of_collectives(fact.collectives):
            (self._messages.warning if is_warning else self._messages.error)(sentence)
        if fact.no_collectives:
            self._messages.debug(fact.no_collectives)
        if not is_warning:
            self._messages.error(wording.text(fact))

    def _slow(self, fact: Slowdown) -> None:
        if fact.is_over:
            self._messages.info(str(fact))
        elif self._job.watching.perf_action is WatchAction.WARN:
            self._messages.warning(str(fact))

    def _waiting_for_escaped(self, fact: Escaped) -> None:
        self._messages.info(
            f"stopping processes that have left their rank's session"
            f"{screen.time_to_exit(fact.seconds, 'Ctrl-C to kill')}"
        )

    def _swept(self, fact: Swept) -> None:
        if fact.killed:
            names = ", ".join(f"{pid} ({name})" for pid, name in fact.killed.items())
            self._messages.warning(f"killed processes that had left their rank's session: {names}")
        if fact.survivors:
            self._messages.warning(f"still alive after SIGKILL: {', '.join(fact.survivors)}")

    def _completed(self, output: RankOutput) -> None:
        if output.lost:
            self._lost[output.rank_id] = output.lost


def show_finding(finding: NodeFinding, messages: Messages) -> None:
    """Write a line for a finding of the inspection. Those of the pre-check were reported when they were found."""
    if not finding.kind.is_of_precheck:
        is_good = finding.kind is FindingKind.RECOVERED
        (messages.info if is_good else messages.warning)(f"inspection: {finding.sentence}")

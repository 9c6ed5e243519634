"""The other nodes of the job, as its runner deals with them: what it says of its own node, and what follows from news.

The rules are in `link`, which also decides when a node is on its own. Here, nothing waits for longer than that.
"""

from __future__ import annotations

import json
import math
import os
import secrets
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from signal import SIGINT, SIGTERM
from typing import Any, Final, NoReturn, Protocol

import attrs

from ascend_runner.errors import AscendRunnerError, StopRequestedError, reason
from ascend_runner.guardian.signal_sets import STOP_SIGNALS
from ascend_runner.job import versions
from ascend_runner.job.setup import JobSetup
from ascend_runner.link import channel
from ascend_runner.link.link import Link, Surroundings
from ascend_runner.link.messages import (
    NOT_REACHED,
    Answered,
    Asked,
    Diagnosed,
    Failure,
    FailureClass,
    Identity,
    Joined,
    Local,
    News,
    NodesKnown,
    Refused,
    Stage,
    StartAll,
    StopAll,
    VerdictReached,
    Waiting,
    Warned,
)
from ascend_runner.link.protocol import ALONE, ASK_LIMIT, BEAT, FIRST_WORD, TABLE_WAIT
from ascend_runner.link.verdict import LIKELY, stopped_by
from ascend_runner.node import bounded
from ascend_runner.node.host import Host
from ascend_runner.plan.spec import NO_RANK, JobSpec, LinkPlan
from ascend_runner.record.facts import CheckpointAsked, CheckpointPostponed, Fact, Swept
from ascend_runner.record.nodes import JobVerdict, NodeRecord
from ascend_runner.record.rank_record import Outcome
from ascend_runner.services import control
from ascend_runner.services.control import CheckpointAnswer
from ascend_runner.supervision.causes import (
    Cause,
    Exited,
    HangDetected,
    LimitReached,
    PeerFailed,
    Restart,
    SignalReceived,
)
from ascend_runner.supervision.events import Spawned
from ascend_runner.supervision.job_machine import AnyState, Failed, JobState, Verdict
from ascend_runner.supervision.state import Phase, State
from ascend_runner.text import all_of, duration, node_list, parse_numbers
from ascend_runner.views import facts, wording

STOP_WORD: Final = 3.0  # seconds for node 0 to say what has stopped the job, when this node has received a stop signal
NODE_0: Final = f"{STOP_WORD:g} s for node 0 to answer"
LONG: Final = 1.0  # seconds after which a wait for the others is said
ALL_OR_NONE: Final = (
    "node 0 does not answer, so the other nodes cannot be asked; a checkpoint of this node alone might wait for them "
    "forever"
)
LAST_WORD: Final = 12.0  # seconds beyond the grace for a verdict; the link decides alone after 5
ANSWER_WAIT: Final = ASK_LIMIT + BEAT + 0.3  # seconds for the link to answer a request; `ascend-job` waits for 5
ROWS_WAIT: Final = 0.5  # seconds for the link to report the state of the nodes
STEP_INTERVAL: Final = 1.0  # seconds between two steps that are said
LEAST_SILENCE: Final = 600.0  # seconds for which ranks may be silent, such as while they save, without a meaning
REREAD: Final = 1.0  # seconds between two looks at a rank table that may have been written anew
UNHARMED: Final[dict[str, Any]] = {
    "failure": None,
    "diagnosed": None,
    "survivors": (),
    "is_stopped": False,
    "signum": 0,
    "lost": (),
    "silent_from": None,
}
REFUSED: Final = "refused: "  # begins the result of a node that has refused a request
MOST_LINES: Final = 20  # of a failed rank's output
LONGEST_LINE: Final = 400  # characters


class Peers(Protocol):
    """The link to the other nodes, see `link.link`."""

    @property
    def pids(self) -> Collection[int]:
        """The processes of the link, which belong to no rank."""

    @property
    def is_usable(self) -> bool:
        """Whether there can be news."""

    def open(self) -> None:
        """Start it.

        Raises:
            OSError: It cannot be started.
            AscendRunnerError: Likewise.
        """

    def tell(self, local: Local) -> None:
        """Replace what the other nodes know of this one. Never waits."""

    def dial(self, hubs: tuple[str, ...]) -> None:
        """Look for node 0 at other addresses from now on. Never waits."""

    def ask(self, asked: Asked) -> None:
        """Ask something of the whole job; the answer is news. Never waits."""

    def news(self) -> tuple[News, ...]:
        """Return what has arrived since the last call."""

    def close(self, is_cut: Callable[[], bool]) -> None:
        """End the link once its messages have arrived, or soon after `is_cut` returns true. May be called twice."""


class Nodes:
    """The other nodes of one job; without a link to them, there are none. An observer of the manager's facts."""

    def __init__(self, setup: JobSetup, spec: JobSpec, plan: LinkPlan) -> None:
        self.verdict: JobVerdict | None = None  # on the newest attempt
        self.pids: Collection[int] = ()
        self.plan = plan  # the newest
        self._setup, self._spec = setup, spec
        self._local = Local(table=plan.table)
        self._peers: Peers | None = None
        self._stop: StopAll | None = None  # the newest
        self._signum_before: int | None = None  # the stop signal that had arrived when the ranks ended
        self._joined: Joined | None = None
        self._started = 0  # the newest attempt that may start
        self._refusal = ""
        self._telling = threading.Lock()  # held to update the state of this node, also by threads
        self._asking = threading.Lock()  # one request at a time
        self._answers: SimpleQueue[Answered | NodesKnown] = SimpleQueue()  # to the newest request
        self._asker: threading.Thread | None = None  # asks all nodes for a checkpoint
        self._stepped_at = 0.0
        setup.requests.others = self
        self._rereads = False  # the rank tables of the nodes differ
        self._is_waiting = False  # node 0 lets this node wait
        self._read_plan: Callable[[], LinkPlan] = lambda: self.plan

    def open(self) -> None:
        """Start the link."""
        messages = self._setup.messages
        around = Surroundings(
            environ=self._setup.environ,
            warn=messages.warn_once,
            wake=self.take_news,
            tell_guardian=self._setup.signals.tell_guardian,
        )
        peers = Link(_settings(self._spec, self.plan), around)
        try:
            peers.open()
        except (OSError, AscendRunnerError) as error:
            messages.warning(f"cannot link this node to the others: {reason(error)}")
            return
        self.use(peers)
        if self._spec.processes:  # otherwise the rank table cannot be used
            with suppress(AscendRunnerError):  # without a thread, nothing is compared
                bounded.start_thread(lambda: self._say(versions=versions.of_node(self._spec, Host())))

    def use(self, peers: Peers) -> None:
        """Use a link that is open."""
        self._peers, self.pids = peers, peers.pids
        self._say()

    def close(self) -> None:
        """End the link. May be called twice."""
        if self._peers:
            missing = self._joined.missing if self._joined else ()
            others = f"{node_list(missing)} (not joined yet)" if missing else "the other nodes"
            is_cut = self._patience(f"for {others} to hear that the job has ended")
            self._peers.close(lambda: bool(self._refusal) or is_cut())  # nobody hears a runner that is refused

    # --- What this node says ------------------------------------------------------------------------------------------

    def _say(self, **changes: Any) -> None:
        with self._telling:
            self._local = attrs.evolve(self._local, **changes)
            if self._peers:
                self._peers.tell(self._local)

    def note_step(self, at: float, step: int | None) -> None:
        """Say the last step of the training, now and then. Called in other threads."""
        if step is not None and at >= self._stepped_at + STEP_INTERVAL:
            self._stepped_at = at
            self._say(step=step)

    def note_lost(self, nodes: Collection[int]) -> None:
        """Say that HCCL reports ranks of these nodes as lost. Called in another thread."""
        self._say(lost=tuple(sorted({*self._local.lost, *nodes})))

    def begin_attempt(self, number: int) -> None:
        """Say that an attempt begins, unless it was stopped before: then no rank will be started."""
        if self._stop and self._stop.attempt == number:
            self._pass_on(self._stop)
        else:
            self._say(stage=Stage.RUNNING, state=Phase.STARTING.value, alive=0)

    def _pass_on(self, stop: StopAll) -> None:
        """Let a stop end the ranks of this node. It may be about this node, as one that was lost and is back."""
        is_own = bool(self._local.failure or self._local.signum) and stop.node == self.plan.node
        is_known = bool(stop.signum and self._local.signum)  # a scheduler and `ascend-job stop` reach all nodes
        if not (is_own or is_known):
            self._setup.requests.pass_on(_cause_of(stop))

    def observe(self, fact: Fact, at: float) -> None:
        """Say how the ranks are."""
        if isinstance(fact, Spawned):
            self._say(alive=self._local.alive + 1)
        elif isinstance(fact, Exited):
            self._say(alive=max(0, self._local.alive - 1), **self._last_end(fact, at))
        elif isinstance(fact, Swept):
            self._say(survivors=fact.survivors)
        elif isinstance(fact, HangDetected) and fact.is_over:
            self._say(lost=(), silent_from=None)
        elif isinstance(fact, HangDetected) and not fact.peer:
            self._say(silent_from=at + max(0.0, LEAST_SILENCE - fact.seconds))
        elif isinstance(fact, State):
            stage = Stage.STOPPING if fact.is_tearing_down else Stage.RUNNING
            if self._local.stage is Stage.READY:  # no rank was started
                stage = Stage.DEAD
            self._say(stage=stage, state=_state_of(fact).value, **self._first_cause(fact.cause, at))

    def _last_end(self, end: Exited, at: float) -> dict[str, Any]:
        """Return the failure of the last rank, which no state tells before everything that it left is gone."""
        local = self._local
        is_own = not end.ending.is_success and end.ending.exit_status - 128 not in STOP_SIGNALS
        return self._first_cause(end, at) if is_own and local.alive <= 1 and local.stage is Stage.RUNNING else {}

    def _first_cause(self, cause: Cause | None, at: float) -> dict[str, Any]:
        local = self._local
        if cause is None or cause.is_elsewhere or local.failure or local.signum:
            return {}
        if cause.stop_signal is not None:
            is_own = not (isinstance(cause, SignalReceived) and cause.node is not None)
            return {"signum": cause.stop_signal} if is_own else {}
        is_consequence = (isinstance(cause, Exited) and cause.is_consequence) or _is_peer_lost(cause)
        kind = FailureClass.PEER if is_consequence else FailureClass.UNKNOWN
        ending = str(cause.ending) if cause.ending else cause.reason
        failure = Failure(rank_id=_number(cause.rank_id), ending=ending, status=cause.exit_status, kind=kind, at=at)
        return {"failure": failure}

    def leave(self, status: int) -> None:
        """Say that the runner is about to exit."""
        self._note_end()
        is_over = self._local.state in {state.value for state in JobState if state.is_final}
        state = self._local.state if is_over else JobState.FAILED.value
        signum = self._local.signum or self._setup.signals.stop_signum
        signum = signum if status else 0  # a signal after a success does not stop other nodes
        self._say(stage=Stage.LEFT, state=state, status=status, alive=0, signum=signum)

    # --- Waiting for the others ---------------------------------------------------------------------------------------

    def prepare(self, attempt: int) -> None:
        """Say that an attempt is being prepared."""
        self._signum_before = None
        self._say(attempt=attempt, stage=Stage.PREPARING, state=JobState.RESTARTING.value, **UNHARMED)

    def check(self) -> None:
        """End a wait before an attempt if the job is over for this node.

        Raises:
            AscendRunnerError: This node cannot take part, or node 0 has given up.
            StopRequestedError: A stop signal to another node stops the job.
        """
        if self._local.stage not in {Stage.PREPARING, Stage.READY}:
            return
        if self._refusal:
            raise AscendRunnerError(self._refusal)
        if self._is_stopped and self._stop and self._stop.signum:
            raise StopRequestedError(self._stop.signum, str(_cause_of(self._stop)))
        is_over = self.verdict and self.verdict.attempt >= self._local.attempt > 0 and not self.verdict.restarts
        if is_over and not (self._is_stopped and self._local.stage is Stage.READY):
            self._give_up()

    def await_start(self, attempt: int, plan: LinkPlan, read_plan: Callable[[], LinkPlan]) -> int:
        """Wait until an attempt may start, as far as this job waits for that; return its number, which may be higher.

        `read_plan` reads the rank table again, and returns the plan with what it is now.

        Raises:
            AscendRunnerError: This node cannot take part, or nodes are missing.
            StopRequestedError: A stop signal arrived.
        """
        peers, self._read_plan = self._peers, read_plan
        self._say(attempt=attempt, stage=Stage.READY, table=plan.table, **UNHARMED)
        self._use_plan(plan)
        if attempt == 0 and plan.is_required:
            self._await_all(plan)
        elif peers and attempt == 0 and self._spec.restarts.max_restarts:
            self._await_joined(peers)
        known = self._joined.attempt if self._joined else 0
        if self.verdict and self.verdict.restarts:  # on the attempt of a runner that this one replaces
            known = max(known, self.verdict.attempt + 1)
        if known > attempt:
            attempt = known
            self._say(attempt=attempt)
        if peers and attempt:
            attempt = self._await_restart(attempt)
        if self.verdict and self.verdict.attempt < attempt:
            self.verdict = None
        return attempt

    @property
    def awaits_replacement(self) -> bool:
        """Whether a node has to be replaced before the next attempt, so that the rank table may be written anew."""
        return self.verdict is None or self.verdict.replaces

    def _use_plan(self, plan: LinkPlan) -> None:
        """Say which rank table this node has now, and look for node 0 where that places it."""
        if self._peers and plan.hubs != self.plan.hubs:
            self._peers.dial(plan.hubs)
        self.plan = plan
        if plan.table != self._local.table:
            self._say(table=plan.table)

    def _await_joined(self, peers: Peers) -> None:
        """Wait for the number of the current attempt from node 0."""
        self._wait(lambda: self._joined is not None or not peers.is_usable, FIRST_WORD)
        self._await_former()
        self._wait(lambda: not self._rereads, TABLE_WAIT + FIRST_WORD)

    def _await_former(self) -> None:
        """Wait until the lease of a former runner of this node has expired, and the verdict on its loss is known."""
        limit = self.plan.timeout + 2 * self._spec.stopping.grace + LAST_WORD
        self._wait(lambda: not (self._is_held and self._peers and self._peers.is_usable), limit)

    @property
    def _is_held(self) -> bool:
        """Whether this node has to wait until the lease of its former runner has expired."""
        return self._is_waiting and self._joined is None and self._spec.restarts.max_restarts > 0

    def _await_restart(self, attempt: int) -> int:
        """Wait until all nodes are ready; return the attempt, a later one if another node has failed meanwhile."""
        while self._started < attempt and not self._is_stopped:
            self._wait(partial(self._is_decided, attempt))
            if self.verdict and self.verdict.restarts and self.verdict.attempt >= attempt:
                attempt = self.verdict.attempt + 1
                self._say(attempt=attempt)
            elif self._started < attempt and not self._is_stopped:
                self._give_up()
        return attempt

    def _await_all(self, plan: LinkPlan) -> None:
        self._setup.messages.info("waiting for the other nodes (--link require)")
        self._wait(lambda: self._is_complete or self._is_held, plan.timeout)
        if self._is_held:
            self._await_former()
            self._wait(lambda: self._is_complete, plan.timeout)
        self._wait(lambda: not self._rereads, TABLE_WAIT + FIRST_WORD)
        if not (self._is_stopped or self._is_complete):
            missing = self._joined.missing if self._joined else (0,)
            names = ", ".join(map(str, missing))
            raise AscendRunnerError(f"node {names} has not joined within {plan.timeout:g} s (--link require)")

    @property
    def _is_complete(self) -> bool:
        return self._joined is not None and not self._joined.missing

    @property
    def _is_stopped(self) -> bool:
        """Whether another node has ended the attempt of this one, or stops the job."""
        return self._stop is not None and self._stop.attempt == self._local.attempt

    def _is_decided(self, attempt: int) -> bool:
        return self._started >= attempt or self._is_over(attempt)

    def _is_over(self, attempt: int) -> bool:
        return not (self._peers and self._peers.is_usable) or (
            self.verdict is not None and self.verdict.attempt >= attempt
        )

    def _give_up(self) -> NoReturn:
        why = self.verdict.sentence if self.verdict else "there is no link to the other nodes"
        error = AscendRunnerError(f"no restart: {why}")
        error.exit_status = self.verdict.status if self.verdict and self.verdict.status else error.exit_status
        raise error

    def confer(self, end: Failed, outcome: Outcome) -> Failed:
        """Explain a failed attempt to the other nodes, wait for the verdict, and return the end with it.

        A stop signal that arrives meanwhile lets this node end after the verdict.
        """
        diagnosed = None if outcome.cause is None or outcome.cause.is_elsewhere else _diagnosed(end, outcome)
        self._note_end()
        self._say(stage=Stage.DEAD, alive=0, diagnosed=diagnosed, is_stopped=_is_stopped(outcome))
        verdict = None if self._refusal else self._await_verdict()
        end = attrs.evolve(end, signum=self._setup.signals.stop_signum)
        if self._refusal:
            return attrs.evolve(end, decision=Verdict.NOT_WANTED)
        if verdict is None or verdict.is_alone:
            why = "no verdict from node 0" if self._joined else "node 0 does not answer"
            if self._stop and self._is_stopped and self._stop.node not in {None, self.plan.node}:
                why += f", which stopped all nodes ({self._stop.ending})"
            self._setup.messages.info(f"{why}; showing what this node knows")
            status = (verdict.status if verdict else 0) or end.status
            return attrs.evolve(end, status=status, decision=Verdict.NO_LINK)
        known = {one.value: one for one in Verdict}
        # With a cause elsewhere, what ended the ranks here is the same each time, or the failure that is not the cause.
        fingerprint = end.fingerprint if verdict.node == self.plan.node else str(verdict)
        decision = Verdict.RESTART if verdict.restarts else known.get(verdict.decision, Verdict.NO_LINK)
        is_local = verdict.node == self.plan.node if verdict.kind else None
        if is_local and verdict.kind == FailureClass.PEER.value:
            is_local = end.is_local  # nobody has a cause; this node knows whether the peer that it has lost is its own
        return attrs.evolve(
            end,
            status=verdict.status or end.status,
            fingerprint=fingerprint,
            decision=decision,
            delay=verdict.delay,
            is_local=is_local,
        )

    def fail(self, error: AscendRunnerError) -> None:
        """Tell the others of an error because of which this node starts no ranks, and give it the status of all nodes.

        A node that has not joined tries to for `ALONE` seconds, as after the failure of a rank.
        """
        if self._refusal or self._verdict_so_far or isinstance(error, StopRequestedError):
            return  # they know
        sentence, kind, status = str(error), FailureClass.OWN, error.exit_status
        # Later, such as after a change of the rank table, another runner may take the place of this one.
        restart = Restart.TRANSIENT if self._local.attempt else Restart.NEVER
        self._note_end()
        self._say(
            stage=Stage.DEAD,
            alive=0,
            failure=Failure(ending=sentence, status=status, kind=kind, at=time.monotonic()),
            diagnosed=Diagnosed(
                sentence=sentence, kind=kind, certainty="certain", status=status, restart=restart.value
            ),
        )
        verdict = self._await_verdict()
        if verdict and not verdict.restarts:
            error.exit_status = verdict.status
            if verdict.node != self.plan.node:
                self._setup.messages.error(str(verdict))

    def await_end(self, outcome: Outcome) -> Outcome:
        """Return the outcome of an attempt that no failure on this node has ended, as all nodes have it.

        With restarts, a node that has succeeded waits for the others; a stop signal ends that with its success. A node
        that a signal has stopped asks what came first: that signal, one to another node, or a failure.
        """
        if outcome.cause is None and self._spec.restarts.max_restarts:
            self._await_success()
        elif isinstance(outcome.cause, SignalReceived) and self._joined:
            stop = self._await_stop(outcome.cause.stop_signal) if outcome.cause.node is None else self._stop
            if self.plan.node == 0 and stop and not stop.signum:
                self._await_verdict()  # which the link process of this node makes: the others need it to go on
            if stop is None or stop.signum or stop.status == outcome.status:
                return self._of_stop(outcome)
            self._await_verdict()
        else:
            if isinstance(outcome.cause, LimitReached):  # so that the others do not wait for this node
                end = Failed(status=outcome.status, restart=outcome.cause.restart)
                diagnosed = _diagnosed(end, outcome)
                self._say(stage=Stage.DEAD, alive=0, diagnosed=diagnosed, is_stopped=_is_stopped(outcome))
            return outcome
        verdict = self._verdict_so_far
        if verdict is None or not (verdict.status or verdict.restarts) or (outcome.cause and verdict.restarts):
            return outcome
        cause = PeerFailed(attempt=verdict.attempt, sentence=str(verdict), exit_status=verdict.status or 1)
        return attrs.evolve(outcome, cause=cause)

    def stopped(self) -> Outcome:
        """Return the outcome of a job that a stop signal to this or another node has ended between two attempts."""
        signals = self._setup.signals
        if signals.stop_signum and self._joined:
            self._note_end()
            self._say(signum=signals.stop_signum)
            self._await(lambda: self._is_stopped, STOP_WORD, NODE_0)
        return self._of_stop(Outcome(cause=signals.first_stop()))

    def _of_stop(self, outcome: Outcome) -> Outcome:
        """Return an outcome as all nodes have it if a stop signal to one of them is for all."""
        stop, cause = self._stop if self._is_stopped else None, outcome.cause
        if not (stop and stop.signum and isinstance(cause, SignalReceived)):
            return outcome
        is_known = cause.stop_signal == stop.signum  # its sender is known as well
        cause = attrs.evolve(cause, node=stop.node) if is_known else _cause_of(stop)
        verdict = stopped_by(stop.attempt, stop.node or 0, stop.signum, is_sure=True)
        return attrs.evolve(outcome, cause=cause, verdict=verdict, node=self.plan.node)

    def _await_success(self) -> None:
        self._say(stage=Stage.DEAD, alive=0)
        attempt, signals = self._local.attempt, self._setup.signals
        while not (self._is_over(attempt) or signals.is_stopped()):
            signals.wait(1.0 if self._joined is None else 60.0)

    def _await_stop(self, signum: int) -> StopAll | None:
        self._note_end()
        # A scheduler signals ranks and runner at once: a rank that ended first was reported as a failure, but is none.
        told = {"failure": None, "signum": signum} if self._local.failure else {}
        self._say(stage=Stage.DEAD, alive=0, **told)
        self._await(lambda: self._is_stopped or self._verdict_so_far is not None, STOP_WORD, NODE_0)
        return self._stop if self._is_stopped else None

    def _await_verdict(self) -> JobVerdict | None:
        seconds = LAST_WORD + self._spec.stopping.grace
        what = f"{duration(seconds)} for the other nodes to stop their ranks"
        if self._joined is None:  # the link decides alone, unless it hears of node 0
            what = f"{duration(ALONE)} for node 0 to answer"
        self._await(lambda: self._verdict_so_far is not None or bool(self._refusal), seconds, what)
        return self._verdict_so_far

    @property
    def _verdict_so_far(self) -> JobVerdict | None:
        """The verdict on this attempt, or on a later one that this node has missed."""
        return self.verdict if self.verdict and self.verdict.attempt >= self._local.attempt else None

    def _await(self, is_over: Callable[[], bool], seconds: float, what: str) -> None:
        """Wait for news after the ranks have ended."""
        signals = self._setup.signals
        is_cut = self._patience(f"up to {what}")
        end = signals.now() + seconds
        while self._peers and self._peers.is_usable and not (is_over() or is_cut()):
            if signals.now() >= end:
                break
            signals.wait(min(end - signals.now(), 1.0))  # the link may turn out to be unusable

    def _note_end(self) -> None:
        if self._signum_before is None:
            self._signum_before = self._setup.signals.stop_signum

    def _patience(self, what: str) -> Callable[[], bool]:
        """Return what ends a wait, announced if long: Ctrl-C after the end of the ranks, or a second stop signal."""
        signals, messages = self._setup.signals, self._setup.messages
        due = signals.now() + LONG

        def is_cut() -> bool:
            nonlocal due
            if signals.now() >= due:
                due = math.inf
                messages.info(f"waiting {what} (Ctrl-C to stop waiting)")
            return signals.is_hurried() or (signals.stop_signum == SIGINT and not self._signum_before)

        return is_cut

    def _wait(self, is_over: Callable[[], bool], seconds: float | None = None) -> None:
        now = self._setup.signals.now
        end = None if seconds is None else now() + seconds
        while not is_over():
            self.check()
            if self._is_stopped:
                return  # the attempt begins and is stopped, so that the nodes agree on what follows
            if end is not None and now() >= end:
                return
            # Where a pod was replaced, the platform writes the table anew, perhaps with another address of node 0.
            is_table_due = self._rereads or (self._local.attempt > 0 and self.plan.table != "")
            if is_table_due:
                self._use_plan(self._read_plan())
            most = REREAD if is_table_due else 3600.0
            self._setup.wait_in_time(most if end is None else min(most, end - now()))

    # --- News, in a thread of the link --------------------------------------------------------------------------------

    def take_news(self) -> None:
        """Act on the news that have arrived."""
        for one in self._peers.news() if self._peers else ():
            self._take(one)
        self._setup.signals.wake()

    def _take(self, news: News) -> None:
        if isinstance(news, StopAll):
            self._stop = news
            self._pass_on(news)
        elif isinstance(news, VerdictReached):
            self.verdict = news.verdict
        elif isinstance(news, StartAll):
            self._started = news.attempt
        elif isinstance(news, Joined):
            self._joined = news
        elif isinstance(news, Refused):
            self._refusal = news.sentence
            refused = PeerFailed(attempt=self._local.attempt, sentence=news.sentence, exit_status=125)
            self._setup.requests.pass_on(refused)
        elif isinstance(news, (Waiting, Warned)):
            self._show(news)
        elif isinstance(news, Asked):
            self._carry_out(news)
        elif isinstance(news, (Answered, NodesKnown)):
            self._answers.put(news)

    def _show(self, news: Waiting | Warned) -> None:
        if isinstance(news, Warned):
            self._setup.messages.warning(news.sentence)
            return
        self._rereads, self._is_waiting = news.rereads_table, bool(news.sentence)
        if news.sentence:
            self._setup.messages.info(news.sentence)

    def _carry_out(self, asked: Asked) -> None:
        """Do on this node what was asked for the whole job, and say what came of it."""

        def answer(result: str) -> None:
            self._say(answered=asked.request_id, answer=result)

        try:
            if asked.request == "stop":
                self._say(signum=0 if self._local.failure else SIGTERM)  # before a stop by the others is the cause
                answer("stopping the ranks")
                self._setup.signals.request_stop()
            elif asked.request == "limit":
                control.change_limit(self._setup.requests, _members(asked.argument), self._setup.messages)
                answer("changed")
            elif asked.request == "checkpoint":
                self._setup.requests.ask_for_checkpoint(lambda came: answer(_result_of(came)))
            else:
                answer(f"{REFUSED}unknown request {asked.request!r}")
        except (AscendRunnerError, ValueError) as refused:
            answer(f"{REFUSED}{refused}")

    # --- Requests to the whole job, in threads ------------------------------------------------------------------------

    def ask(self, request: str, argument: str = "") -> str:
        """Ask all nodes for something, and describe their answers; "" without a link, or if node 0 is not reached.

        Raises:
            ValueError: No node has carried it out; or it is a checkpoint, which may need the ranks of all nodes, and
                node 0 no longer answers.
        """
        done = self._ask_all(request, argument)
        if not done and request == "checkpoint" and self._joined:
            raise ValueError(ALL_OR_NONE)
        return done

    def _ask_all(self, request: str, argument: str = "") -> str:
        answers = self._ask(Asked(request=request, argument=argument), ANSWER_WAIT)
        results = next((answer.results for answer in answers if isinstance(answer, Answered)), ())
        return of_all_nodes(results) if results else ""

    def rows(self) -> tuple[NodeRecord, ...]:
        """Return the nodes that this one knows of, none if its link does not answer at once."""
        parts = self._ask(Asked(request="nodes"), ROWS_WAIT)
        return tuple(row for part in parts if isinstance(part, NodesKnown) for row in part.nodes)

    def _ask(self, asked: Asked, seconds: float) -> list[Answered | NodesKnown]:
        """Ask the link, and return its whole answer, or nothing if that takes longer."""
        end = time.monotonic() + seconds
        if not (self._peers and self._peers.is_usable and self._asking.acquire(timeout=seconds)):
            return []
        try:
            answers = self._answers = SimpleQueue()
            self._peers.ask(asked)
            found: list[Answered | NodesKnown] = []
            while True:
                one = answers.get(timeout=max(0.0, end - time.monotonic()))
                if (one.request if isinstance(one, Answered) else "nodes") != asked.request:
                    continue  # it has come too late for the request before
                found.append(one)
                if isinstance(one, Answered) or one.is_last:
                    return found
        except Empty:
            return []
        finally:
            self._asking.release()

    @property
    def is_linked(self) -> bool:
        """Whether there is a link."""
        return self._peers is not None and self._peers.is_usable

    def ask_for_checkpoint(self) -> bool:
        """Ask all nodes for a checkpoint, and do not wait; return whether there is a link."""
        if not self.is_linked:
            return False
        with suppress(AscendRunnerError):  # no further thread is allowed
            if not (self._asker and self._asker.is_alive()):
                self._asker = bounded.start_thread(self._ask_or_save_alone)
            return True
        return False

    def _ask_or_save_alone(self) -> None:
        messages = self._setup.messages
        try:
            if done := self._ask_all("checkpoint"):
                messages.info(f"checkpoint: {done}")
            else:
                messages.warning(f"node 0 does not answer; the ranks are asked for a checkpoint {control.ONLY_HERE}")
                self._setup.requests.ask_for_checkpoint(lambda _came: None)
        except ValueError as refused:
            messages.warning(f"no checkpoint: {refused}")


def _result_of(asked: CheckpointAnswer) -> str:
    """Return the result of a request for a checkpoint on this node, for the whole job: equal ones are shown once."""
    if isinstance(asked, CheckpointAsked) and not asked.unreached:
        return "all ranks were asked for a checkpoint"
    if asked and (isinstance(asked, CheckpointPostponed) or asked.reached):
        return str(asked)
    return REFUSED + (str(asked) if asked else "the ranks are being stopped")


def of_all_nodes(results: Sequence[tuple[str, str]]) -> str:
    """Describe the results of a request: "nodes 0-2: all ranks were asked for a checkpoint; node 3: not reached".

    Raises:
        ValueError: No node has carried it out, or what the results say is no number of nodes.
    """
    found = [(parse_numbers(nodes), answer or "no answer") for nodes, answer in results]
    if len(found) == 1:
        text = f"{all_of(len(found[0][0]), 'node')}: {found[0][1]}"
    else:
        text = "; ".join(f"{node_list(numbers)}: {answer}" for numbers, answer in found)
    if all(answer in {"", NOT_REACHED} or answer.startswith(REFUSED) for _nodes, answer in results):
        raise ValueError(text)
    return text


def _members(text: str) -> Mapping[str, object]:
    """Return the object in a text.

    Raises:
        ValueError: There is none.
    """
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError("not an object")  # noqa: TRY004  as for other texts without one
    return found


def _settings(spec: JobSpec, plan: LinkPlan) -> channel.Settings:
    identity = Identity(
        node=plan.node,
        nodes=plan.nodes,
        incarnation=secrets.token_hex(8),
        host=os.uname().nodename,
        pod=spec.pod_name,
        address=spec.server_id,
        ranks=len(spec.ranks),
        max_restarts=spec.restarts.max_restarts,
        grace=spec.stopping.grace,
        link_timeout=plan.timeout,
    )
    return channel.Settings(
        identity=identity,
        key=plan.key.hex(),
        ports=plan.ports,
        hubs=plan.hubs,
        node_timeout=plan.node_timeout,
        delay=spec.restarts.delay,
        always=tuple(sorted(spec.restarts.always)),
        never=tuple(sorted(spec.restarts.never)),
        began=time.monotonic(),
        boot=Host().boot_id,
    )


def _cause_of(stop: StopAll) -> PeerFailed | SignalReceived:
    """Return the cause by which the ranks of this node are stopped."""
    if stop.signum:
        return SignalReceived(stop.signum, node=stop.node)
    rank = "" if stop.rank_id is None else f"rank {stop.rank_id}: "
    how = f" ({rank}{stop.ending})" if rank or stop.ending else ""
    is_clause = stop.node is None or f"node {stop.node} " in stop.ending  # such as "the runner of node 1 died"
    sentence = stop.ending if is_clause else f"node {stop.node} failed{how}"
    return PeerFailed(attempt=stop.attempt, sentence=sentence, exit_status=stop.status)


def _state_of(attempt: State) -> AnyState:
    """Return the state in which this node is shown: one with a cause of its own has failed, the others were stopped."""
    if attempt.phase is not Phase.DONE:
        return attempt.phase
    if attempt.cause is None:
        return JobState.SUCCEEDED
    return JobState.STOPPED if attempt.cause.is_elsewhere or attempt.cause.is_from_outside else JobState.FAILED


def _number(rank_id: int | None) -> int | None:
    """Return the number of a rank, None for a process without one."""
    return None if rank_id == NO_RANK else rank_id


def _is_peer_lost(cause: Cause | None) -> bool:
    """Whether the ranks were silent because HCCL has lost one of another node."""
    return isinstance(cause, HangDetected) and bool(cause.peer)


def _is_stopped(outcome: Outcome) -> bool:
    """Whether the runner has stopped all ranks of this node except the one that is the cause."""
    return all(rank.is_just_stopped for rank in outcome.ranks if rank is not outcome.failed)


def _diagnosed(end: Failed, outcome: Outcome) -> Diagnosed:
    """Return the description of a failure for the other nodes."""
    root, failed = outcome.root, outcome.failed
    kind = FailureClass.UNKNOWN
    if root and (root.look_at or root.is_a_consequence):
        kind = FailureClass.PEER
    elif root and not root.is_open:
        kind = FailureClass.OWN
    elif _is_peer_lost(outcome.cause):
        kind = FailureClass.PEER
    finding = failed.finding if failed else None
    lines = (finding.excerpt or finding.last_lines) if finding else ()
    known = dict(facts.of_finding(finding)) if finding else {}
    return Diagnosed(
        rank_id=_number(failed.rank_id) if failed else None,
        sentence=wording.sentence(outcome),
        kind=kind,
        certainty=root.certainty.value if root else LIKELY if outcome.is_from_outside else "",
        status=end.status,
        lines=tuple(line[:LONGEST_LINE] for line in lines[-MOST_LINES:]),
        log=failed.log_path if failed else "",
        means=known.get("means", "") or known.get("code", ""),
        next=known.get("next", ""),
        restart=end.restart.value,
        fingerprint=end.fingerprint,
        has_progressed=end.has_progressed,
    )

"""The loop that runs a job: wait, turn observations into events, ask the state machine, perform its actions.

It holds everything that the machine must not know (processes, output, time) and decides nothing. Its observations go to
the observers as facts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from signal import SIGCHLD, SIGKILL
from typing import Final

import attrs

from ascend_runner.guardian.signal_sets import STOP_SIGNALS
from ascend_runner.manager.cleanup import Cleanup
from ascend_runner.manager.hang_watch import HangWatch
from ascend_runner.manager.managed_node import ManagedNode
from ascend_runner.manager.request_watch import RequestWatch
from ascend_runner.observations.facts import Fact, Observer, SignalsSent, SignalUnhandled
from ascend_runner.plan.job import JobSpec, RankSpec
from ascend_runner.processes import leader
from ascend_runner.supervision import machine
from ascend_runner.supervision.events import (
    DeadlineReached,
    Emptied,
    Event,
    Exited,
    SignalReceived,
    Spawned,
    SpawnFailed,
)
from ascend_runner.supervision.state import (
    Action,
    AskToSave,
    AskToStop,
    Notify,
    Phase,
    SetDeadline,
    SignalGroup,
    Spawn,
    State,
)

HOLD_POLL: Final = 0.1  # seconds between two checks of the output of ranks that may still print the cause


class Manager:
    """Runs one job, once."""

    def __init__(self, job: JobSpec, node: ManagedNode, observers: Sequence[Observer]) -> None:
        self._job = job
        self._processes, self._output = node.processes, node.output
        self._clock, self._evidence = node.clock, node.evidence
        self._hangs = HangWatch(job, node, self._tell)
        self._requests = RequestWatch(job, node, self._tell)
        self._cleanup = Cleanup(job, node, self._requests, self._tell)
        self._observers = tuple(observers)
        self._specs = {spec.rank_id: spec for spec in job.processes}
        self._deadline: float | None = None  # the machine's
        self._grace_ends: float | None = None  # set once a teardown has begun
        self._events: deque[Event] = deque()  # in the order in which the machine gets them
        self._state = State(grace=job.grace)

    def run(self) -> None:
        """Run the job to its end. None of its processes is alive afterwards, and its output is in the log files.

        Raises:
            OutputError: A log file cannot be created; no rank was started.
            AscendRunnerError: The output of the ranks could no longer be read; all ranks were stopped.
        """
        self._output.start()
        self._state, actions = machine.start(
            tuple(self._specs), self._job.grace, self._job.stop_signum, checkpoint_grace=self._job.checkpoint_grace
        )
        self._tell(self._state)
        self._requests.note(self._state)
        self._hangs.begin()
        self._perform(actions)
        while self._state.phase is not Phase.DONE:
            self._events.extend(self._observe())
            self._handle(self._events.popleft())

        self._hangs.end()
        # A signal that arrived together with the last exit can still explain it.
        for signum in set(self._clock.wait(0.0)) & STOP_SIGNALS:
            self._state, _ = machine.transition(self._state, self._clock.received(signum))
        self._cleanup.run(self._state, self._grace_ends)
        self._tell(self._state)

    def _tell(self, fact: Fact, at: float | None = None) -> None:
        at = self._clock.now() if at is None else at
        for observer in self._observers:
            observer.observe(fact, at)

    # --- Performing ---------------------------------------------------------------------------------------------------

    def _handle(self, event: Event) -> None:
        before, cause = self._state.phase, self._state.cause
        self._state, actions = machine.transition(self._state, event)
        self._requests.note(self._state)
        if before is Phase.CHECKPOINTING is not self._state.phase:
            self._requests.end(self._state)
        is_stop_pending = self._state.phase is Phase.CHECKPOINTING and self._state.cause is not cause
        if self._state.phase is before is Phase.TERMINATING and (
            isinstance(event, DeadlineReached) or (isinstance(event, SignalReceived) and event.signum in STOP_SIGNALS)
        ):
            self._tell(event)
        if is_stop_pending or self._state.is_tearing_down:
            self._hangs.end()
        if is_stop_pending or self._state.phase not in {before, Phase.DONE}:
            if self._state.is_tearing_down:
                is_killing = self._state.phase is Phase.KILLING
                self._grace_ends = self._clock.now() + (0.0 if is_killing else self._job.grace)
            self._tell(self._state)
            if self._state.phase is Phase.TERMINATING and isinstance(self._state.cause, Exited):
                self._output.settle()
                for rank_id in sorted(self._state.alive):
                    self._tell(self._output.read_so_far(rank_id))
        self._perform(actions)
        # Reap last: until the machine has seen the end of the rank, it may signal the group.
        if isinstance(event, Emptied) or (isinstance(event, Exited) and not event.has_stragglers):
            self._tell(self._processes.reap(event.rank_id))

    def _perform(self, actions: Sequence[Action]) -> None:
        for action in actions:
            if isinstance(action, Spawn):
                began = self._clock.now()  # a short program has ended when spawn() returns
                event = self._spawn(self._specs[action.rank_id])
                self._tell(event, began)
                self._events.append(event)
            elif isinstance(action, AskToSave):
                self._events.append(self._requests.ask(frozenset(action.rank_ids)))
            elif isinstance(action, SetDeadline):
                self._deadline = self._clock.now() + action.seconds
        asked = {action.rank_id: action.signum for action in actions if isinstance(action, AskToStop)}
        if asked:
            ended = self._processes.ask_to_stop(asked)
            self._tell(SignalsSent({rank_id: signum for rank_id, signum in asked.items() if rank_id not in ended}))
        notified = {action.rank_id: action.signum for action in actions if isinstance(action, Notify)}
        if notified:
            reached = {rank_id: notified[rank_id] for rank_id in self._processes.notify(notified)}
            self._tell(SignalsSent(reached) if reached else SignalUnhandled(next(iter(notified.values()))))
        signaled = {action.rank_id: action.signum for action in actions if isinstance(action, SignalGroup)}
        if signaled:
            self._processes.signal(signaled)
            self._tell(SignalsSent(signaled))

    def _spawn(self, spec: RankSpec) -> Spawned | SpawnFailed:
        try:
            with self._output.open(spec.rank_id) as output:
                return Spawned(spec.rank_id, self._processes.spawn(spec, output))
        except OSError as error:
            return leader.explain_failure(error, spec)

    # --- Observing ----------------------------------------------------------------------------------------------------

    def _observe(self) -> list[Event]:
        """Return new events. Blocks until there are any, unless events are waiting already."""
        while True:
            if self._state.is_tearing_down and not self._events and not self._processes.has_killable():
                self._deadline = self._clock.now()  # the remaining processes can be neither asked nor killed
            signums = self._clock.wait(0.0 if self._events else self._time_to_next_check())
            is_over = self._deadline is not None and self._clock.now() >= self._deadline
            events: list[Event] = []
            for signum in signums:
                events += self._requests.read(signum, self._state.phase) if signum != SIGCHLD else []
            if SIGCHLD in signums or is_over or not (signums or self._events):  # the latter if a process has ended
                events = self._with_deaths(events)
            if isinstance(self._state.cause, Exited) and self._state.phase is Phase.HOLDING and not events:
                is_over = is_over or not self._is_open(self._state.cause)
            if is_over and not events:
                self._deadline = None
                events.append(DeadlineReached())
            is_quiet = not (events or self._events)
            events += self._hangs.look(self._state.leaders, is_quiet=is_quiet)
            events += self._requests.check(self._state)
            if events or self._events:
                return events

    def _time_to_next_check(self) -> float | None:
        moments = (self._deadline, self._hangs.next_check, self._requests.next_check(self._state))
        times = [moment - self._clock.now() for moment in moments if moment is not None]
        if self._state.phase is Phase.HOLDING:
            times.append(HOLD_POLL)
        return min(times, default=None)

    def _with_deaths(self, signals: list[Event]) -> list[Event]:
        deaths, is_ordered = self._processes.look()
        for event in deaths:
            self._tell(event)
        if self._state.is_tearing_down:
            return [*signals, *deaths]
        return self._in_order(signals, deaths, is_ordered=is_ordered)

    def _in_order(self, signals: Sequence[Event], deaths: Sequence[Event], *, is_ordered: bool) -> list[Event]:
        """Order the events of one wake-up; the order in which they were observed is meaningless.

        Ranks that failed by themselves come first, then signals, since a platform that stops a whole container means
        the runner first, then ranks that something else may have ended.
        """
        failures = [event for event in deaths if isinstance(event, Exited) and not event.ending.is_success]
        others = [event for event in deaths if event not in failures]
        if len(failures) > 1:
            self._output.settle()
            order = self._evidence().order_failures(
                [(event, self._output.read_so_far(event.rank_id)) for event in failures], is_ordered=is_ordered
            )
            failures.sort(key=lambda event: order.index(event.rank_id))
        elif failures and self._state.phase in {Phase.RUNNING, Phase.CHECKPOINTING}:
            failures = [attrs.evolve(failures[0], is_consequence=self._is_open(failures[0]))]
        own = [event for event in failures if event.ending.exit_status - 128 not in STOP_SIGNALS | {SIGKILL}]
        caused = [event for event in failures if event not in own]
        return [*own, *signals, *caused, *others]

    def _is_open(self, failure: Exited) -> bool:
        """Whether a rank reports only a lost peer while ranks that may yet report the cause are alive."""
        living = sorted(self._state.leaders - {failure.rank_id})
        if not living:
            return False
        self._output.settle()
        failed = failure, self._output.read_so_far(failure.rank_id)
        return self._evidence().is_open(failed, [self._output.read_so_far(rank_id) for rank_id in living])

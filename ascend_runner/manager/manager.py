"""The loop that runs an attempt: waits for events, asks the state machine what follows, and performs it.

It holds everything that the machine must not know (processes, output, time) and decides nothing. Its observations go to
the observers as facts. Three parts of it are classes of their own:

- `HangWatch`. When a silence has lasted for half of the limit, the stacks of the ranks are read once, without stopping
  the ranks. The stacks at the limit are compared with these: a rank that was elsewhere then is slow, or in an endless
  loop. Flight recorders are asked shortly before the limit, to learn which ranks respond. A rank that HCCL reports as
  lost or stuck makes a silence a hang at once.
- `EngineWatch` finds an engine that each rank starts, such as torchrun in a start script.
- `Cleanup`. After the last rank, processes that have left their rank's session are stopped, and output is completed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from signal import SIGCHLD, SIGKILL
from typing import TYPE_CHECKING, Final

import attrs

from ascend_runner.errors import AscendRunnerError
from ascend_runner.guardian.signal_sets import IMPATIENT_SIGNALS, STOP_SIGNALS
from ascend_runner.guardian.sweep import POLL_INTERVAL, SWEEP_LIMIT
from ascend_runner.manager.node import ManagedNode
from ascend_runner.manager.requests import RequestWatch
from ascend_runner.plan.spec import Attempt, JobSpec, RankSpec
from ascend_runner.ranks import leader
from ascend_runner.record.facts import Beat, Escaped, Fact, Observer, SignalsSent, SignalUnhandled, Swept
from ascend_runner.supervision import machine
from ascend_runner.supervision.causes import (
    Exited,
    HangDetected,
    PeerFailed,
    SignalReceived,
    SpawnFailed,
    WatchAction,
)
from ascend_runner.supervision.events import DeadlineReached, Emptied, Event, Spawned
from ascend_runner.supervision.silence import Silence
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

if TYPE_CHECKING:
    from ascend_runner.diagnosis.flight_recorder import Question
    from ascend_runner.diagnosis.stacks import RankStack


class HangWatch:
    """Watches the ranks of one job while they run."""

    def __init__(self, job: JobSpec, node: ManagedNode, tell: Callable[[Fact], None]) -> None:
        self._job = job
        self._node = node
        self._tell = tell
        self._silence: Silence | None = None  # while it can become a hang
        self._read_in: float | None = None  # the start of the silence in which stacks were read
        self._earlier: tuple[RankStack, ...] = ()  # these stacks, as long as the silence lasts
        self._hang: HangDetected | None = None  # a hang that has not ended the job, as long as it lasts
        self._hung_since = 0.0  # the last activity before it
        self._peers: list[str] = []  # what HCCL reports of other ranks, to be handled when nothing else has happened
        self._asked: Question | None = None  # the last question to flight recorders before a limit
        self._asked_in: float | None = None  # the start of the silence in which it was asked
        self._may_ask = True  # whether to ask before the limit in this silence

    @property
    def next_check(self) -> float | None:
        """The time of the next check, in seconds of the clock, or None if there is none."""
        if self._silence is None:
            return None
        return self._node.clock.now() if self._peers else self._silence.next_check

    def begin(self) -> None:
        """Watch from now on, if there is a limit."""
        limit = self._job.watching.hang_timeout
        if limit is not None:
            self._silence = Silence(limit if isinstance(limit, float) else None, since=self._node.clock.now())

    def end(self) -> None:
        """Stop watching. Ranks that are being stopped do not hang: reading their stacks would only delay SIGKILL."""
        self._silence = None
        if self._hang:
            rank_ids = {spec.rank_id for spec in self._job.processes}
            self._tell_end(self._last_activity(self._node.heartbeats.of(rank_ids)))
            self._hang = None
        if self._asked:
            self._asked.close()

    def look(self, living: Collection[int], *, is_quiet: bool) -> list[HangDetected]:
        """Detect that no rank has written for too long, or has sent a heartbeat where any of the living ones has.

        A hang is reported to the observers, and returned if it ends the job. Anything else that has happened (not
        `is_quiet`) is handled first.
        """
        silence, now = self._silence, self._node.clock.now()
        if silence:
            self._peers += self._node.peer_reports.take()
        if silence is None or not (self._peers or now >= silence.next_check):
            return []
        self._node.heartbeats.read()
        beats = self._node.heartbeats.of(living)
        last_activity = self._last_activity(beats)
        self._tell_end(last_activity)
        if self._peers and is_quiet:
            if last_activity > silence.since:  # which the next check would have noted
                self._end_silence(silence.since)
            hang = HangDetected(now - last_activity, has_heartbeats=bool(beats), peer="; ".join(self._peers))
            self._peers.clear()
            return self._report_hang(silence, hang, beats, last_activity)
        if now < silence.next_check:
            return []
        is_hang = self._check(silence, now, last_activity)
        if not is_quiet:
            return []
        if not is_hang:
            self._ask_once(silence)
            self._read_stacks_once(silence)
            return []
        return self._report_hang(silence, HangDetected(silence.limit, bool(beats)), beats, last_activity)

    def _check(self, silence: Silence, now: float, last_activity: float) -> bool:
        """Return whether the limit has been reached; end the silence if it is over."""
        began = silence.since
        is_held = last_activity <= began and self._node.processes.is_held()
        announced_until = self._node.heartbeats.announced_until
        is_hang = silence.check(now, last_activity, is_held=is_held, announced_until=announced_until)
        if silence.since != began:
            self._end_silence(began)
        return is_hang

    def _report_hang(
        self, silence: Silence, hang: HangDetected, beats: Mapping[int, Beat], last_activity: float
    ) -> list[HangDetected]:
        """Report a hang, then the stacks of the ranks, which takes a while. Return it if it ends the job.

        A hang that is only a warning is reported with the ranks that stand out, once they are known.
        """
        only_warns = self._job.watching.hang_action is WatchAction.WARN
        if not only_warns:
            self._tell(hang)
        self._node.output.ignore(self._node.evidence().is_own_log)
        seen = self._node.evidence().find_stacks(self._node.processes.pids(), self._earlier, self._asked)
        if only_warns:
            hang = attrs.evolve(hang, outlier=seen.outlier)
            self._tell(hang)
        self._tell(attrs.evolve(seen, beats=beats))
        if only_warns:
            if seen.was_asked:  # what the ranks have just written about that is no sign of life
                last_activity = self._last_activity(beats)
            silence.go_on(last_activity)
            self._hang, self._hung_since = hang, last_activity
            return []
        self._silence = None
        return [hang]

    def _last_activity(self, beats: Mapping[int, Beat]) -> float:
        return max((beat.at for beat in beats.values()), default=self._node.output.last_activity)

    def _ask_once(self, silence: Silence) -> None:
        """Ask the flight recorders once per silence, near the limit, unless the disk of an earlier dump hangs."""
        is_due = silence.is_nearly_over and self._may_ask and self._asked_in != silence.since
        if is_due and not (self._asked and self._asked.is_open):
            self._node.output.ignore(self._node.evidence().is_own_log)
            self._asked = self._node.evidence().ask_recorders(self._node.processes.pids())
            self._asked_in = silence.since

    def _end_silence(self, began: float) -> None:
        """Discard what was learned in the silence that `began` then.

        If ranks were asked in it, they are not asked before the next limit. Otherwise, a recorder with unrecognized
        messages would reset every limit.
        """
        self._may_ask = self._asked_in != began
        self._earlier = ()
        if self._asked:
            self._asked.close()

    def _tell_end(self, last_activity: float) -> None:
        """Report the end of the hang if any rank has been active since it began."""
        if self._hang and last_activity > self._hung_since:
            self._tell(attrs.evolve(self._hang, is_over=True))
            self._hang = None

    def _read_stacks_once(self, silence: Silence) -> None:
        if silence.is_half_over and self._read_in != silence.since:
            self._read_in = silence.since
            self._earlier = self._node.evidence().note_stacks(self._node.processes.pids(), silence.interval)
            # Reading may have taken longer than an interval, which must not look as if this process was suspended.
            silence.next_check = max(silence.next_check, self._node.clock.now())


ENGINE_CHECKS: Final = (3.0, 30.0)  # seconds after the start; torch alone takes some to be imported


class EngineWatch:
    """Looks for an engine below the ranks: at most twice, or earlier if a rank fails."""

    def __init__(self, job: JobSpec, node: ManagedNode, tell: Callable[[Fact], None]) -> None:
        self._node, self._tell = node, tell
        self._has_several = len(job.ranks) > 1
        self._moments: tuple[float, ...] = ()

    @property
    def next_check(self) -> float | None:
        """The time of the next check, in seconds of the clock, or None if there is none."""
        return next(iter(self._moments), None)

    def begin(self) -> None:
        """Schedule the checks, if there are several ranks."""
        now = self._node.clock.now()
        self._moments = tuple(now + seconds for seconds in ENGINE_CHECKS) if self._has_several else ()

    def look(self) -> None:
        """Report an engine, once, if it is time to look."""
        now = self._node.clock.now()
        if self._moments and now >= self._moments[0]:
            found = self._node.processes.find_engine()
            self._moments = () if found else tuple(moment for moment in self._moments if moment > now)
            if found:
                self._tell(found)

    def end(self, *, is_failure: bool) -> None:
        """Stop looking; after a failure, look once more."""
        if is_failure and self._moments:
            self._moments = (self._node.clock.now(),)
            self.look()
        self._moments = ()


DRAIN_LIMIT: Final = 1.0  # seconds without a byte stored, at the end, after which the log disk counts as hung
TELL_AFTER: Final = 1.0  # seconds; most processes that have left their rank's session end within moments
GIVEN_UP_LIMIT: Final = 0.5  # seconds; replaces SWEEP_LIMIT and DRAIN_LIMIT once a rank has survived SIGKILL


class Cleanup:
    """Cleans up after the ranks of one attempt, once."""

    def __init__(self, job: JobSpec, node: ManagedNode, requests: RequestWatch, tell: Callable[[Fact], None]) -> None:
        self._job = job
        self._processes, self._output, self._clock = node.processes, node.output, node.clock
        self._requests = requests
        self._tell = tell
        self._stop_signals = 0  # SIGTERM and SIGINT that have arrived; of those before the ranks ended, only one counts

    def run(self, state: State, grace_ends: float | None) -> None:
        """Clean up in the final state of the machine. `grace_ends` is the end of the grace if a teardown has begun.

        Raises:
            AscendRunnerError: The output of the ranks could no longer be read.
        """
        self._stop_signals += state.is_interrupted
        grace_ends = self._clock.now() + self._job.stopping.grace if grace_ends is None else grace_ends
        self._wait_for_escaped(state.stop_signum, grace_ends)
        has_survivors = self._sweep(GIVEN_UP_LIMIT if state.alive else SWEEP_LIMIT)
        self._finish_output(GIVEN_UP_LIMIT if has_survivors else DRAIN_LIMIT)

    def _wait_for_escaped(self, stop_signum: int, grace_ends: float) -> None:
        """Ask processes outside their rank's session to stop; wait until the grace ends or a stop signal arrives."""
        told_at = self._clock.now() + TELL_AFTER
        while self._processes.has_escaped():
            now = self._clock.now()
            if now >= grace_ends:
                return
            if now >= told_at:
                told_at = grace_ends
                self._tell(Escaped(grace_ends - now))
            self._processes.ask_escaped(stop_signum)
            if STOP_SIGNALS.intersection(self._wait(min(told_at, grace_ends) - now)):
                return

    def _sweep(self, limit: float) -> bool:
        """Kill them: nothing started by this job may outlive it. Return whether any process is still alive.

        After a second SIGTERM or SIGINT, the guardian ends what is left.
        """
        deadline = self._clock.now() + limit
        killed: dict[int, str] = {}
        while self._processes.has_escaped():
            found = self._processes.kill_escaped()
            if self._is_hurried():
                deadline = min(deadline, self._clock.now() + GIVEN_UP_LIMIT)
            elif found.keys() - killed.keys():  # some that fork and exit: it makes a difference to go on
                deadline = self._clock.now() + limit
            killed.update(found)
            if self._clock.now() >= deadline:
                break
            self._wait(min(deadline - self._clock.now(), POLL_INTERVAL))
        survivors = self._processes.survivors()
        if killed or survivors:
            self._tell(Swept(killed=killed, survivors=survivors))
        return bool(survivors)

    def _finish_output(self, limit: float) -> None:
        """Wait for the last output. No process of the job is alive, unless it survived SIGKILL."""
        self._output.finish(limit, self._is_cut)
        failure = self._output.failure
        if failure:
            raise AscendRunnerError(
                f"stopped all ranks because their output could no longer be read: {failure!r}"
            ) from failure
        for spec in self._job.processes:
            self._tell(self._output.read_so_far(spec.rank_id))

    def _is_cut(self) -> bool:
        """Whether a second SIGTERM or SIGINT has arrived: nothing is waited for any longer (law 4)."""
        self._wait(0.0)
        return self._is_hurried()

    def _is_hurried(self) -> bool:
        return self._stop_signals > 1

    def _wait(self, seconds: float) -> Sequence[int]:
        """Wait, count the stop signals that arrive, and refuse requests for a checkpoint."""
        signums = self._clock.wait(seconds)
        for signum in signums:
            self._requests.read(signum, Phase.DONE)
        self._stop_signals += sum(signum in IMPATIENT_SIGNALS for signum in signums)
        return signums


HOLD_POLL: Final = 0.1  # seconds between two checks of ranks that may print the cause within `machine.HOLD`


class Manager:
    """Runs one job, once."""

    def __init__(
        self, attempt: Attempt, processes: Sequence[RankSpec], node: ManagedNode, observers: Sequence[Observer]
    ) -> None:
        job = self._job = attempt.job
        self._processes, self._output = node.processes, node.output
        self._clock, self._evidence = node.clock, node.evidence
        self._hangs = HangWatch(job, node, self._tell)
        self._engines = EngineWatch(job, node, self._tell)
        self._requests = RequestWatch(attempt, node, self._tell)
        self._cleanup = Cleanup(job, node, self._requests, self._tell)
        self._observers = tuple(observers)
        self._specs = {spec.rank_id: spec for spec in processes}
        self._deadline: float | None = None  # the machine's
        self._grace_ends: float | None = None  # set once a teardown has begun
        self._events: deque[Event] = deque()  # in the order in which the machine gets them
        self._state = State(grace=job.stopping.grace)

    def run(self) -> None:
        """Run the job to its end. None of its processes is alive afterwards, and its output is in the log files.

        Raises:
            OutputError: A log file cannot be created; no rank was started.
            AscendRunnerError: The output of the ranks could no longer be read; all ranks were stopped.
        """
        self._output.start()
        self._events.extend(self._requests.check(self._state))
        self._state, actions = self._begin()
        if self._state.phase is not Phase.DONE:
            self._tell(self._state)
        self._requests.note(self._state)
        self._hangs.begin()
        self._engines.begin()
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

    def _begin(self) -> machine.Step:
        stopping = self._job.stopping
        for event in self._events:
            if isinstance(event, (PeerFailed, SignalReceived)):  # another node may have failed before this one starts
                return machine.start_stopped(event, stopping.grace)
        return machine.start(
            tuple(self._specs),
            stopping.grace,
            stopping.stop_signum,
            checkpoint_grace=stopping.checkpoint_grace,
            recovery=stopping.recovery,
        )

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
            # Before the ranks are asked to stop: engines below them may be gone at once.
            self._engines.end(is_failure=self._state.cause is not None and self._state.cause.ending is not None)
        if is_stop_pending or self._state.phase not in {before, Phase.DONE}:
            if self._state.is_tearing_down:
                is_killing = self._state.phase is Phase.KILLING
                self._grace_ends = self._clock.now() + (0.0 if is_killing else self._state.grace)
            self._tell(self._state)
            if self._state.phase is Phase.TERMINATING and self._state.cause and self._state.cause.ending:
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
                self._events.append(self._requests.ask(frozenset(action.rank_ids), self._state))
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
            if self._state.held and not events:
                is_over = is_over or not self._is_open(self._state.held)
            if is_over and not events:
                self._deadline = None
                events.append(DeadlineReached())
            is_quiet = not (events or self._events)
            events += self._hangs.look(self._state.leaders, is_quiet=is_quiet)
            events += self._requests.check(self._state)
            self._engines.look()
            if events or self._events:
                return events

    def _time_to_next_check(self) -> float | None:
        checks = self._hangs.next_check, self._engines.next_check, self._requests.next_check(self._state)
        moments = (self._deadline, *checks)
        times = [moment - self._clock.now() for moment in moments if moment is not None]
        if self._state.held:
            times.append(HOLD_POLL * machine.hold(self._state.held, self._state.grace) / machine.HOLD)
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
        elif failures and self._state.phase in {Phase.RUNNING, Phase.CHECKPOINTING, Phase.HOLDING}:
            is_open = self._is_open(failures[0])
            has_report = is_open and self._evidence().has_report(self._output.read_so_far(failures[0].rank_id))
            failures = [attrs.evolve(failures[0], is_consequence=is_open, has_report=has_report)]
        own = [event for event in failures if event.ending.exit_status - 128 not in STOP_SIGNALS | {SIGKILL}]
        caused = [event for event in failures if event not in own]
        return [*own, *signals, *caused, *others]

    def _is_open(self, failure: Exited) -> bool:
        """Whether a rank reports only a lost peer while ranks that may yet report the cause are alive."""
        living = sorted(self._state.leaders - {failure.rank_id})
        if not living:
            return False
        self._output.settle()
        output = self._output.read_so_far(failure.rank_id)
        if not output.size:  # without a word it reports no peer, and the others need not wait for the catalogue
            return False
        return self._evidence().is_open((failure, output), [self._output.read_so_far(rank_id) for rank_id in living])

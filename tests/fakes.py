"""A node in virtual time: processes, output, clock and evidence for the manager, without a process or a second passed.

The fakes keep the contracts of `manager.node`, see tests/manager/test_managed_node.py.
Misuse that the kernel would punish only sometimes, such as signalling a reaped rank, fails here at once.
"""

from __future__ import annotations

import functools
import heapq
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from signal import SIGCHLD, SIGKILL, SIGSTOP, SIGTERM
from typing import Final, TypeVar

import attrs

from ascend_runner.diagnosis.flight_recorder import Question
from ascend_runner.diagnosis.stacks import RankStack
from ascend_runner.guardian.signal_sets import STOP_SIGNALS
from ascend_runner.manager.node import ManagedNode
from ascend_runner.plan.spec import RankSpec
from ascend_runner.record.facts import Beat, EngineSeen, Fact, HangSeen, RankOutput, RankReaped, SavedCheckpoint
from ascend_runner.services.control import Requests
from ascend_runner.supervision.causes import Ending, Exited, SignalReceived
from ascend_runner.supervision.events import Emptied

MOST_WAITS: Final = 10_000  # of one job; more is a loop that polls
FIRST_PID: Final = 1000
OneFact = TypeVar("OneFact")


@attrs.frozen(kw_only=True)
class Behaviour:
    """The behaviour of a rank. `dies_of` gives the seconds from a signal to the end that it causes; others are ignored.

    With `has_child`, a child in the same session outlives the leader; it dies of the same signals. `notes` are the
    signals that it has a handler for, besides.
    """

    exits: tuple[float, Ending] | None = None  # by itself, so many seconds after its start
    dies_of: Mapping[int, float] = {SIGTERM: 0.0, SIGKILL: 0.0}
    has_child: bool = False
    notes: Collection[int] = ()


class FakeClock:
    """Virtual time: it passes only while the manager waits, and jumps to the next thing that happens."""

    def __init__(self) -> None:
        self._now = 0.0
        self._order = itertools.count()
        self._happenings: list[tuple[float, int, Callable[[], object]]] = []
        self._signals: list[int] = []
        self._is_woken = False
        self.late_by = 0.0  # seconds by which the first wait without a signal returns late
        self._waits = 0

    def at(self, moment: float, happen: Callable[[], object]) -> None:
        """Let something happen at a moment; what happens at the same moment does so in the order of these calls."""
        heapq.heappush(self._happenings, (moment, next(self._order), happen))

    def receive(self, *signums: int) -> None:
        """Let signals arrive now."""
        self._signals += signums

    def receive_at(self, signum: int, *moments: float) -> None:
        """Let a signal arrive at some moments."""
        for moment in moments:
            self.at(moment, functools.partial(self.receive, signum))

    def wake(self) -> None:
        """End the wait."""
        self._is_woken = True

    def now(self) -> float:
        """Return the virtual time."""
        return self._now

    def wait(self, seconds: float | None) -> Sequence[int]:
        """Let time pass until a signal arrives, at most `seconds`."""
        self._waits += 1
        assert self._waits < MOST_WAITS, "the manager polls"
        end = None if seconds is None else self._now + max(0.0, seconds)
        self._let_happen(self._now)
        while not (self._signals or self._is_woken) and self._is_next_by(end):
            self._now = self._happenings[0][0]
            self._let_happen(self._now)
        if not (self._signals or self._is_woken):
            assert end is not None, "the manager waits forever"
            self._now = end + (self.late_by if seconds else 0.0)
            self.late_by = 0.0 if seconds else self.late_by
        self._is_woken = False
        signals, self._signals = self._signals, []
        return sorted(signals, key=lambda signum: signum not in STOP_SIGNALS)

    def received(self, signum: int) -> SignalReceived:
        """Return what a signal means: nobody kills the guardian."""
        return SignalReceived(signum)

    def spend(self, seconds: float) -> None:
        """Let time pass while the manager does something else than wait."""
        self._now += seconds

    def _is_next_by(self, end: float | None) -> bool:
        return bool(self._happenings) and (end is None or self._happenings[0][0] <= end)

    def _let_happen(self, until: float) -> None:
        while self._happenings and self._happenings[0][0] <= until:
            heapq.heappop(self._happenings)[2]()


@attrs.define
class _Rank:
    pid: int
    behaviour: Behaviour
    ending: Ending | None = None
    is_reported: bool = False
    is_child_alive: bool = False
    is_child_reported: bool = False


class FakeProcesses:
    """Ranks that follow a script, and processes that have left their rank's session."""

    def __init__(self, clock: FakeClock) -> None:
        self.behaviours: dict[int, Behaviour] = {}  # of ranks that do not only wait for a signal
        self.spawn_errors: dict[int, OSError] = {}
        self.when_spawned: dict[int, Callable[[], None]] = {}
        self.escaped: dict[int, tuple[str, bool]] = {}  # name, and whether it survives SIGKILL, by pid
        self.spawned: list[int] = []
        self.signalled: list[tuple[float, int, int]] = []  # when, rank, signal
        self.notified: list[tuple[int, int]] = []  # rank, signal
        self.notify_seconds = 0.0  # how long it takes to signal the ranks
        self.held_checks = 0
        self.engine_checks: list[float] = []  # when
        self.engines: dict[int, tuple[str, float]] = {}  # the engine that a rank runs, and from when on
        self.escaped_asked: list[tuple[float, int]] = []  # when, signal
        self.has_order = True
        self.refused: set[int] = set()  # ranks that may not be signalled
        self._is_stopped = False
        self._asked: set[tuple[int, bool]] = set()
        self._clock = clock
        self._ranks: dict[int, _Rank] = {}
        self._deaths: list[int] = []  # in their order

    def spawn(self, spec: RankSpec, output: int) -> int:
        """Start a rank."""
        assert output >= 0
        if spec.rank_id in self.spawn_errors:
            raise self.spawn_errors[spec.rank_id]
        behaviour = self.behaviours.get(spec.rank_id, Behaviour())
        rank = _Rank(FIRST_PID + spec.rank_id, behaviour, is_child_alive=behaviour.has_child)
        self._ranks[spec.rank_id] = rank
        self.spawned.append(spec.rank_id)
        if behaviour.exits:
            seconds, ending = behaviour.exits
            self._clock.at(self._clock.now() + seconds, lambda: self.end(spec.rank_id, ending))
        self.when_spawned.get(spec.rank_id, lambda: None)()
        return rank.pid

    def end(self, rank_id: int, ending: Ending) -> None:
        """Let the leader of a rank end now, unless it has."""
        rank = self._ranks[rank_id]
        if rank.ending is None:
            rank.ending = ending
            self._deaths.append(rank_id)
            self._clock.receive(SIGCHLD)

    def look(self) -> tuple[Sequence[Exited | Emptied], bool]:
        """Return what has ended since the last call."""
        events: list[Exited | Emptied] = []
        for rank_id, rank in self._ranks.items():
            if rank.is_reported and rank.is_child_reported and not rank.is_child_alive:
                rank.is_child_reported = False
                events.append(Emptied(rank_id))
        for rank_id in self._deaths if self.has_order else sorted(self._deaths):
            rank = self._ranks[rank_id]
            assert rank.ending
            rank.is_reported, rank.is_child_reported = True, rank.is_child_alive
            events.append(Exited(rank_id, rank.ending, has_stragglers=rank.is_child_alive))
        self._deaths.clear()
        return events, self.has_order

    def ask_to_stop(self, signums: Mapping[int, int]) -> Collection[int]:
        """Ask each rank that was not asked before; a child is asked when its leader has ended.

        Return the ranks that have ended since the last look.
        """
        ended = {rank_id for rank_id in signums if self._ranks[rank_id].ending and not self._ranks[rank_id].is_reported}
        for rank_id, signum in signums.items():
            asked = (rank_id, self._ranks[rank_id].is_reported)
            if asked not in self._asked:
                self._asked.add(asked)
                self.signal({rank_id: signum})
        return ended

    def ask_escaped(self, signum: int) -> None:
        """Ask the processes outside the ranks' own sessions; those of a test do not listen."""
        self.escaped_asked.append((self._clock.now(), signum))

    def begin_to_note(self, rank_id: int, signum: int) -> None:
        """Let a rank handle a signal from now on."""
        rank = self._ranks[rank_id]
        rank.behaviour = attrs.evolve(rank.behaviour, notes={*rank.behaviour.notes, signum})

    def notify(self, signums: Mapping[int, int]) -> Collection[int]:
        """Send each rank that handles it its signal."""
        handled = {
            rank_id: signum for rank_id, signum in signums.items() if signum in self._ranks[rank_id].behaviour.notes
        }
        self.notified += handled.items()
        self._clock.spend(self.notify_seconds)
        return handled.keys()

    def signal(self, signums: Mapping[int, int]) -> None:
        """Send each rank its signal; a rank that was reaped is an error here."""
        for rank_id, signum in signums.items():
            rank = self._ranks[rank_id]
            self.signalled.append((self._clock.now(), rank_id, signum))
            self._is_stopped = signum == SIGSTOP
            if signum in rank.behaviour.dies_of:
                moment = self._clock.now() + rank.behaviour.dies_of[signum]
                self._clock.at(moment, functools.partial(self._die, rank_id, signum))

    def _die(self, rank_id: int, signum: int) -> None:
        rank = self._ranks.get(rank_id)
        if rank is None:
            return
        if rank.is_child_alive:
            rank.is_child_alive = False
            self._clock.receive(SIGCHLD)
        self.end(rank_id, Ending(signum=signum))

    def reap(self, rank_id: int) -> RankReaped:
        """Return the pid of a rank back."""
        rank = self._ranks.pop(rank_id)
        assert rank.is_reported
        assert not rank.is_child_alive
        return RankReaped(rank_id=rank_id, max_rss=1, user_seconds=0.0, system_seconds=0.0)

    def pids(self) -> Mapping[int, int]:
        """Return the pid of each rank whose leader is alive."""
        return {rank_id: rank.pid for rank_id, rank in self._ranks.items() if not rank.is_reported}

    def has_killable(self) -> bool:
        """Whether any process is alive that may be signalled."""
        living = (rank_id for rank_id, rank in self._ranks.items() if rank.ending is None or rank.is_child_alive)
        return bool(self.escaped or set(living) - self.refused)

    def find_engine(self) -> EngineSeen | None:
        """Return an engine that a rank runs by now."""
        self.engine_checks.append(self._clock.now())
        for rank_id, (engine, since) in self.engines.items():
            if rank_id in self.pids() and self._clock.now() >= since:
                return EngineSeen(rank_id, engine, self._ranks[rank_id].pid)
        return None

    def is_held(self) -> bool:
        """Whether the ranks were stopped."""
        self.held_checks += 1
        return self._is_stopped

    def has_escaped(self) -> bool:
        """Whether any process outside the ranks' own sessions is alive."""
        return bool(self.escaped)

    def kill_escaped(self) -> Mapping[int, str]:
        """Kill every process outside the ranks' own sessions, but those that survive it."""
        names = {pid: name for pid, (name, _is_stuck) in self.escaped.items()}
        self.escaped = {pid: (name, is_stuck) for pid, (name, is_stuck) in self.escaped.items() if is_stuck}
        self._clock.receive(*[SIGCHLD] * (len(names) > len(self.escaped)))
        return names

    def survivors(self) -> tuple[str, ...]:
        """Describe all processes that are still alive, by their pid."""
        ranks = [
            f"rank {rank_id}: {rank.pid} (program)" for rank_id, rank in self._ranks.items() if rank.ending is None
        ]
        return (*ranks, *(f"{pid} ({name})" for pid, (name, _is_stuck) in self.escaped.items()))


class FakeOutput:
    """Output that tests write themselves."""

    def __init__(self, clock: FakeClock) -> None:
        self.last_activity = clock.now()
        self.failure: BaseException | None = None
        self.open_errors: dict[int, OSError] = {}
        self.when_finishing: Callable[[], None] = lambda: None
        self.finish_limits: list[float] = []
        self.was_cut = False
        self._clock = clock
        self._data: dict[int, bytes] = {}
        self._is_no_activity: Callable[[bytes], bool] | None = None

    def start(self) -> None:
        """Begin."""

    @contextmanager
    def open(self, rank_id: int) -> Iterator[int]:
        """Return an fd for a rank."""
        if rank_id in self.open_errors:
            raise self.open_errors[rank_id]
        yield rank_id

    def write(self, rank_id: int, data: bytes) -> None:
        """Let a rank write now."""
        self._data[rank_id] = self._data.get(rank_id, b"") + data
        if not (self._is_no_activity and self._is_no_activity(data)):
            self.last_activity = self._clock.now()

    def ignore(self, is_no_activity: Callable[[bytes], bool]) -> None:
        """Ignore output from now on."""
        self._is_no_activity = is_no_activity

    def settle(self) -> None:
        """Everything is read at once."""

    def read_so_far(self, rank_id: int) -> RankOutput:
        """Return what a rank wrote."""
        data = self._data.get(rank_id, b"")
        return RankOutput(rank_id=rank_id, size=len(data), tail=data)

    def finish(self, seconds: float, is_cut: Callable[[], bool]) -> None:
        """Record the limit, and whether it was cut short."""
        self.finish_limits.append(seconds)
        self.when_finishing()
        self.was_cut = is_cut()


LOGGED: Final = b"dumping\n"  # what flight recorders log


class FakeEvidence:
    """Suspects the ranks of `suspects` first, in this order, then the others as they come."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self.suspects: Sequence[int] = ()
        self.was_ordered: bool | None = None
        self.open_until = -1.0  # seconds of the clock; a failure before is a consequence of something not told yet
        self.looked_at: Mapping[int, int] = {}
        self.looked_at_saving = False
        self.when_looking: Callable[[], None] = lambda: None
        self.was_asked = False  # whether flight recorders are asked for dumps when ranks are looked at
        self.asked_at: list[float] = []  # and when they were before
        self.question = Question({})  # the next one
        self.questions: list[Question] = []
        self.when_asked: Callable[[], None] = lambda: None
        self.noted_at: list[float] = []
        self.noting_takes = 0.0  # seconds
        self.compared_with: list[float] = []  # when the stacks were noted

    def order_failures(self, failures: Sequence[tuple[Exited, RankOutput]], *, is_ordered: bool) -> Sequence[int]:
        """Return the suspects first."""
        self.was_ordered = is_ordered
        rank_ids = [exited.rank_id for exited, _output in failures]
        return [*(rank_id for rank_id in self.suspects if rank_id in rank_ids), *rank_ids]

    def is_open(self, failure: tuple[Exited, RankOutput], living: Sequence[RankOutput]) -> bool:
        """Return whether the moment at which the cause is reported is yet to come."""
        assert living, "no rank is left that could report the cause"
        assert not failure[0].ending.is_success
        return self._clock.now() < self.open_until

    def has_report(self, failure: RankOutput) -> bool:
        """Return whether HCCL will report the cause."""
        return b"EI0006" in failure.tail

    def find_stacks_while_saving(self, pids: Mapping[int, int], seconds: float) -> HangSeen:
        """Return no stacks, after all of the time."""
        self.looked_at, self.looked_at_saving = dict(pids), True
        self._clock.spend(seconds)
        return HangSeen(())

    def ask_recorders(self, pids: Mapping[int, int]) -> Question:
        """Record when, and ask nobody."""
        assert pids
        self.asked_at.append(self._clock.now())
        self.when_asked()
        self.questions.append(self.question)
        return self.questions[-1]

    @staticmethod
    def is_own_log(data: bytes) -> bool:
        """Return whether output is what the recorders of tests log."""
        return not data.replace(LOGGED, b"")

    def find_stacks(self, pids: Mapping[int, int], earlier: Sequence[RankStack], asked: Question | None) -> HangSeen:
        """Return no stacks."""
        assert asked is (self.questions[-1] if self.questions else None)
        self.looked_at, self.looked_at_saving = dict(pids), False
        self.compared_with += [self.noted_at[stack.rank_id] for stack in earlier]
        self.when_looking()
        return HangSeen((), was_asked=self.was_asked)

    def note_stacks(self, pids: Mapping[int, int], seconds: float) -> tuple[RankStack, ...]:
        """Take a while to read stacks whose rank id is the number of this call."""
        assert pids
        assert seconds > 0
        self.noted_at.append(self._clock.now())
        self._clock.spend(self.noting_takes)
        return (RankStack(len(self.noted_at) - 1, ()),)


class FakeHeartbeats:
    """Heartbeats that tests send themselves."""

    def __init__(self, clock: FakeClock) -> None:
        self.announced_until = 0.0
        self._clock = clock
        self.saving_ranks: set[int] = set()
        self._beats: dict[int, Beat] = {}
        self._saved: dict[int, SavedCheckpoint] = {}
        self.unread: list[int] = []  # ranks that have saved, as the next `read` will find
        self.unread_beats: list[int] = []  # and those that have shown that they are alive

    def send(self, rank_id: int) -> None:
        """Let a rank show that it is alive now."""
        self._beats[rank_id] = Beat(at=self._clock.now())

    def save(self, rank_id: int, step: int | None = None) -> None:
        """Let a rank report a checkpoint now."""
        self._saved[rank_id] = SavedCheckpoint(at=self._clock.now(), step=step)
        self._clock.wake()

    def read(self) -> None:
        """Take a while to read what was not read at once."""
        for rank_id in self.unread:
            self.save(rank_id)
            self._clock.spend(0.1)
        for rank_id in self.unread_beats:
            self.send(rank_id)
        self.unread.clear()
        self.unread_beats.clear()

    def saved_since(self, moment: float) -> Mapping[int, SavedCheckpoint]:
        """Return the ranks that have reported a checkpoint since then."""
        return {rank_id: saved for rank_id, saved in self._saved.items() if saved.at >= moment}

    def of(self, rank_ids: Collection[int]) -> Mapping[int, Beat]:
        """Return the last beats of those ranks that have sent any."""
        return {rank_id: beat for rank_id, beat in self._beats.items() if rank_id in rank_ids}


class FakePeerReports:
    """Reports of HCCL that tests make themselves."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self._new: list[str] = []

    def report(self, sentence: str) -> None:
        """Let HCCL report a rank now."""
        self._new.append(sentence)
        self._clock.wake()

    def take(self) -> Sequence[str]:
        """Return the reports since the last call."""
        taken, self._new = self._new, []
        return taken


class FakeNode:
    """A node for one job."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.processes = FakeProcesses(self.clock)
        self.output = FakeOutput(self.clock)
        self.evidence = FakeEvidence(self.clock)
        self.heartbeats = FakeHeartbeats(self.clock)
        self.peer_reports = FakePeerReports(self.clock)
        self.requests = Requests(self.clock)

    @property
    def node(self) -> ManagedNode:
        """The node as the manager gets it."""
        return ManagedNode(
            processes=self.processes,
            output=self.output,
            clock=self.clock,
            evidence=lambda: self.evidence,
            heartbeats=self.heartbeats,
            peer_reports=self.peer_reports,
            requests=self.requests,
        )


class Recording:
    """An observer that keeps all facts, with their times."""

    def __init__(self, when: Callable[[Fact], None] = lambda _fact: None) -> None:
        """`when` is called with each fact, while the manager waits for the observer."""
        self.timed: list[tuple[Fact, float]] = []
        self._when = when

    @property
    def facts(self) -> list[Fact]:
        """The facts without their times."""
        return [fact for fact, _at in self.timed]

    def of(self, kind: type[OneFact]) -> list[OneFact]:
        """Return the facts of one type."""
        return [fact for fact in self.facts if isinstance(fact, kind)]

    def times_of(self, kind: type[Fact]) -> list[float]:
        """Return when the facts of one type were observed."""
        return [at for fact, at in self.timed if isinstance(fact, kind)]

    def observe(self, fact: Fact, at: float) -> None:
        """Keep one more."""
        self.timed.append((fact, at))
        self._when(fact)

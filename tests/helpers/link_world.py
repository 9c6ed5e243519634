"""A job of several nodes in simulated time: the real hub and spokes, model runners, and a network that may misbehave.

Each machine has a monotonic clock and a wall clock of its own. Messages are encoded to JSON as on the wire, delayed,
lost and repeated as the world's network decides. A model runner does what a runner does on news: it stops its ranks,
proves that they are dead, explains its failure, prepares the next attempt, or leaves with an exit status.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable, Mapping
from signal import SIGTERM
from typing import Any

import attrs

from ascend_runner.link import hub as hub_rules
from ascend_runner.link import spoke as spoke_rules
from ascend_runner.link.hub import Hub
from ascend_runner.link.messages import (
    LARGEST_MESSAGE,
    Diagnosed,
    Failure,
    FailureClass,
    Identity,
    Joined,
    Local,
    News,
    Refused,
    Stage,
    StartAll,
    StopAll,
    VerdictReached,
)
from ascend_runner.link.protocol import (
    FIRST_WORD,
    HUB,
    AllDead,
    Event,
    LocalChanged,
    Received,
    RunnerGone,
    Send,
    Tell,
    Tick,
    Wake,
)
from ascend_runner.link.spoke import Spoke
from ascend_runner.record.nodes import JobVerdict
from ascend_runner.supervision.job_machine import Policy


@attrs.frozen(kw_only=True)
class Network:
    """What happens to a message: after which delays in seconds it arrives, once, never or several times."""

    fate: Callable[[int, float], tuple[float, ...]] = lambda _node, _at: (0.001,)  # of a message to or from a node


@attrs.frozen(kw_only=True)
class Habits:
    """How long a model runner takes, in seconds."""

    prepare: float = 0.1
    stop: float = 0.05
    diagnose: float = 0.05


@attrs.define(eq=False)
class Machine:
    """A node: its spoke, its model runner and what that has seen."""

    world: World
    spoke: Spoke
    habits: Habits = attrs.Factory(Habits)
    clock: float = 0.0  # its monotonic clock when the world began
    local: Local = attrs.Factory(Local)
    news: list[tuple[float, News]] = attrs.Factory(list)
    runs: list[tuple[int, float, float]] = attrs.Factory(list)  # attempt, first and last moment of living ranks
    kind: FailureClass = FailureClass.OWN  # of its last failure
    failed_at: float | None = None  # when that happened, in the world's time
    is_cut: bool = False  # no message passes
    is_off: bool = False  # the machine is gone
    has_runner: bool = True
    wake: float = float("inf")

    @property
    def node(self) -> int:
        """Return its rank among the nodes."""
        return self.spoke.identity.node

    @property
    def verdicts(self) -> list[JobVerdict]:
        """Return the verdicts that its runner has learned."""
        return [news.verdict for _at, news in self.news if isinstance(news, VerdictReached)]

    @property
    def is_refused(self) -> bool:
        """Whether it was refused."""
        return any(isinstance(news, Refused) for _at, news in self.news)

    @property
    def is_alive(self) -> bool:
        """Whether ranks of it run."""
        return bool(self.runs) and self.runs[-1][2] == float("inf")

    def begin(self, patience: float = FIRST_WORD) -> None:
        """Start the runner, which starts its ranks: with restarts after it has heard of the others, or `patience`."""
        self.tell(stage=Stage.PREPARING)
        if not self.world.max_restarts:
            patience = 0.0
        self.world.after(self.habits.prepare + patience, lambda: self.run(0))

    def run(self, attempt: int) -> None:
        """Start the ranks, unless the runner has been stopped meanwhile."""
        if (
            attempt == self.local.attempt
            and self.local.stage in {Stage.PREPARING, Stage.READY}
            and not self.is_off
            and self.has_runner
        ):
            self.runs.append((self.local.attempt, self.world.now, float("inf")))
            self.tell(stage=Stage.RUNNING, alive=self.spoke.identity.ranks)

    def fail(self, kind: FailureClass = FailureClass.OWN, *, shown: FailureClass | None = None, rank: int = 0) -> None:
        """Let a rank fail; at first it is `shown` as this class."""
        if self.local.stage is not Stage.RUNNING or not self.has_runner:
            return
        self.kind, self.failed_at = kind, self.world.now
        failure = Failure(rank_id=rank, ending="exit status 7", status=7 + self.node, kind=shown or kind, at=self.at())
        self.tell(failure=failure)
        self.stop_ranks()

    def stop_ranks(self) -> None:
        """Ask the ranks to stop, or give up preparing them."""
        if self.local.stage is Stage.RUNNING:
            self.tell(stage=Stage.STOPPING)
            self.world.after(self.habits.stop, self.die)
        elif self.local.stage in {Stage.PREPARING, Stage.READY}:
            self.tell(stage=Stage.DEAD)

    def die(self) -> None:
        """Let all ranks be dead."""
        if self.is_off:
            return
        if self.is_alive:
            attempt, first, _ever = self.runs[-1]
            self.runs[-1] = (attempt, first, self.world.now)
        if not self.has_runner:
            self.feed(AllDead((), self.at()))
            return
        self.tell(stage=Stage.DEAD, alive=0, is_stopped=True)
        if self.local.failure:
            self.world.after(self.habits.diagnose, self.explain)

    def explain(self) -> None:
        """Diagnose the failure."""
        failure = self.local.failure
        if failure is None or not self.has_runner or self.local.stage is Stage.LEFT:
            return
        diagnosed = Diagnosed(
            rank_id=failure.rank_id,
            sentence=f"error on node {self.node}",
            kind=self.kind,
            certainty="certain",
            status=failure.status,
            restart="transient",
            fingerprint=f"node {self.node}",
        )
        self.tell(diagnosed=diagnosed)

    def succeed(self) -> None:
        """Let all ranks exit with 0."""
        if self.local.stage is Stage.RUNNING:
            attempt, first, _ever = self.runs[-1]
            self.runs[-1] = (attempt, first, self.world.now)
            if self.spoke.identity.max_restarts:
                self.tell(stage=Stage.DEAD, alive=0)
            else:
                self.tell(stage=Stage.LEFT, status=0, alive=0)

    def signal(self, signum: int = SIGTERM) -> None:
        """Let the runner receive a stop signal."""
        if self.has_runner and self.local.stage is not Stage.LEFT:
            self.tell(signum=signum)
            self.stop_ranks()

    def kill_runner(self) -> None:
        """Kill the runner; its guardian ends the ranks."""
        if self.has_runner:
            self.has_runner = False
            self.feed(RunnerGone(self.at()))
            self.world.after(self.habits.stop, self.die)

    def vanish(self) -> None:
        """Let the machine lose power."""
        self.is_off = True
        if self.is_alive:
            attempt, first, _ever = self.runs[-1]
            self.runs[-1] = (attempt, first, self.world.now)

    def at(self) -> float:
        """Return the time of its monotonic clock."""
        return self.clock + self.world.now

    def tell(self, **changes: Any) -> None:
        """Say something new of this node."""
        self.local = attrs.evolve(self.local, **changes)
        self.feed(LocalChanged(self.local, self.at()))

    def feed(self, event: Event) -> None:
        """Let the spoke see an event, and perform what it returns."""
        if self.is_off:
            return
        self.spoke, actions = spoke_rules.transition(self.spoke, event)
        for action in actions:
            if isinstance(action, Send):
                self.world.send(self, action.message)
            elif isinstance(action, Wake):
                self.wake = self.world.wake(self.wake, action.at - self.clock, self.tick)
            elif isinstance(action, Tell) and self.has_runner:
                self.news.append((self.world.now, action.news))
                self.hear(action.news)

    def tick(self) -> None:
        """Let the time come that the spoke has asked for."""
        self.wake = float("inf")
        self.feed(Tick(self.at()))

    def hear(self, news: News) -> None:
        """Do what a runner does on news."""
        if isinstance(news, StopAll) and news.attempt == self.local.attempt:
            self.stop_ranks()
        elif isinstance(news, VerdictReached):
            self.world.after(0.0, lambda: self.follow(news.verdict))
        elif isinstance(news, StartAll) and news.attempt == self.local.attempt:
            self.world.after(0.0, lambda: self.run(news.attempt))
        elif isinstance(news, Refused):
            self.world.after(0.0, lambda: self.leave(125))
        elif isinstance(news, Joined) and news.attempt:
            self.world.after(0.0, lambda: self.catch_up(news.attempt))
        elif isinstance(news, Joined) and self.spoke.identity.max_restarts:
            self.world.after(self.habits.prepare, lambda: self.run(0))

    def follow(self, verdict: JobVerdict) -> None:
        """Prepare the next attempt, or leave, once the ranks are dead."""
        if self.is_alive:  # it has to end them first
            self.world.after(self.habits.stop, lambda: self.follow(verdict))
        elif verdict.restarts and not self.local.signum:
            self.prepare(verdict.attempt + 1)
        elif verdict.attempt >= self.local.attempt:
            self.leave(verdict.status)

    def catch_up(self, attempt: int) -> None:
        """Go on with the attempt of the others."""
        if self.is_alive:
            self.stop_ranks()
            self.world.after(self.habits.stop, lambda: self.catch_up(attempt))
        else:
            self.prepare(attempt)

    def prepare(self, attempt: int) -> None:
        """Prepare an attempt."""
        if attempt > self.local.attempt and self.local.stage is not Stage.LEFT and self.has_runner:
            self.local = Local(attempt=attempt, table=self.local.table)
            self.tell(stage=Stage.PREPARING)
            self.world.after(self.habits.prepare, lambda: self.be_ready(attempt))

    def be_ready(self, attempt: int) -> None:
        """Have prepared an attempt."""
        if self.local.attempt == attempt and self.local.stage is Stage.PREPARING and self.has_runner:
            self.tell(stage=Stage.READY)

    def leave(self, status: int) -> None:
        """Exit with this status."""
        if self.local.stage is not Stage.LEFT and self.has_runner:
            if self.is_alive:
                self.world.after(self.habits.stop, lambda: self.leave(status))
                self.stop_ranks()
                return
            self.tell(stage=Stage.LEFT, status=status)


@attrs.define(eq=False)
class World:
    """A job of several nodes; `now` is in seconds of a clock that nobody there has."""

    nodes: int
    network: Network = attrs.Factory(Network)
    max_restarts: int = 0
    grace: float = 15.0
    link_timeout: float = 600.0
    node_timeout: float | None = None
    clocks: Mapping[int, tuple[float, float]] = {}  # monotonic and wall clock of a node, in seconds
    habits: Habits = attrs.Factory(Habits)
    now: float = 0.0
    machines: dict[int, Machine] = attrs.Factory(dict)
    former: list[Machine] = attrs.Factory(list)
    hub: Hub | None = None
    hub_clock: float = 0.0
    hub_wake: float = float("inf")
    queue: list[tuple[float, int, Callable[[], object]]] = attrs.Factory(list)
    count: int = 0
    largest: int = 0  # bytes of a message

    def identity(self, node: int, incarnation: str = "") -> Identity:
        """Return what a node says of itself."""
        return Identity(
            node=node,
            nodes=self.nodes,
            incarnation=incarnation or f"runner-{node}",
            pod=f"pod-{node}",
            ranks=8,
            max_restarts=self.max_restarts,
            grace=self.grace,
            link_timeout=self.link_timeout,
        )

    def start(self) -> World:
        """Start the hub and all nodes."""
        self.start_hub()
        for node in range(self.nodes):
            self.boot(node)
        return self

    def start_hub(self, incarnation: str = "runner-0", **changes: Any) -> None:
        """Start the hub of node 0, or a new one."""
        monotonic, wall = self.clocks.get(0, (0.0, 0.0))
        self.hub_clock = 1000.0 + monotonic
        self.hub_wake = float("inf")
        self.hub = Hub(
            identity=attrs.evolve(self.identity(0, incarnation), **changes),
            policy=Policy(max_restarts=self.max_restarts, delay=0.0),
            node_timeout=self.node_timeout,
            epoch=1.5e9 + wall - self.hub_clock,
        )

    def boot(self, node: int, incarnation: str = "", *, begins: bool = True, **changes: Any) -> Machine:
        """Start a node; one that was there before is replaced."""
        monotonic, wall = self.clocks.get(node, (0.0, 0.0))
        if node in self.machines:
            self.former.append(self.machines[node])
        clock = 1000.0 + monotonic
        identity = attrs.evolve(self.identity(node, incarnation), **changes)
        spoke = Spoke(identity=identity, epoch=1.5e9 + wall - clock)
        machine = Machine(self, spoke, self.habits, clock=clock)
        self.machines[node] = machine
        if begins:
            machine.begin()
        return machine

    def after(self, seconds: float, do: Callable[[], object]) -> None:
        """Do something later."""
        self.count += 1
        heapq.heappush(self.queue, (self.now + seconds, self.count, do))

    def wake(self, before: float, at: float, tick: Callable[[], None]) -> float:
        """Schedule a tick unless one comes earlier."""
        if at < before:
            self.after(max(0.0, at - self.now), tick)
            return at
        return before

    def send(self, machine: Machine, message: Mapping[str, object]) -> None:
        """Carry a message of a node to the hub."""
        if machine.is_cut or machine.is_off:
            return
        data = self.encoded(message)
        route = f"{machine.spoke.identity.incarnation}/{machine.node}".encode()
        for delay in self.fates(machine.node):
            self.after(delay, lambda: self.feed_hub(Received(route, json.loads(data), self.now + self.hub_clock)))

    def fates(self, node: int) -> tuple[float, ...]:
        """Return the delays after which a message to or from a node arrives."""
        return (0.0,) if node == 0 else self.network.fate(node, self.now)

    def encoded(self, message: Mapping[str, object]) -> str:
        """Return a message as on the wire."""
        data = json.dumps(message)
        self.largest = max(self.largest, len(data))
        assert len(data) <= LARGEST_MESSAGE
        return data

    def feed_hub(self, event: Event) -> None:
        """Let the hub see an event, and perform what it returns."""
        if self.hub is None or self.machines[0].is_off:
            return
        self.hub, actions = hub_rules.transition(self.hub, event)
        for action in actions:
            if isinstance(action, Send):
                self.deliver(action)
            elif isinstance(action, Wake):
                self.hub_wake = self.wake(self.hub_wake, action.at - self.hub_clock, self.tick_hub)
            elif isinstance(action, Tell):
                self.machines[0].news.append((self.now, action.news))

    def deliver(self, action: Send) -> None:
        """Carry a message of the hub to a node."""
        incarnation = action.peer.decode().partition("/")[0]
        data = self.encoded(action.message)
        for machine in (*self.machines.values(), *self.former):
            if machine.spoke.identity.incarnation == incarnation and not machine.is_cut:
                for delay in self.fates(machine.node):
                    self.after(delay, lambda to=machine: to.feed(Received(HUB, json.loads(data), to.at())))  # type: ignore[misc]  # bound now

    def tick_hub(self) -> None:
        """Let the time come that the hub has asked for."""
        self.hub_wake = float("inf")
        self.feed_hub(Tick(self.now + self.hub_clock))

    def play(self, seconds: float) -> World:
        """Let time pass."""
        end = self.now + seconds
        while self.queue and self.queue[0][0] <= end:
            self.now, _count, do = heapq.heappop(self.queue)
            do()
        self.now = end
        return self

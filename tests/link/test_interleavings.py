"""The laws of the link in every interleaving of 3 nodes with 2 failures: see `ascend_runner.link.protocol`.

At most one message is under way in each direction of a connection: a newer one replaces it, as if it had been lost.
An answer of the hub without news arrives at once. Time passes only when nothing else can happen. All nodes are linked.

Beside failures, there may be troubles: a stop signal to a runner, the death of one, or a new link process of node 0,
with which all messages get lost.

There are hundreds of thousands of states, of few different machines: equal values have one number, so that states are
compared, and transitions remembered, by numbers.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
from collections.abc import Iterator
from signal import SIGTERM
from typing import Any, Final, NamedTuple

import attrs
import pytest

from ascend_runner.link import hub as hub_rules
from ascend_runner.link import spoke as spoke_rules
from ascend_runner.link.hub import Hub
from ascend_runner.link.messages import (
    Diagnosed,
    Failure,
    FailureClass,
    Identity,
    Local,
    News,
    Stage,
    StartAll,
    StopAll,
    VerdictReached,
)
from ascend_runner.link.protocol import (
    HUB,
    Action,
    AllDead,
    Event,
    LocalChanged,
    Received,
    RunnerGone,
    Send,
    Tell,
    Tick,
)
from ascend_runner.link.spoke import Spoke
from ascend_runner.record.nodes import JobVerdict
from ascend_runner.supervision.job_machine import Policy

STEP: Final = 0.5  # seconds that pass when nothing else happens
LIVING: Final = {Stage.RUNNING, Stage.STOPPING}
STOPPED: Final = 128 + SIGTERM
ALONE: Final = 30.0  # seconds after which a runner ends without a verdict
VALUES: Final[list[Any]] = []  # by their numbers
NUMBERS: Final[dict[bytes, int]] = {}


def number(value: object) -> int:
    """Return the number of a value."""
    digest = hashlib.blake2b(repr(value).encode(), digest_size=16).digest()
    if digest not in NUMBERS:
        NUMBERS[digest] = len(VALUES)
        VALUES.append(value)
    return NUMBERS[digest]


class Job(NamedTuple):
    """Hub, spokes and runners of a job, and what is under way between them, by their numbers."""

    hub: int
    spokes: tuple[int, ...]
    locals: tuple[int, ...]
    up: tuple[int | None, ...]
    down: tuple[int | None, ...]
    seen: tuple[int | None, ...]  # what the hub has said to each last
    verdicts: tuple[tuple[int, ...], ...]
    signalled: tuple[bool, ...]  # runners that have received a stop signal
    failures: int = 0  # that may still happen
    troubles: int = 0  # likewise
    has_new_hub: bool = False
    now: float = 1.0


def begin(nodes: int, max_restarts: int) -> Job:
    """Return a job in which all nodes have joined and run."""
    usual = Identity(node=0, nodes=nodes, incarnation="", max_restarts=max_restarts, link_timeout=5.0, grace=1.0)
    identities = [attrs.evolve(usual, node=node, incarnation=f"r{node}") for node in range(nodes)]
    job = Job(
        hub=number(new_hub(identities[0])),
        spokes=tuple(number(Spoke(identity=identity)) for identity in identities),
        locals=(number(Local()),) * nodes,
        up=(None,) * nodes,
        down=(None,) * nodes,
        seen=(None,) * nodes,
        verdicts=((),) * nodes,
        signalled=(False,) * nodes,
    )
    for node in range(nodes):
        job = tell(job, node, stage=Stage.RUNNING)
    return calm(job)


def new_hub(identity: Identity) -> Hub:
    """Return the hub of a link process that starts."""
    return Hub(identity=identity, policy=Policy(max_restarts=identity.max_restarts, delay=0.0))


def put(items: tuple[Any, ...], index: int, item: Any) -> tuple[Any, ...]:
    """Return a tuple with another item."""
    return (*items[:index], item, *items[index + 1 :])


def local_of(job: Job, node: int) -> Local:
    """Return what a runner has said last."""
    local: Local = VALUES[job.locals[node]]
    return local


def tell(job: Job, node: int, **changes: Any) -> Job:
    """Let a runner say something new."""
    local = attrs.evolve(local_of(job, node), **changes)
    job = job._replace(locals=put(job.locals, node, number(local)))
    if local.stage is Stage.RUNNING:
        others = [local_of(job, other) for other in range(len(job.locals))]
        assert not [o for o in others if o.attempt < local.attempt and o.stage in LIVING], "law 5: attempts overlap"
    return at_spoke(job, node, LocalChanged, job.locals[node])


@functools.cache
def react(machine: int, kind: type[Event], what: int | None, peer: bytes, at: float) -> tuple[int, tuple[Action, ...]]:
    """Return a machine after an event, and its actions. Messages have no numbers: the newest replaces the others."""
    state, about = VALUES[machine], () if what is None else (VALUES[what],)
    event = kind(peer, *about, at) if kind is Received else kind(*about, at)  # type: ignore[call-arg]  # of all kinds
    if isinstance(state, Hub):
        hub, actions = hub_rules.transition(state, event)
        peers = {node: attrs.evolve(known, seq=0) for node, known in hub.peers.items()}
        return number(attrs.evolve(hub, seq=0, peers=peers)), actions
    spoke, actions = spoke_rules.transition(state, event)
    return number(attrs.evolve(spoke, seq=0, hub_seq=0, joined=None, body=None, wire_body={})), actions


def at_spoke(job: Job, node: int, kind: Any, what: int | None = None) -> Job:
    """Let a spoke see an event."""
    spoke, actions = react(job.spokes[node], kind, what, HUB, job.now)
    job = job._replace(spokes=put(job.spokes, node, spoke))
    for action in actions:
        if isinstance(action, Send):
            job = job._replace(up=put(job.up, node, sent(action)))
        elif isinstance(action, Tell):
            job = hear(job, node, action.news)
    return job


def at_hub(job: Job, kind: Any, node: int = 0, what: int | None = None) -> Job:
    """Let the hub see an event."""
    hub, actions = react(job.hub, kind, what, b"%d" % node, job.now)
    job = job._replace(hub=hub)
    for action in actions:
        if isinstance(action, Send):
            to, message = int(action.peer), sent(action)
            if job.down[to] is None and view_of(message) == job.seen[to]:  # an answer without news needs no choice
                job = deliver(job, to, message)
            else:
                job = job._replace(down=put(job.down, to, message))
    return job


def sent(action: Send) -> int:
    """Return a message as it arrives."""
    message = json.loads(json.dumps(action.message))
    return number({**message, "header": {**message["header"], "seq": 1}})


def view_of(message: int) -> int:
    """Return what the hub says in a message."""
    return number(VALUES[message]["view"])


def deliver(job: Job, node: int, message: int) -> Job:
    """Let a message of the hub arrive."""
    job = job._replace(down=put(job.down, node, None), seen=put(job.seen, node, view_of(message)))
    return at_spoke(job, node, Received, message)


def hear(job: Job, node: int, news: News) -> Job:
    """Let a runner do what it does on news."""
    stage = local_of(job, node).stage
    if stage in {Stage.GONE, Stage.LEFT}:
        return job
    if isinstance(news, StopAll) and stage in {Stage.RUNNING, Stage.READY, Stage.PREPARING}:
        return tell(job, node, stage=Stage.STOPPING if stage is Stage.RUNNING else Stage.DEAD)
    if isinstance(news, VerdictReached) and news.verdict.attempt >= len(job.verdicts[node]):  # no new link process's
        return job._replace(verdicts=put(job.verdicts, node, (*job.verdicts[node], number(news.verdict))))
    if isinstance(news, StartAll):
        return tell(job, node, stage=Stage.RUNNING)
    return job


def possible(job: Job) -> Iterator[Job]:
    """Return what can happen next."""
    for node in range(len(job.locals)):
        up, down = job.up[node], job.down[node]
        if up is not None:
            yield at_hub(job._replace(up=put(job.up, node, None)), Received, node, up)
        if down is not None:
            yield deliver(job, node, down)
        yield from _runner(job, node)
        yield from _trouble(job, node) if job.troubles else ()


def _runner(job: Job, node: int) -> Iterator[Job]:
    """Return what the runner of a node can do next."""
    local, verdicts = local_of(job, node), job.verdicts[node]
    verdict: JobVerdict | None = VALUES[verdicts[-1]] if verdicts else None
    if local.stage is Stage.RUNNING and job.failures:
        for kind in (FailureClass.OWN, FailureClass.PEER):
            failure = Failure(status=7 + node, kind=kind, at=job.now)
            yield tell(job._replace(failures=job.failures - 1), node, failure=failure, stage=Stage.STOPPING)
    elif local.stage is Stage.STOPPING:
        yield tell(job, node, stage=Stage.DEAD)
    elif local.stage is Stage.DEAD and local.failure and not local.diagnosed:
        found = Diagnosed(sentence=f"{node}", kind=local.failure.kind, certainty="certain", status=7 + node)
        yield tell(job, node, diagnosed=found)
    elif local.stage is Stage.GONE:
        dead = number(attrs.evolve(local, stage=Stage.LEFT))
        yield at_spoke(job._replace(locals=put(job.locals, node, dead)), node, AllDead, number(()))
    elif local.stage in {Stage.DEAD, Stage.READY} and verdict and verdict.attempt == local.attempt:
        if verdict.restarts and job.signalled[node]:
            yield tell(job, node, stage=Stage.LEFT, status=STOPPED, signum=SIGTERM)
        elif verdict.restarts:
            empty = job._replace(locals=put(job.locals, node, number(Local(attempt=local.attempt + 1))))
            yield tell(empty, node, stage=Stage.READY)
        else:
            yield tell(job, node, stage=Stage.LEFT, status=verdict.status)
    elif local.stage is Stage.DEAD and job.now >= ALONE:
        yield tell(job, node, stage=Stage.LEFT, status=1)


def _trouble(job: Job, node: int) -> Iterator[Job]:
    """Return what may happen to a node once."""
    stage, job = local_of(job, node).stage, job._replace(troubles=job.troubles - 1)
    if stage in {Stage.LEFT, Stage.GONE}:
        return
    hit = job._replace(signalled=put(job.signalled, node, True))
    if stage is Stage.RUNNING:
        yield tell(hit, node, signum=SIGTERM, stage=Stage.STOPPING)
    elif stage is Stage.READY:
        yield tell(hit, node, signum=SIGTERM, stage=Stage.LEFT, status=STOPPED)
    else:
        yield hit
    if node:
        gone = number(attrs.evolve(local_of(job, node), stage=Stage.GONE))
        yield at_spoke(job._replace(locals=put(job.locals, node, gone)), node, RunnerGone)
    else:
        identity = VALUES[job.spokes[0]].identity
        spokes = put(job.spokes, 0, number(Spoke(identity=identity)))
        none = (None,) * len(job.locals)
        empty = job._replace(up=none, down=none, seen=none, has_new_hub=True)
        job = empty._replace(spokes=spokes, hub=number(new_hub(identity)))
        yield at_spoke(job, 0, LocalChanged, job.locals[0])


def calm(job: Job) -> Job:
    """Deliver everything that is under way, in the order of the nodes."""
    while any(message is not None for message in (*job.up, *job.down)):
        for node in range(len(job.locals)):
            up, down = job.up[node], job.down[node]
            if up is not None:
                job = at_hub(job._replace(up=put(job.up, node, None)), Received, node, up)
            if down is not None:
                job = deliver(job, node, down)
    return job


def pass_time(job: Job) -> Job:
    """Let time pass for all."""
    job = job._replace(now=job.now + STEP)
    for node in range(len(job.locals)):
        job = at_spoke(job, node, Tick)
    return calm(at_hub(job, Tick))


def is_over(job: Job) -> bool:
    """Whether every runner has left, or runs and will go on."""
    stages = {local_of(job, node).stage for node in range(len(job.locals))}
    return stages in ({Stage.LEFT}, {Stage.RUNNING})


def explore(start: Job, most: float) -> list[Job]:
    """Return the ends of all histories, unless there are more than about `most` states."""
    seen, to_do, ends = {start}, [start], []
    while to_do and len(seen) < most:
        job = to_do.pop()
        nexts = list(possible(job))
        if not nexts and not is_over(job):
            assert job.now < 60.0, "nobody waits for ever"
            nexts = [pass_time(job)]
        ends += [] if nexts else [job]
        for after in nexts:
            if after not in seen:
                seen.add(after)
                to_do.append(after)
    return ends


def check(job: Job) -> None:
    """Check that the nodes have learned the same verdicts, and have left with the same status (law 3).

    Those with a stop signal may leave before that, and what a link process knew is lost with it.
    """
    verdicts: list[JobVerdict] = [VALUES[verdict] for of_node in job.verdicts for verdict in of_node]
    assert not [verdict for verdict in verdicts if verdict.certainty == "certain" and verdict.kind not in {"own", ""}]
    if job.has_new_hub:
        return
    linked = [
        node
        for node, has_left_early in enumerate(job.signalled)
        if not has_left_early and (local_of(job, node).status is not None or local_of(job, node).stage is Stage.RUNNING)
    ]
    assert 1 == len({job.verdicts[node] for node in linked}), job.verdicts
    statuses = {local_of(job, node).status for node in linked} - {None}
    assert statuses <= {VALUES[verdict].status for verdict in job.verdicts[linked[0]][-1:]}


def check_all(start: Job, most: float = math.inf) -> None:
    """Check the ends of all histories."""
    ends = explore(start, most)
    assert ends
    for job in ends:
        check(job)


@pytest.mark.parametrize("max_restarts", [0, 1])
def test_laws_in_many_interleavings(max_restarts: int) -> None:
    """A failure anywhere ends, or restarts, the job on all nodes with one verdict."""
    check_all(begin(3, max_restarts)._replace(failures=1), 500)


@pytest.mark.deep
@pytest.mark.parametrize("max_restarts", [0, 1])
def test_laws_in_every_interleaving(max_restarts: int) -> None:
    """Two failures of any class, at any time, on any of three nodes: still one verdict for each attempt.

    There are 24,000 histories without a restart, and 162,000 with one.
    """
    check_all(begin(3, max_restarts)._replace(failures=2))


@pytest.mark.deep
@pytest.mark.parametrize(("nodes", "failures"), [(3, 0), (2, 1)])
@pytest.mark.parametrize("max_restarts", [0, 1])
def test_laws_in_every_interleaving_with_trouble(max_restarts: int, nodes: int, failures: int) -> None:
    """A stop signal, a runner that dies or a new link process of node 0, at any time: nothing overlaps, and all end.

    Three nodes with a failure and a trouble have 1,300,000 states, which take four minutes.
    """
    check_all(begin(nodes, max_restarts)._replace(failures=failures, troubles=1))

"""The laws of the link in every interleaving of 3 nodes of which 2 fail: see `ascend_runner.link.protocol`.

At most one message is under way in each direction of a connection: a newer one replaces it, as if it had been lost.
An answer of the hub without news arrives at once. Time passes only when nothing else can happen. All nodes are linked.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

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
from ascend_runner.link.protocol import HUB, Event, LocalChanged, Received, Send, Tell, Tick
from ascend_runner.link.spoke import Spoke
from ascend_runner.record.nodes import JobVerdict
from ascend_runner.supervision.job_machine import Policy

NODES = 3
STEP = 0.5  # seconds that pass when nothing else happens
LIVING = {Stage.RUNNING, Stage.STOPPING}


@attrs.frozen(kw_only=True)
class Job:
    """Hub, spokes and runners of a job, and what is under way between them."""

    hub: Hub
    spokes: tuple[Spoke, ...]
    locals: tuple[Local, ...]
    up: tuple[dict[str, Any] | None, ...] = (None,) * NODES
    down: tuple[dict[str, Any] | None, ...] = (None,) * NODES
    seen: tuple[object, ...] = (None,) * NODES  # what the hub has said to each last
    verdicts: tuple[tuple[JobVerdict, ...], ...] = ((),) * NODES
    failures: int = 0
    now: float = 1.0

    @property
    def key(self) -> str:
        """Return what the future depends on: not the numbers of messages."""
        hub = attrs.evolve(self.hub, seq=0, peers={n: attrs.evolve(p, seq=0) for n, p in self.hub.peers.items()})
        spokes = [attrs.evolve(spoke, seq=0, hub_seq=0, joined=None) for spoke in self.spokes]
        under_way = [message for message in (*self.up, *self.down) if message]
        messages = [{**message, "header": {**message["header"], "seq": 0}} for message in under_way]
        at = [message is not None for message in (*self.up, *self.down)]
        return repr((attrs.evolve(hub, wire_view={}), spokes, self.locals, messages, at, self.verdicts, self.failures))


def begin(max_restarts: int) -> Job:
    """Return a job in which all nodes have joined and run."""
    identities = [
        Identity(node=node, nodes=NODES, incarnation=f"r{node}", max_restarts=max_restarts) for node in range(NODES)
    ]
    hub = Hub(identity=identities[0], policy=Policy(max_restarts=max_restarts, delay=0.0))
    job = Job(hub=hub, spokes=tuple(Spoke(identity=identity) for identity in identities), locals=(Local(),) * NODES)
    for node in range(NODES):
        job = tell(job, node, stage=Stage.RUNNING)
    return calm(job)


def put(items: tuple[Any, ...], index: int, item: Any) -> tuple[Any, ...]:
    """Return a tuple with another item."""
    return (*items[:index], item, *items[index + 1 :])


def tell(job: Job, node: int, **changes: Any) -> Job:
    """Let a runner say something new."""
    local = attrs.evolve(job.locals[node], **changes)
    job = attrs.evolve(job, locals=put(job.locals, node, local))
    if local.stage is Stage.RUNNING:
        assert not [o for o in job.locals if o.attempt < local.attempt and o.stage in LIVING], "law 5: attempts overlap"
    return at_spoke(job, node, LocalChanged(local, job.now))


def at_spoke(job: Job, node: int, event: Event) -> Job:
    """Let a spoke see an event."""
    spoke, actions = spoke_rules.transition(job.spokes[node], event)
    job = attrs.evolve(job, spokes=put(job.spokes, node, spoke))
    for action in actions:
        if isinstance(action, Send):
            job = attrs.evolve(job, up=put(job.up, node, json.loads(json.dumps(action.message))))
        elif isinstance(action, Tell):
            job = hear(job, node, action.news)
    return job


def at_hub(job: Job, event: Event) -> Job:
    """Let the hub see an event."""
    hub, actions = hub_rules.transition(job.hub, event)
    job = attrs.evolve(job, hub=hub)
    for action in actions:
        if isinstance(action, Send):
            node, message = int(action.peer), json.loads(json.dumps(action.message))
            if job.down[node] is None and message["view"] == job.seen[node]:  # an answer without news needs no choice
                job = deliver(job, node, message)
            else:
                job = attrs.evolve(job, down=put(job.down, node, message))
    return job


def deliver(job: Job, node: int, message: dict[str, Any]) -> Job:
    """Let a message of the hub arrive."""
    job = attrs.evolve(job, down=put(job.down, node, None), seen=put(job.seen, node, message["view"]))
    return at_spoke(job, node, Received(HUB, message, job.now))


def hear(job: Job, node: int, news: News) -> Job:
    """Let a runner do what it does on news."""
    local = job.locals[node]
    if isinstance(news, StopAll) and local.stage in {Stage.RUNNING, Stage.READY, Stage.PREPARING}:
        return tell(job, node, stage=Stage.STOPPING if local.stage is Stage.RUNNING else Stage.DEAD)
    if isinstance(news, VerdictReached):
        return attrs.evolve(job, verdicts=put(job.verdicts, node, (*job.verdicts[node], news.verdict)))
    if isinstance(news, StartAll):
        return tell(job, node, stage=Stage.RUNNING)
    return job


def possible(job: Job) -> Iterator[Job]:
    """Return what can happen next."""
    for node in range(NODES):
        up, down = job.up[node], job.down[node]
        if up:
            yield at_hub(attrs.evolve(job, up=put(job.up, node, None)), Received(str(node).encode(), up, job.now))
        if down:
            yield deliver(job, node, down)
        yield from _runner(job, node)


def _runner(job: Job, node: int) -> Iterator[Job]:
    """Return what the runner of a node can do next."""
    local, verdicts = job.locals[node], job.verdicts[node]
    if local.stage is Stage.RUNNING and job.failures:
        for kind in (FailureClass.OWN, FailureClass.PEER):
            failure = Failure(status=7 + node, kind=kind, at=job.now)
            yield tell(attrs.evolve(job, failures=job.failures - 1), node, failure=failure, stage=Stage.STOPPING)
    elif local.stage is Stage.STOPPING:
        yield tell(job, node, stage=Stage.DEAD)
    elif local.stage is Stage.DEAD and local.failure and not local.diagnosed:
        found = Diagnosed(sentence=f"{node}", kind=local.failure.kind, certainty="certain", status=7 + node)
        yield tell(job, node, diagnosed=found)
    elif local.stage is Stage.DEAD and verdicts and verdicts[-1].attempt == local.attempt:
        if verdicts[-1].restarts:
            empty = attrs.evolve(job, locals=put(job.locals, node, Local(attempt=local.attempt + 1)))
            yield tell(empty, node, stage=Stage.READY)
        else:
            yield tell(job, node, stage=Stage.LEFT, status=verdicts[-1].status)


def calm(job: Job) -> Job:
    """Deliver everything that is under way, in the order of the nodes."""
    while any((*job.up, *job.down)):
        for node in range(NODES):
            up, down = job.up[node], job.down[node]
            if up:
                job = at_hub(attrs.evolve(job, up=put(job.up, node, None)), Received(str(node).encode(), up, job.now))
            if down:
                job = deliver(job, node, down)
    return job


def pass_time(job: Job) -> Job:
    """Let time pass for all."""
    job = attrs.evolve(job, now=job.now + STEP)
    for node in range(NODES):
        job = at_spoke(job, node, Tick(job.now))
    return calm(at_hub(job, Tick(job.now)))


def is_over(job: Job) -> bool:
    """Whether every runner has left, or runs and will go on."""
    return len({local.stage for local in job.locals}) == 1 and job.locals[0].stage in {Stage.LEFT, Stage.RUNNING}


def explore(start: Job, most: int) -> list[Job]:
    """Return the ends of all histories, at most about `most` states."""
    seen, to_do, ends = {start.key}, [start], []
    while to_do and len(seen) < most:
        job = to_do.pop()
        nexts = list(possible(job))
        if not nexts and not is_over(job):
            assert job.now < 60.0, "nobody waits for ever"
            nexts = [pass_time(job)]
        ends += [] if nexts else [job]
        for after in nexts:
            key = after.key
            if key not in seen:
                seen.add(key)
                to_do.append(after)
    return ends


def check(job: Job) -> None:
    """Check that all nodes have learned the same verdicts, and have left with the same status (law 3)."""
    assert 1 == len(set(job.verdicts)), job.verdicts
    for verdict in job.verdicts[0]:
        assert verdict.certainty != "certain" or verdict.kind == "own"
    if job.locals[0].stage is Stage.LEFT:
        assert {job.verdicts[0][-1].status} == {local.status for local in job.locals}


@pytest.mark.parametrize("max_restarts", [0, 1])
def test_laws_in_many_interleavings(max_restarts: int) -> None:
    """A failure anywhere ends, or restarts, the job on all nodes with one verdict."""
    ends = explore(attrs.evolve(begin(max_restarts), failures=1), 500)
    assert ends
    for job in ends:
        check(job)


@pytest.mark.deep
@pytest.mark.parametrize("max_restarts", [0, 1])
def test_laws_in_more_interleavings(max_restarts: int) -> None:
    """Two failures of any class, at any time, on any nodes: still one verdict for each attempt.

    Without a restart, about half of the 22,000 states are seen: all of them take minutes.
    """
    ends = explore(attrs.evolve(begin(max_restarts), failures=2), 10_000)
    assert ends
    for job in ends:
        check(job)

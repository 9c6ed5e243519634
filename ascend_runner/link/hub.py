"""Node 0's side of the link as a pure state machine: `transition(hub, event) -> (hub, actions)`.

It hears every node, decides on stops, verdicts and starts, and says the outcome to all, in each message anew. Whether
an attempt follows a failure is decided by `job_machine`, whose counter is the number of the attempt. What it tells its
runner is for node 0 alone. The laws are in `protocol`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from signal import SIGKILL, SIGTERM
from typing import Final

import attrs

from ascend_runner.link import wire
from ascend_runner.link.messages import (
    MOST_NAMED,
    NOT_REACHED,
    PROTOCOL,
    VARIABLES,
    Asked,
    Failure,
    FailureClass,
    Identity,
    Local,
    News,
    NodesKnown,
    Stage,
    StopAll,
    Warned,
    already_running,
    named,
)
from ascend_runner.link.protocol import (
    AFTER_GRACE,
    AGAIN,
    ASK_LIMIT,
    BEAT,
    CLOCK_LIMIT,
    HOLD,
    KILL_WAIT,
    NO_HUB,
    PARTING,
    STOP_SPREAD,
    TABLE_WAIT,
    UNREACHABLE,
    Action,
    AllDead,
    Event,
    LocalChanged,
    Received,
    Requested,
    RunnerGone,
    Send,
    Tell,
    Tick,
    Wake,
)
from ascend_runner.link.verdict import Candidate, stopped_by, verdict_on
from ascend_runner.link.wire import FromSpoke, Header, View
from ascend_runner.members import Members
from ascend_runner.record.nodes import JobVerdict, NodeRecord
from ascend_runner.supervision import job_machine
from ascend_runner.supervision.causes import Restart
from ascend_runner.supervision.job_machine import Job, Policy, Verdict
from ascend_runner.text import abbreviated, duration, format_numbers, signal_name

NEVER: Final = -math.inf
LARGEST_SIGNAL: Final = 64
MOST_WARNINGS: Final = 12  # about differences between the nodes, at once
MOST_GROUPS: Final = 4  # of nodes that differ, for which a line has room
ENDED: Final = frozenset({Stage.DEAD, Stage.LEFT})
MISSING, COMPLETE = "missing ", "complete "  # subjects in `Hub.told`; other subjects begin with a name


@attrs.frozen(kw_only=True)
class Peer:
    """A node as the hub knows it; times are on the hub's clock."""

    route: bytes  # its last connection
    identity: Identity
    local: Local
    said: object = attrs.field(eq=False)  # the same, as in its message
    seq: int
    heard: float
    sent: float  # on the node's clock
    ran: int = -1
    knows: int = -1
    stop: StopAll | None = None
    is_gone: bool = False
    acked: float = NEVER  # when the last message of this hub that it has received was sent
    round_trip: float | None = None
    clock: float | None = None  # its clock minus that of node 0
    earliest: float = NEVER  # of its failure in this attempt
    latest: float = math.inf
    is_warned: bool = False  # it was said to be unreachable
    warned_at: float = NEVER  # when
    is_lost: bool = False  # it counts as lost

    @property
    def attempt(self) -> int:
        """The attempt that it is at."""
        return self.local.attempt

    @property
    def has_left(self) -> bool:
        """Whether this runner is certainly over, and so are its ranks."""
        return self.local.stage is Stage.LEFT or (self.is_gone and self.local.stage is Stage.DEAD)

    def is_reachable(self, at: float) -> bool:
        """Whether it was heard of lately."""
        return at < self.heard + UNREACHABLE


@attrs.frozen(kw_only=True)
class Contender:
    """A second runner of a node."""

    identity: Identity
    since: float
    heard: float


@attrs.frozen(kw_only=True)
class Hub:
    """What node 0 knows of the job. Times are None before there is one."""

    identity: Identity  # of node 0; `incarnation` is also the hub's
    policy: Policy = attrs.Factory(Policy)
    epoch: float = 0.0
    node_timeout: float | None = None
    now: float = 0.0
    born: float | None = None
    seq: int = 0
    peers: Mapping[int, Peer] = {}
    contenders: Mapping[int, Contender] = {}
    job: Job = attrs.field(default=attrs.Factory(lambda hub: Job(policy=hub.policy), takes_self=True))

    hold_until: float | None = None  # a lost peer was reported, and a cause may follow
    stop: StopAll | None = None  # of this attempt
    stopped_at: float | None = None
    verdict: JobVerdict | None = None  # the last one
    is_final: bool = False  # no attempt follows
    start: int = 0
    start_from: float = 0.0  # the end of the delay before a restart
    give_up_at: float = math.inf  # when nodes that are missing have been waited for
    is_successor: bool = False  # of a hub that nodes have heard before
    cleared: frozenset[int] = frozenset()  # nodes with a runner that has replaced one that is dead
    settled: int = -1  # the last attempt after which every node was known to be dead
    refusal: str = ""
    wait: str = ""  # this and the next one are as in `View`
    awaited: tuple[int, ...] = ()
    differ_since: float | None = None  # rank tables that are read again
    warning: str = ""  # about rank tables that differ although ranks of this attempt run with them
    told: frozenset[str] = frozenset()  # subjects of messages that were sent; each is sent only once
    is_compared: bool = False  # whether the versions of the nodes were compared
    differs: Mapping[int, str] = {}  # in what nodes differ from most others, then
    asked: Asked | None = None
    asked_until: float = 0.0
    answered: str = ""
    results: tuple[tuple[str, str], ...] = ()
    dropped: int = 0

    view: View = attrs.Factory(View)
    wire_view: Mapping[str, object] = attrs.field(factory=lambda: wire.encode_view(View()), eq=False)
    changed: float = NEVER  # when the urgent part of the view changed
    due: float = attrs.field(default=math.inf, eq=False)  # the time of the last requested wake-up

    @property
    def attempt(self) -> int:
        """The number of the attempt that runs or is to come."""
        return self.job.attempt

    @property
    def contact(self) -> None:
        """None: it is the hub."""

    @property
    def is_over(self) -> bool:
        """Whether there is nothing left to say: node 0 has left, and every reachable node has heard the last word."""
        runner = self.peers.get(0)
        if runner is None or not runner.has_left or (self.stop and not self.is_final):
            return False
        is_heard = all(
            peer.acked >= self.changed or peer.has_left or not peer.is_reachable(self.now)
            for peer in self.peers.values()
        )
        is_awaited = bool(self.missing and self.stop)  # nodes that are about to join learn that they are to stop
        return (is_heard and not is_awaited) or self.now >= self.changed + PARTING

    @property
    def missing(self) -> tuple[int, ...]:
        """The nodes that have not joined."""
        return tuple(node for node in range(self.identity.nodes) if node not in self.peers)


Step = tuple[Hub, tuple[Action, ...]]
Told = tuple[Hub, tuple[News, ...]]
Groups = Sequence[tuple[str, Sequence[int]]]  # values, and the nodes that have each


def transition(hub: Hub, event: Event) -> Step:
    """Return the hub after `event`, and the actions to perform."""
    born = event.at if hub.born is None else hub.born
    hub = _woken(hub, event.at)
    hub = attrs.evolve(hub, now=event.at, born=born, seq=_next_seq(hub, event.at))
    return HANDLERS[type(event)](hub, event)


def _woken(hub: Hub, at: float) -> Hub:
    """Return the hub after a sleep, such as on a frozen machine, which does not count as silence of the nodes."""
    slept = at - hub.due
    if slept < BEAT:
        return hub
    peers = {node: attrs.evolve(peer, heard=min(at, peer.heard + slept)) for node, peer in hub.peers.items()}
    return attrs.evolve(hub, peers=peers, due=math.inf)


def _settle(hub: Hub) -> Step:
    """Decide what follows, and say it to all if it is urgent."""
    news: tuple[News, ...] = ()
    for rule in RULES:
        hub, more = rule(hub)
        news += more
    hub, sends = _publish(hub)
    hub = attrs.evolve(hub, due=_next(hub))
    return hub, (*sends, *map(Tell, news), Wake(hub.due))


# --- Events -----------------------------------------------------------------------------------------------------------


def _ignore(hub: Hub, _event: Event) -> Step:
    return hub, ()


def _ticked(hub: Hub, _event: Tick) -> Step:
    return _settle(hub)


def _requested(hub: Hub, event: Requested) -> Step:
    """Answer with the rows of all nodes, split into messages."""
    if event.asked.request != "nodes":
        return hub, ()
    rows = node_records(hub)
    news, part = [], wire.fitting(rows)
    while rows:
        rows = rows[max(1, len(part)) :]
        news.append(Tell(NodesKnown(nodes=part, is_last=not rows)))
        part = wire.fitting(rows)
    return hub, tuple(news)


def _received(hub: Hub, event: Received) -> Step:
    node = Members(event.message).count("node")
    known = None if node is None else hub.peers.get(node)
    message = wire.decode_spoke(event.message, (known.said, known.local) if known else None)
    if message is None or message.local.attempt > hub.policy.max_restarts:
        return _drop(hub)
    objection = _objection(hub, message)
    if objection:
        return _refuse(hub, event, message, objection)
    if known and known.identity.incarnation != message.header.sender:
        return _contend(hub, event, message, known)
    if known and message.header.seq <= known.seq:
        return hub, ()  # overtaken by a later one
    if known is None and message.header.to:
        hub = attrs.evolve(hub, is_successor=True)
    identity = message.identity or (known.identity if known else None)
    return _accept(hub, event, message, identity) if identity else _reply(hub, event, message, View())


def _objection(hub: Hub, message: FromSpoke) -> str:
    """Return why a node can never take part, "" if it can."""
    node, identity, protocol = message.node, message.identity, message.header.protocol
    if protocol != PROTOCOL:
        return f"node {node} speaks version {protocol} of the link protocol, node 0 version {PROTOCOL}"
    if identity and identity.nodes != hub.identity.nodes:
        return f"node {node} expects {identity.nodes} nodes, node 0 expects {hub.identity.nodes}"
    return "" if node < hub.identity.nodes else f"a job of {hub.identity.nodes} nodes has no node {node}"


def _accept(hub: Hub, event: Received, message: FromSpoke, identity: Identity) -> Step:
    known = hub.peers.get(message.node)
    peer = _updated(hub, known, event, message, identity)
    if known and _is_beat(known, peer) and not message.asked:
        return _reply(hub, event, message, peer=peer)
    hub = attrs.evolve(
        hub,
        peers={**hub.peers, message.node: peer},
        settled=max(hub.settled, message.settled),
        is_compared=hub.is_compared and known is not None and known.identity == identity,
    )
    hub, actions = _settle(_heard_request(hub, message))
    hub, reply = _reply(hub, event, message)  # with what follows from the message
    return hub, (*actions, *reply)


def _is_beat(before: Peer, after: Peer) -> bool:
    """Whether a message has nothing in it to decide on: most have not, and a hub of many nodes hears many."""
    return not before.is_warned and _decisive(before) == _decisive(after)


def _decisive(peer: Peer) -> object:
    """Return what a node says of itself, without what only people see, and without the times of its messages."""
    local = attrs.evolve(peer.local, state="", alive=0, step=None)
    return peer.identity, local, peer.ran, peer.knows, peer.is_gone


def _updated(hub: Hub, known: Peer | None, event: Received, message: FromSpoke, identity: Identity) -> Peer:
    """Return the record of a node after its message."""
    header, local, at = message.header, message.local, event.at
    acked, delay = NEVER if known is None else known.acked, None
    if header.to == hub.identity.incarnation and header.echo is not None and header.echo <= at:
        acked = max(acked, header.echo)
        delay = max(0.0, at - header.echo - header.held)  # to the node and back, in this very exchange
    earliest, latest = _failed_between(known, message, at, delay)
    return Peer(
        route=event.peer,
        identity=identity,
        local=local if 0 <= local.signum <= LARGEST_SIGNAL else attrs.evolve(local, signum=0),
        said=event.message.get("local"),
        seq=header.seq,
        heard=at,
        sent=header.sent,
        ran=message.ran,
        knows=message.knows,
        stop=message.stop,
        is_gone=message.is_gone,
        acked=acked,
        round_trip=delay if delay is not None else (known.round_trip if known else None),
        clock=(known.clock if known else None) if delay is None else message.wall + delay / 2 - at - hub.epoch,
        earliest=min(earliest, latest),
        latest=latest,
        is_warned=known is not None and known.is_warned,
        warned_at=NEVER if known is None else known.warned_at,
        is_lost=known is not None and known.is_lost and known.attempt == local.attempt,
    )


def _failed_between(known: Peer | None, message: FromSpoke, at: float, delay: float | None) -> tuple[float, float]:
    """Return between which times a node has failed; each message about it can only narrow that down."""
    earliest, latest = NEVER, math.inf
    if known and known.attempt == message.local.attempt and known.local.failure:
        earliest, latest = known.earliest, known.latest
    if message.local.failure:
        latest = min(latest, at - message.age)
        earliest = max(earliest, NEVER if delay is None else at - message.age - delay)
    return earliest, latest


def _drop(hub: Hub) -> Step:
    told = () if hub.dropped else (Tell(Warned(sentence="a malformed message of another node was dropped")),)
    return attrs.evolve(hub, dropped=hub.dropped + 1), told


def _refuse(hub: Hub, event: Received, message: FromSpoke, sentence: str) -> Step:
    """Refuse a node, and all others with it if the job cannot begin without this one."""
    if hub.missing and message.node not in hub.peers and not hub.refusal:
        hub = attrs.evolve(hub, refusal=sentence)
    hub, reply = _reply(hub, event, message, View(refusal=sentence))
    hub, actions = _settle(hub)
    return hub, (*reply, *actions)


# --- Second runners of a node -----------------------------------------------------------------------------------------


def _contend(hub: Hub, event: Received, message: FromSpoke, known: Peer) -> Step:
    """A runner says that it is a node that is another one already (law 6)."""
    node, identity = message.node, message.identity
    if identity is None:
        return _reply(hub, event, message, View())
    is_dead = known.has_left or (hub.policy.max_restarts > 0 and hub.now >= known.heard + _lease(known.identity))
    if is_dead and not known.has_left and known.ran == hub.attempt and not hub.is_final:  # its ranks are gone
        hub = attrs.evolve(hub, peers={**hub.peers, node: attrs.evolve(known, is_lost=True)})
        hub, actions = _settle(hub)
        hub, reply = _reply(hub, event, message, View(wait=f"node {node} was lost; waiting for the verdict"))
        return hub, (*actions, *reply)
    is_undecided = (hub.stop is not None or hub.hold_until is not None) and not hub.is_final
    if is_dead and not is_undecided:
        return _replace(hub, event, message, identity)
    return _wait_for(hub, event, message, identity)


def _replace(hub: Hub, event: Received, message: FromSpoke, identity: Identity) -> Step:
    """Let a runner take the place of one that is certainly dead."""
    node = message.node
    hub = attrs.evolve(
        hub,
        peers={other: peer for other, peer in hub.peers.items() if other != node},
        contenders={other: rival for other, rival in hub.contenders.items() if other != node},
        cleared=hub.cleared | {node},
        give_up_at=max(hub.give_up_at, _give_up_at(hub)),
    )
    return _accept(hub, event, message, identity)


def _wait_for(hub: Hub, event: Received, message: FromSpoke, identity: Identity) -> Step:
    """Let a second runner wait; it is refused as soon as the first one has answered what was sent after it came."""
    node, known = message.node, hub.peers[message.node]
    both = already_running(known.identity, identity)
    rival = hub.contenders.get(node)
    is_same = rival is not None and rival.identity.incarnation == identity.incarnation
    if not is_same and _has_rival(hub, node):
        return _reply(hub, event, message, View(wait=both))  # a third one
    since = rival.since if rival and is_same else hub.now
    rival = Contender(identity=identity, since=since, heard=hub.now)
    hub = attrs.evolve(hub, contenders={**hub.contenders, node: rival})
    if known.acked > since and known.is_reachable(hub.now) and not known.has_left:
        return _reply(hub, event, message, View(refusal=both))
    hub, question = _send(hub, known, hub.wire_view)
    hub, reply = _reply(hub, event, message, View(wait=f"{both}; waiting until the first one is gone"))
    return hub, (question, *reply)


def _has_rival(hub: Hub, node: int) -> bool:
    """Whether a second runner of a node waits."""
    rival = hub.contenders.get(node)
    return rival is not None and hub.now < rival.heard + UNREACHABLE


def _lease(identity: Identity) -> float:
    """Return how long ranks of a node with these options may stay alive after its last message, in seconds."""
    return identity.link_timeout + identity.grace + KILL_WAIT


# --- Rules: what the hub decides --------------------------------------------------------------------------------------


def _adopt(hub: Hub) -> Told:
    """A new hub continues with the highest attempt that it hears of."""
    highest = max((peer.attempt for peer in hub.peers.values()), default=0)
    if highest <= hub.attempt:
        return hub, ()
    hub = attrs.evolve(_at_attempt(hub, highest), is_successor=True, is_final=False)  # another one has decided on it
    return attrs.evolve(hub, start=highest - 1, give_up_at=_give_up_at(hub)), ()


def _at_attempt(hub: Hub, attempt: int) -> Hub:
    job = attrs.evolve(hub.job, attempt=attempt)
    return attrs.evolve(hub, job=job, stop=None, stopped_at=None, hold_until=None, differ_since=None, warning="")


def _give_up_at(hub: Hub, delay: float = 0.0) -> float:
    return hub.now + delay + hub.identity.link_timeout


def _watch_nodes(hub: Hub) -> Told:
    """Warn about nodes that are silent, at most once a minute each, and say when they are back."""
    news, peers = [], dict(hub.peers)
    for node, peer in hub.peers.items():
        is_silent = not (peer.is_reachable(hub.now) or peer.has_left)
        if is_silent and not peer.is_warned and hub.now >= peer.warned_at + AGAIN:
            peers[node] = attrs.evolve(peer, is_warned=True, warned_at=hub.now)
            news.append(Warned(sentence=f"node {node} is unreachable: no message for {duration(UNREACHABLE)}"))
        elif peer.is_warned and not is_silent:
            peers[node] = attrs.evolve(peer, is_warned=False)
            news.append(Warned(sentence=f"node {node} is reachable again"))
    return attrs.evolve(hub, peers=peers) if news else hub, tuple(news)


def _watch_missing(hub: Hub) -> Told:
    """Warn once about nodes that have not joined, and say when all have."""
    if MISSING not in hub.told:
        if not hub.missing or hub.stop or hub.is_final or hub.now < (hub.born or 0.0) + NO_HUB:
            return hub, ()
        subject = MISSING
        sentence = f"{named(hub.missing)} {_has(hub.missing)} not joined within {duration(NO_HUB)}"
    elif hub.missing or COMPLETE in hub.told:
        return hub, ()
    else:
        subject, sentence = COMPLETE, "all nodes have joined"
    return attrs.evolve(hub, told=hub.told | {subject}), (Warned(sentence=sentence),)


def _find_lost(hub: Hub) -> Told:
    """Decide which unreachable nodes are lost (law 7)."""
    silent = [peer for peer in hub.peers.values() if not (peer.is_reachable(hub.now) or peer.has_left or peer.is_lost)]
    if not silent or hub.stop or hub.is_final:
        return hub, ()
    reachable = [peer for peer in hub.peers.values() if peer.is_reachable(hub.now)]
    named = {node for peer in reachable if peer.attempt == hub.attempt for node in peer.local.lost}
    active = [peer for peer in reachable if peer.local.stage is Stage.RUNNING and peer.attempt == hub.attempt]
    all_silent = bool(active) and all(peer.local.is_silent for peer in active)
    limit = math.inf if hub.node_timeout is None else hub.node_timeout
    lost = {
        peer.identity.node: attrs.evolve(peer, is_lost=True)
        for peer in silent
        if all_silent or peer.identity.node in named or hub.now >= peer.heard + limit
    }
    return attrs.evolve(hub, peers={**hub.peers, **lost}) if lost else hub, ()


def _compare_tables(hub: Hub) -> Told:
    """Let nodes with differing rank tables read them again, and refuse them if that does not help.

    Ranks that run have read theirs: then all nodes are warned once, and HCCL decides.
    """
    tables: dict[str, list[int]] = {}
    known: dict[str, str] = {}
    have_run = []
    for node, peer in sorted(hub.peers.items()):
        table, _blank, what = peer.local.table.partition(" ")
        if table and peer.attempt == hub.attempt and not peer.has_left:
            tables.setdefault(table, []).append(node)
            known.setdefault(table, what)
            have_run.append(peer.ran == hub.attempt)
    if len(tables) <= 1 or hub.warning or hub.is_final or hub.stop:
        return attrs.evolve(hub, differ_since=None), ()
    parts = [
        f"{named(nodes)} {_has(nodes)} {known[table]}, SHA-256 {table}"
        for table, nodes in sorted(tables.items(), key=lambda item: len(item[1]))
    ]
    sentence = f"the rank tables of the nodes differ: {'; '.join(parts[:MOST_GROUPS])}"
    since = hub.now if hub.differ_since is None else hub.differ_since
    is_over = hub.now >= since + _table_wait(hub)
    if all(have_run):
        is_over = not hub.missing or hub.now >= (hub.born or 0.0) + NO_HUB
    if is_over and any(have_run):
        return attrs.evolve(hub, differ_since=None, warning=f"{sentence}; ranks run with them already"), ()
    if is_over:
        return attrs.evolve(hub, refusal=hub.refusal or sentence), ()
    if all(have_run):
        return attrs.evolve(hub, differ_since=None), ()
    return attrs.evolve(hub, differ_since=since, wait=sentence), ()


def _table_wait(hub: Hub) -> float:
    return hub.identity.link_timeout if hub.attempt else TABLE_WAIT


def _compare_nodes(hub: Hub) -> Told:
    """Report each difference between the nodes once all have reported their versions, or after NO_HUB seconds."""
    is_complete = not hub.missing and all(peer.identity.versions for peer in hub.peers.values())
    if not is_complete and hub.now < (hub.born or 0.0) + NO_HUB:
        return hub, ()
    sentences = _clocks(hub)
    if not hub.is_compared:
        differing = [*_differing(hub)]
        hub = attrs.evolve(hub, differs=_of_nodes(differing))
        sentences = {**_differences(differing), **sentences}
    found = [sentence for subject, sentence in sentences.items() if subject not in hub.told]
    if len(found) > MOST_WARNINGS:
        found[MOST_WARNINGS:] = [f"{len(found) - MOST_WARNINGS} other settings differ between the nodes as well"]
    hub = attrs.evolve(hub, told=hub.told | sentences.keys(), is_compared=True)
    return hub, tuple(Warned(sentence=sentence) for sentence in found)


def _differing(hub: Hub) -> Iterator[tuple[str, Groups]]:
    """Yield the names with several values, and the nodes that have each of these; most have the last one."""
    told = {node: dict(peer.identity.versions) for node, peer in sorted(hub.peers.items()) if peer.identity.versions}
    for name in dict.fromkeys(name for versions in told.values() for name in versions):
        groups: dict[str, list[int]] = {}
        for node, versions in told.items():
            if name in versions or name.startswith(VARIABLES):
                groups.setdefault(versions.get(name, ""), []).append(node)
        if len(groups) > 1:
            yield name, sorted(groups.items(), key=lambda group: len(group[1]))


def _of_nodes(differing: Iterable[tuple[str, Groups]]) -> dict[int, str]:
    """Return in what each node differs from most others; of values that are equally common, each is named."""
    found: dict[int, list[str]] = {}
    for name, groups in differing:
        *fewer, (_value, most) = groups
        for value, nodes in fewer if len(most) > len(fewer[-1][1]) else groups:
            for node in nodes:
                found.setdefault(node, []).append(_named(name, value))
    return {node: abbreviated(names, MOST_GROUPS) for node, names in found.items()}


def _differences(differing: Iterable[tuple[str, Groups]]) -> dict[str, str]:
    """Return what differs, as sentences by subject; another value of a name is another subject."""
    return {
        " ".join((name, *sorted(value for value, _nodes in groups))): _difference(name, groups)
        for name, groups in differing
    }


def _difference(name: str, groups: Groups) -> str:
    """Return the sentence about the nodes by their value of a name."""
    *fewer, (value, most) = groups
    parts = [f"{named(nodes)} {_has(nodes)} {_named(name, other)}" for other, nodes in fewer]
    if len(parts) > MOST_GROUPS:
        parts[MOST_GROUPS:] = [f"{sum(len(nodes) for _, nodes in fewer[MOST_GROUPS:])} nodes have other values"]
    rest = "the others" if len(most) > 1 else f"node {most[0]}"
    return f"{', '.join(parts)}, {rest} {value or 'none'}"


def _named(name: str, value: str) -> str:
    return f"{name} {value}" if value else f"no {name}"


def _clocks(hub: Hub) -> dict[str, str]:
    off = [
        f"node {node} by {_signed(peer)}"
        for node, peer in sorted(hub.peers.items())
        if peer.clock is not None and abs(peer.clock) - (peer.round_trip or 0.0) / 2 > CLOCK_LIMIT
    ]
    more = f" and {len(off) - MOST_GROUPS} more" if len(off) > MOST_GROUPS else ""
    return {"clock ": f"clocks differ from node 0's: {', '.join(off[:MOST_GROUPS])}{more}"} if off else {}


def _adopt_stop(hub: Hub) -> Told:
    """Continue a stop that was begun by the hub that this one replaces."""
    if hub.stop or hub.is_final:
        return hub, ()
    stops = (peer.stop for peer in hub.peers.values() if peer.attempt == hub.attempt)
    former = next((stop for stop in stops if stop and stop.attempt == hub.attempt), None)
    return (attrs.evolve(hub, stop=former, stopped_at=hub.now) if former else hub), ()


def _stop_all(hub: Hub) -> Told:
    """Stop every node after the first failure; one that only reports a lost peer waits for another (law 2)."""
    if hub.stop or hub.is_final:
        return hub, ()
    failed = [peer for peer in hub.peers.values() if _has_failed(hub, peer)]
    signalled = [peer for peer in hub.peers.values() if _is_signalled(hub, peer)]
    if not (failed or signalled):
        return hub, ()
    is_own = any(_kind(peer) is not FailureClass.PEER for peer in failed)
    hold_until = hub.now + HOLD if hub.hold_until is None else hub.hold_until
    if not (is_own or signalled or len(failed) == hub.identity.nodes or hub.now >= hold_until):
        return attrs.evolve(hub, hold_until=hold_until), ()
    if failed:
        peer = min(failed, key=lambda peer: (_kind(peer) is FailureClass.PEER, peer.latest))
        failure = peer.local.failure
        stop = StopAll(
            attempt=hub.attempt,
            node=peer.identity.node,
            rank_id=failure.rank_id if failure else None,
            ending=_ending(peer),
            status=failure.status if failure else peer.local.status or 1,
        )
    else:
        asked = _asked_to_stop(hub)
        peer, signum = asked or signalled[0], signalled[0].local.signum
        name = f"node {peer.identity.node}"
        leaves = f"the runner of {name} was killed" if signum == SIGKILL else f"{name} received {signal_name(signum)}"
        stop = StopAll(attempt=hub.attempt, node=peer.identity.node, ending=leaves, status=128 + signum)
        if asked or not _may_be_replaced(hub, peer):
            stop = attrs.evolve(stop, signum=signum)
    return attrs.evolve(hub, stop=stop, stopped_at=hub.now, hold_until=None), ()


def _has_failed(hub: Hub, peer: Peer) -> bool:
    if peer.attempt != hub.attempt:
        return False
    has_left_failed = peer.local.stage is Stage.LEFT and bool(peer.local.status) and not peer.local.signum
    return peer.local.failure is not None or peer.is_lost or has_left_failed


def _is_signalled(hub: Hub, peer: Peer) -> bool:
    return peer.local.signum > 0 and peer.attempt == hub.attempt


def _asked_to_stop(hub: Hub) -> Peer | None:
    """Return the node that was asked to stop the whole job, None if none was."""
    if hub.asked is None or hub.asked.request != "stop":
        return None
    by, _colon, _number = hub.asked.request_id.rpartition(":")
    return next((peer for peer in hub.peers.values() if peer.identity.incarnation == by), None)


def _may_be_replaced(hub: Hub, peer: Peer) -> bool:
    """Whether a signal to one node lets only this node leave: in a job with restarts, once its ranks have run."""
    is_leaving = peer.local.signum in {SIGTERM, SIGKILL}  # SIGKILL if its guardian was killed
    return hub.policy.max_restarts > 0 and is_leaving and peer.ran == hub.attempt


def _kind(peer: Peer) -> FailureClass:
    if peer.local.diagnosed:
        return peer.local.diagnosed.kind
    return peer.local.failure.kind if peer.local.failure else FailureClass.UNKNOWN


def _ending(peer: Peer) -> str:
    if peer.local.failure:
        return peer.local.failure.ending
    if peer.is_lost:
        return f"node {peer.identity.node} is unreachable"
    return f"exit status {peer.local.status}"


def _decide(hub: Hub) -> Told:
    """Make the verdict on an attempt that was stopped (law 4)."""
    if hub.stop is None or hub.is_final or not _is_decidable(hub):
        return hub, ()
    unsettled = {node for node, peer in hub.peers.items() if not _is_settled(hub, peer)}
    missing = tuple(sorted(unsettled.union(hub.missing)))[:MOST_NAMED]
    failed = [peer for peer in hub.peers.values() if _has_failed(hub, peer)]
    signum = hub.stop.signum or _signal_to_all(hub)
    candidates = [*(_candidate(hub, peer) for peer in failed), *_of_former(hub, hub.stop, failed)]
    if candidates and not hub.stop.signum:
        verdict = verdict_on(hub.attempt, candidates, missing)
        are_stopped = (peer.local.is_stopped for peer in hub.peers.values())
        is_stopped = not missing and len(failed) == 1 and all(are_stopped)
        verdict = attrs.evolve(verdict, is_stopped=is_stopped)
    else:
        node = hub.stop.node or 0
        received = hub.stop.signum or hub.peers[node].local.signum
        verdict = stopped_by(hub.attempt, node, received, is_sure=not (failed or missing))
        if signum:
            return _conclude(hub, verdict), ()
    return _follow(hub, verdict, signum), ()


def _of_former(hub: Hub, stop: StopAll, failed: Sequence[Peer]) -> Iterator[Candidate]:
    """Yield the failure of a node whose runner was replaced meanwhile: only the stop has it."""
    node = stop.node or 0
    peer = hub.peers.get(node)
    if stop.signum or (peer is not None and (peer in failed or _is_signalled(hub, peer))):
        return
    identity = peer.identity if peer else Identity(node=node, nodes=hub.identity.nodes, incarnation="")
    failure = Failure(rank_id=stop.rank_id, ending=stop.ending, status=stop.status, kind=FailureClass.OWN)
    yield Candidate(identity=identity, failure=failure, earliest=NEVER, latest=hub.stopped_at or hub.now)


def _is_decidable(hub: Hub) -> bool:
    since = hub.now if hub.stopped_at is None else hub.stopped_at
    if hub.now >= since + hub.identity.grace + AFTER_GRACE:
        return True
    if hub.stop is not None and (hub.stop.node or 0) not in hub.peers:  # it is about to join this hub, a new one
        return False
    is_signalled = any(_is_signalled(hub, peer) for peer in hub.peers.values())
    may_restart = hub.policy.max_restarts > 0 and hub.stop is not None and not hub.stop.signum
    if is_signalled and may_restart and hub.now < since + STOP_SPREAD:
        return False
    return all(_is_settled(hub, peer) or not peer.is_reachable(hub.now) for peer in hub.peers.values())


def _signal_to_all(hub: Hub) -> int:
    """Return the stop signal that all nodes have received, except nodes that have succeeded, or 0."""
    peers = [peer for peer in hub.peers.values() if peer.attempt == hub.attempt and peer.local.status != 0]
    signums = {peer.local.signum for peer in peers} or {0}
    return max(signums) if 0 not in signums else 0


def _is_settled(hub: Hub, peer: Peer) -> bool:
    """Whether a node has ended its ranks of this attempt, and has explained its failure."""
    if peer.attempt > hub.attempt:
        return True
    is_explained = peer.local.failure is None or peer.local.diagnosed is not None or peer.is_gone
    has_ended = peer.local.stage in ENDED
    return peer.attempt == hub.attempt and has_ended and (is_explained or peer.local.stage is Stage.LEFT)


def _candidate(hub: Hub, peer: Peer) -> Candidate:
    failure = peer.local.failure or Failure(ending=_ending(peer), status=peer.local.status or 1)
    latest = hub.now if math.isinf(peer.latest) else peer.latest
    return Candidate(
        identity=peer.identity,
        failure=failure,
        diagnosed=peer.local.diagnosed,
        earliest=peer.earliest,
        latest=latest,
    )


def _follow(hub: Hub, verdict: JobVerdict, signum: int) -> Hub:
    """Let the policy decide whether an attempt follows."""
    first = None if verdict.node is None else hub.peers.get(verdict.node)
    found = first.local.diagnosed if first else None
    known = {restart.value: restart for restart in Restart}
    has_survivors = any(peer.local.survivors for peer in hub.peers.values())
    is_silent = any(peer.is_reachable(hub.now) and not _is_settled(hub, peer) for peer in hub.peers.values())
    failed = job_machine.Failed(
        status=verdict.status,
        signum=signum,
        restart=known.get(found.restart if found else "", Restart.TRANSIENT),
        fingerprint=(found.fingerprint if found else "") or verdict.sentence,
        has_progressed=found.has_progressed if found else None,
        is_clear=not (has_survivors or is_silent),
    )
    job, _prepared = job_machine.transition(hub.job, job_machine.Prepared())
    job, actions = job_machine.transition(job, failed)
    if job.verdict is Verdict.NOT_CLEAR and not has_survivors:  # it may be cut off, with its ranks dead
        job = attrs.evolve(job, verdict=Verdict.NO_LINK)
    decision = job.verdict.value if job.verdict else ""
    if job_machine.Action.WAIT not in actions:
        return _conclude(hub, attrs.evolve(verdict, decision=decision, status=job.status or verdict.status))
    delay = job.delay
    job, _prepare = job_machine.transition(job, job_machine.DelayOver())
    replaces = bool(hub.missing) or any(_is_replaced(hub, peer) for peer in hub.peers.values())
    verdict = attrs.evolve(verdict, decision=decision, restarts=True, delay=delay, replaces=replaces)
    hub = _at_attempt(attrs.evolve(hub, job=job, verdict=verdict), job.attempt)
    settled = verdict.attempt if not verdict.missing else hub.settled
    return attrs.evolve(hub, start_from=hub.now + delay, give_up_at=_give_up_at(hub, delay), settled=settled)


def _is_replaced(hub: Hub, peer: Peer) -> bool:
    """Whether another runner has to take the place of this one before the next attempt."""
    return peer.is_gone or peer.is_lost or _is_signalled(hub, peer) or peer.local.stage is Stage.LEFT


def _conclude(hub: Hub, verdict: JobVerdict) -> Hub:
    return attrs.evolve(hub, verdict=verdict, is_final=True)


def _succeed(hub: Hub) -> Told:
    """With restarts, nodes that have succeeded wait for the slowest one: a failure there restarts all."""
    if not hub.policy.max_restarts or hub.stop or hub.is_final:
        return hub, ()
    peers = [peer for peer in hub.peers.values() if peer.attempt == hub.attempt]
    done = [peer for peer in peers if peer.local.stage in ENDED and not _has_failed(hub, peer)]
    late = [
        node
        for node, peer in sorted(hub.peers.items())
        if peer not in done and (peer.is_reachable(hub.now) or hub.now < peer.heard + hub.identity.link_timeout)
    ]
    if hub.now < (hub.born or 0.0) + NO_HUB:  # they may be about to join, or to join again
        late = sorted({*late, *hub.missing})
    if not done:
        return hub, ()
    if late:
        return _waiting(hub, "to end, because a failure there would restart all nodes", late), ()
    return _conclude(hub, JobVerdict(attempt=hub.attempt, missing=hub.missing[:MOST_NAMED])), ()


def _start(hub: Hub) -> Told:
    """Start the next attempt as soon as it may (law 5), or give up."""
    if hub.start >= hub.attempt or hub.is_final or hub.stop or hub.refusal:
        return hub, ()
    if any(peer.ran == hub.attempt == peer.attempt for peer in hub.peers.values()):
        return attrs.evolve(hub, start=hub.attempt), ()  # a hub before this one has started it
    late = [node for node in range(hub.identity.nodes) if not _is_ready(hub, node)]
    is_leased = any(_has_rival(hub, node) or _is_leased(hub, node) for node in late)
    if not late and hub.differ_since is None and hub.now >= hub.start_from:
        return attrs.evolve(hub, start=hub.attempt, give_up_at=math.inf), ()
    if late and hub.now >= hub.give_up_at and not is_leased:
        waited = duration(hub.identity.link_timeout)
        sentence = f"{named(late)} {'were' if len(late) > 1 else 'was'} not ready for a restart within {waited}"
        status = hub.verdict.status if hub.verdict and hub.verdict.status else 1
        missing = tuple(late)[:MOST_NAMED]
        verdict = JobVerdict(attempt=hub.attempt, sentence=sentence, certainty="likely", status=status, missing=missing)
        return _conclude(hub, verdict), ()
    unready = [node for node in late if not _has_prepared(hub, node)]
    if late and not unready:
        return _waiting(
            hub, f"waiting for the previous runner of {named(late)} to time out, because its ranks may still be running"
        ), ()
    most = f"for at most {duration(hub.identity.link_timeout)} (--link-timeout)"
    return (_waiting(hub, f"to be ready for the restart, {most}", unready) if unready else hub), ()


def _waiting(hub: Hub, wait: str, awaited: Sequence[int] = ()) -> Hub:
    """Let the nodes say what they wait for, unless that is the rank tables."""
    return hub if hub.wait else attrs.evolve(hub, wait=wait, awaited=tuple(awaited[:MOST_NAMED]))


def _is_ready(hub: Hub, node: int) -> bool:
    return _has_prepared(hub, node) and not _is_leased(hub, node)


def _has_prepared(hub: Hub, node: int) -> bool:
    peer = hub.peers.get(node)
    if peer is None or peer.attempt != hub.attempt or peer.local.stage is not Stage.READY:
        return False
    return peer.is_reachable(hub.now)


def _is_leased(hub: Hub, node: int) -> bool:
    """Whether a runner of this node that this hub does not know may have ranks of the attempt before."""
    if not hub.is_successor or hub.settled >= hub.attempt - 1 or node in hub.cleared:
        return False
    peer = hub.peers.get(node)
    was_there = peer is not None and peer.ran == hub.attempt - 1
    return not was_there and hub.now < (hub.born or 0.0) + _lease(hub.identity)


# --- Requests for the whole job ---------------------------------------------------------------------------------------


def _heard_request(hub: Hub, message: FromSpoke) -> Hub:
    """Take up a request if none is under way; its node repeats it until then."""
    asked = message.asked
    if asked is None or hub.asked or asked.request_id == hub.answered:
        return hub
    return attrs.evolve(hub, asked=asked, asked_until=hub.now + ASK_LIMIT)


def _collect(hub: Hub) -> Told:
    """End a request once every reachable node has answered it, or when nothing more can come of it.

    A request to stop is not ended by the stop that follows from it.
    """
    if hub.asked is None:
        return hub, ()
    answers: dict[str, list[int]] = {}
    is_stopped = (bool(hub.stop) or hub.is_final) and hub.asked.request != "stop"
    is_done = is_stopped or hub.now >= hub.asked_until
    is_open = False
    for node in range(hub.identity.nodes):
        peer = hub.peers.get(node)
        is_there = peer is not None and peer.is_reachable(hub.now) and not peer.has_left
        has_answered = peer is not None and peer.local.answered == hub.asked.request_id
        answer = peer.local.answer if peer and has_answered else "" if is_there else NOT_REACHED
        answers.setdefault(answer, []).append(node)
        is_open |= is_there and not has_answered
    if is_open and not is_done:
        return hub, ()
    results = tuple((format_numbers(nodes[:MOST_NAMED]), answer) for answer, nodes in answers.items())
    return attrs.evolve(hub, asked=None, answered=hub.asked.request_id, results=results[: wire.MOST_RESULTS]), ()


# --- What the hub says ------------------------------------------------------------------------------------------------


def _publish(hub: Hub) -> Step:
    """Renew what all are to know, and send it at once if it cannot wait for the next beat."""
    view = _view(hub)
    if view == hub.view:
        return hub, ()
    missing = hub.view.missing if view.missing else ()  # with --link require, all wait for the last one
    is_urgent = attrs.evolve(view, missing=missing, wait=hub.view.wait, awaited=hub.view.awaited) != hub.view
    hub = attrs.evolve(hub, view=view, wire_view=wire.encode_view(view))
    if not is_urgent:
        return hub, ()
    hub, sends = attrs.evolve(hub, changed=hub.now), []
    for peer in hub.peers.values():
        hub, send = _send(hub, peer, hub.wire_view)
        sends.append(send)
    return hub, tuple(sends)


def _view(hub: Hub) -> View:
    runner = hub.peers.get(0)
    left = runner is not None and runner.local.stage is Stage.LEFT and runner.local.status == 0
    return View(
        attempt=hub.attempt,
        start=hub.start,
        missing=hub.missing[:MOST_NAMED],
        stop=hub.stop,
        verdict=hub.verdict,
        refusal=hub.refusal,
        wait=hub.wait,
        awaited=hub.awaited,
        rereads_table=hub.differ_since is not None,
        warning=hub.warning,
        is_bye=left,
        asked=hub.asked,
        answered=hub.answered,
        results=hub.results,
    )


def _send(hub: Hub, peer: Peer, view: Mapping[str, object]) -> tuple[Hub, Send]:
    """Send what all are to know to a node."""
    seq = hub.seq + 1
    header = Header(
        sender=hub.identity.incarnation,
        seq=seq,
        sent=hub.now,
        to=peer.identity.incarnation,
        echo=peer.sent,
        held=hub.now - peer.heard,
    )
    return attrs.evolve(hub, seq=seq), Send(peer.route, wire.encode_hub(header, view))


def _reply(
    hub: Hub, event: Received, message: FromSpoke, view: View | None = None, *, peer: Peer | None = None
) -> Step:
    """Answer a message: with what all are to know, or with `view` if its sender takes no part. Remember `peer`."""
    header = Header(
        sender=hub.identity.incarnation,
        seq=hub.seq,
        sent=hub.now,
        to=message.header.sender,
        echo=message.header.sent,
    )
    if view is not None and not (view.refusal or view.wait):
        view = attrs.evolve(view, refusal=hub.refusal)
    shown = hub.wire_view if view is None else wire.encode_view(view)
    sent = wire.encode_hub(header, shown, is_welcome=view is None)
    peers = {**hub.peers, message.node: peer} if peer else hub.peers
    return attrs.evolve(hub, seq=hub.seq + 1, peers=peers), (Send(event.peer, sent),)


def _next_seq(hub: Hub, at: float) -> int:
    """Number a message. A link process that is started again continues with higher numbers."""
    return max(hub.seq + 1, int(at * 1e6))


def _next(hub: Hub) -> float:
    """Return when the next decision is due, unless something is heard before."""
    return max(hub.now, min(time for time in _times(hub) if time > hub.now))


def _times(hub: Hub) -> Iterator[float]:
    yield hub.now + AGAIN
    for peer in hub.peers.values():
        yield peer.heard + UNREACHABLE
        if not peer.is_reachable(hub.now):
            yield peer.heard + (hub.identity.link_timeout if hub.node_timeout is None else hub.node_timeout)
    born = hub.born or 0.0
    yield from (born + NO_HUB, born + _lease(hub.identity), hub.start_from, hub.give_up_at, hub.changed + PARTING)
    yield math.inf if hub.hold_until is None else hub.hold_until
    yield hub.asked_until if hub.asked else math.inf
    if hub.stopped_at is not None:
        yield hub.stopped_at + STOP_SPREAD
        yield hub.stopped_at + hub.identity.grace + AFTER_GRACE
    if hub.differ_since is not None:
        yield hub.differ_since + _table_wait(hub)


def node_records(hub: Hub) -> tuple[NodeRecord, ...]:
    """Return the nodes of the job as node 0 knows them."""
    return tuple(_record(hub, node) for node in range(hub.identity.nodes))


def _record(hub: Hub, node: int) -> NodeRecord:
    peer = hub.peers.get(node)
    if peer is None:
        return NodeRecord(node=node)
    identity, local = peer.identity, peer.local
    return NodeRecord(
        node=node,
        pod=identity.pod,
        address=identity.address,
        host=identity.host,
        state=local.state or local.stage.value,
        is_unreachable=not (peer.is_reachable(hub.now) or peer.has_left),
        attempt=local.attempt,
        ranks=identity.ranks,
        alive=local.alive,
        step=local.step,
        heard=round(hub.now - peer.heard, 3),
        round_trip=None if peer.round_trip is None else round(peer.round_trip, 6),
        clock_offset=_signed(peer),
        differs=hub.differs.get(node, ""),
        sentence=local.diagnosed.sentence if local.diagnosed else "",
    )


def _signed(peer: Peer) -> str:
    is_off = peer.clock is not None and abs(peer.clock) > CLOCK_LIMIT
    return f"{peer.clock:+.2f} s" if is_off else ""


def _has(nodes: Sequence[int]) -> str:
    return "have" if len(nodes) > 1 else "has"


HANDLERS: Final[Mapping[type[Event], Callable[..., Step]]] = {
    Received: _received,
    LocalChanged: _ignore,
    Requested: _requested,
    Tick: _ticked,
    RunnerGone: _ignore,
    AllDead: _ignore,
}
RULES: Final[tuple[Callable[[Hub], Told], ...]] = (
    lambda hub: (attrs.evolve(hub, wait="", awaited=()), ()),
    _adopt,
    _watch_nodes,
    _watch_missing,
    _find_lost,
    _compare_tables,
    _compare_nodes,
    _adopt_stop,
    _stop_all,
    _decide,
    _succeed,
    _start,
    _collect,
)

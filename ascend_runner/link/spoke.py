"""A node's side of the link as a pure state machine: `transition(spoke, event) -> (spoke, actions)`.

It says what its node is to the hub, in each message anew, and tells its runner what the hub says that is new. Without a
hub it decides for this node alone. The laws are in `protocol`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import attrs

from ascend_runner.link import wire
from ascend_runner.link.messages import (
    MOST_NAMED,
    Answered,
    Asked,
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
    named,
)
from ascend_runner.link.protocol import (
    AGAIN,
    ALONE,
    ASK_LIMIT,
    BEAT,
    FIRST_WORD,
    HUB,
    NO_HUB,
    PARTING,
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
from ascend_runner.link.verdict import exit_status
from ascend_runner.link.wire import FromHub, FromSpoke, Header, View
from ascend_runner.record.nodes import JobVerdict, NodeRecord
from ascend_runner.text import duration

KILLED: Final = 137  # the exit status of a runner that has died: most are killed
RUNNER_DIED: Final = "runner died"  # the state of a node, as people see it
LASTING: Final = 3.0  # seconds after which a wait is worth a line
RAN: Final = frozenset({Stage.RUNNING, Stage.STOPPING})
WAITS: Final = frozenset({Stage.PREPARING, Stage.READY})


@attrs.frozen(kw_only=True)
class Spoke:
    """What this node knows of the link. Times are None before there is one."""

    identity: Identity
    identified_at: float = -math.inf  # when `identity` became what it is
    epoch: float = 0.0
    local: Local = attrs.Factory(Local)
    born: float | None = None
    seq: int = 0
    sent: float | None = None  # when the last message was sent
    is_due: bool = True  # another message is to be sent at once

    hub: str = ""  # the incarnation of the hub, "" before it has answered
    hub_seq: int = 0
    is_welcome: bool = False
    view: View = attrs.Factory(View)
    heard: float | None = None  # when the last message of the hub arrived
    hub_sent: float | None = None  # when that was sent, on the hub's clock
    contact: float | None = None  # when the last message that the hub has answered was sent
    is_unreachable: bool = False  # the hub is, and that was said
    warned: float | None = None  # when
    is_unlinked: bool = False  # node 0 has succeeded and left

    ran: int = -1  # the last attempt in which ranks have run
    failed_at: float | None = None  # when this node has failed or was stopped, in this attempt
    stopped: int = -1  # the last attempt whose stop was passed to the runner, likewise below
    stop: StopAll | None = None  # the last one by a hub, for a hub that takes its place
    verdict: JobVerdict | None = None
    started: int = 0
    joined: Joined | None = None
    waiting: tuple[str, float] = ("", 0.0)  # the sentence, and when to show it
    warning: str = ""  # the last one passed to the runner
    is_refused: bool = False
    passed_on: str = ""  # the last request passed to the runner
    request: Asked | None = None  # of this node
    request_until: float = 0.0  # when it is given up
    requests: int = 0
    settled: int = -1  # the last attempt after which every node was known to be dead

    is_gone: bool = False  # the runner has died
    parting: float | None = None  # when this node has said all that it will say
    body: FromSpoke | None = None  # the last message, without what differs in each
    wire_body: Mapping[str, object] = attrs.field(factory=dict, eq=False)  # the same, encoded
    dropped: int = 0  # malformed messages
    now: float = 0.0  # when the last event happened
    due: float = attrs.field(default=math.inf, eq=False)  # the time of the last requested wake-up

    @property
    def is_over(self) -> bool:
        """Whether there is nothing left to say: the last word was acknowledged, or that has been waited for.

        Node 0 may still be starting when this node is stopped, and is dialled so that it learns of that. If an
        earlier link process of this node has reached it, `contact` is known.
        """
        if self.parting is None:
            return False
        is_known = self.contact is not None and self.contact >= self.parting and not self.is_due
        is_of_no_use = self.is_unlinked or not (self.hub or self.contact is not None or self.local.signum)
        return is_known or is_of_no_use or self.now >= self.parting + PARTING

    @property
    def knows(self) -> int:
        """The last attempt on which there is a verdict."""
        return self.verdict.attempt if self.verdict else -1


Step = tuple[Spoke, tuple[Action, ...]]
Told = tuple[Spoke, tuple[News, ...]]


def transition(spoke: Spoke, event: Event) -> Step:
    """Return the spoke after `event`, and the actions to perform."""
    born = event.at if spoke.born is None else spoke.born
    slept, heard = event.at - spoke.due, spoke.heard
    if slept >= BEAT and heard is not None:  # such as on a frozen machine; the hub was not silent then
        heard = min(event.at, heard + slept)
    spoke = attrs.evolve(spoke, born=born, now=event.at, heard=heard)
    spoke, news = HANDLERS[type(event)](spoke, event)
    for rule in RULES:
        spoke, more = rule(spoke)
        news += more
    spoke, sends = _send(spoke)
    spoke = attrs.evolve(spoke, due=_next(spoke))
    return spoke, (*sends, *map(Tell, news), Wake(spoke.due))


# --- Events -----------------------------------------------------------------------------------------------------------


def _received(spoke: Spoke, event: Received) -> Told:
    message = wire.decode_hub(event.message)
    if message is None:
        is_first = not spoke.dropped
        spoke = attrs.evolve(spoke, dropped=spoke.dropped + 1)
        return spoke, (Warned(sentence="a malformed message from node 0 was dropped"),) if is_first else ()
    header = message.header
    if header.sender == spoke.hub and header.seq <= spoke.hub_seq:
        return spoke, ()  # overtaken by a later one
    if spoke.is_unlinked:
        return spoke, ()
    return _heard(spoke, message), ()


def _heard(spoke: Spoke, message: FromHub) -> Spoke:
    header = message.header
    contact = spoke.contact
    if header.to == spoke.identity.incarnation and header.echo is not None and header.echo <= spoke.now:
        contact = max(header.echo, contact or header.echo)
    is_other = header.sender != spoke.hub
    return attrs.evolve(
        spoke,
        hub=header.sender,
        hub_seq=header.seq,
        is_due=spoke.is_due or (not message.is_welcome and (is_other or spoke.is_welcome)),
        is_welcome=message.is_welcome,
        view=message.view,
        heard=spoke.now,
        hub_sent=header.sent,
        contact=contact,
    )


def _changed(spoke: Spoke, event: LocalChanged) -> Told:
    if spoke.is_gone or event.local.attempt < spoke.local.attempt:
        return spoke, ()
    versions, local = event.local.versions, attrs.evolve(event.local, versions=())
    if versions and versions != spoke.identity.versions:
        identity = attrs.evolve(spoke.identity, versions=versions)
        spoke = attrs.evolve(spoke, identity=identity, identified_at=spoke.now, is_due=True)
    spoke = attrs.evolve(spoke, is_due=spoke.is_due or local != spoke.local)
    return _became(spoke, local), ()


def _became(spoke: Spoke, local: Local) -> Spoke:
    is_next = local.attempt > spoke.local.attempt
    failed_at = None if is_next else spoke.failed_at
    if failed_at is None and (local.failure or local.signum):
        failed_at = spoke.now
    return attrs.evolve(
        spoke,
        local=local,
        ran=local.attempt if local.stage in RAN else spoke.ran,
        failed_at=failed_at,
        parting=spoke.now if local.stage is Stage.LEFT and spoke.parting is None else spoke.parting,
    )


def _requested(spoke: Spoke, event: Requested) -> Told:
    """Ask the hub, one request after the other: a second one replaces one that is not done."""
    if event.asked.request == "nodes":  # on node 0, the hub beside this spoke answers
        return spoke, (NodesKnown(nodes=_known_nodes(spoke)),) if spoke.identity.node else ()
    if not _is_linked(spoke):
        return spoke, (Answered(request=event.asked.request),)
    number, until = spoke.requests + 1, spoke.now + ASK_LIMIT + BEAT
    asked = attrs.evolve(event.asked, request_id=f"{spoke.identity.incarnation}:{number}")
    return attrs.evolve(spoke, request=asked, request_until=until, requests=number, is_due=True), ()


def _is_linked(spoke: Spoke) -> bool:
    return spoke.is_welcome and not spoke.is_unlinked and spoke.now < _silent_at(spoke)


def _known_nodes(spoke: Spoke) -> tuple[NodeRecord, ...]:
    """Return the nodes as seen from a node other than node 0: itself, and whether it reaches node 0."""
    heard = None if spoke.heard is None else spoke.now - spoke.heard
    identity, local = spoke.identity, spoke.local
    own = NodeRecord(
        node=identity.node,
        pod=identity.pod,
        address=identity.address,
        host=identity.host,
        state=local.state or local.stage.value,
        attempt=local.attempt,
        ranks=identity.ranks,
        alive=local.alive,
        step=local.step,
        heard=0.0,
    )
    return NodeRecord(node=0, is_unreachable=not _is_linked(spoke), heard=heard), own


def _ticked(spoke: Spoke, _event: Tick) -> Told:
    return spoke, ()


def _runner_gone(spoke: Spoke, _event: RunnerGone) -> Told:
    if spoke.is_gone or spoke.local.stage is Stage.LEFT:
        return spoke, ()
    node = spoke.identity.node
    failure = Failure(ending=f"the runner of node {node} died", status=KILLED, kind=FailureClass.OWN, at=spoke.now)
    local = attrs.evolve(spoke.local, stage=Stage.GONE, state=RUNNER_DIED, failure=spoke.local.failure or failure)
    return _became(attrs.evolve(spoke, is_gone=True, is_due=True), local), ()


def _all_dead(spoke: Spoke, event: AllDead) -> Told:
    local = attrs.evolve(spoke.local, stage=Stage.DEAD, alive=0, survivors=event.survivors)
    if spoke.local.stage is Stage.LEFT:
        return spoke, ()
    return attrs.evolve(spoke, local=local, is_due=True, parting=spoke.now), ()


HANDLERS: Final[Mapping[type[Event], Callable[..., Told]]] = {
    Received: _received,
    LocalChanged: _changed,
    Requested: _requested,
    Tick: _ticked,
    RunnerGone: _runner_gone,
    AllDead: _all_dead,
}


# --- What the hub says ------------------------------------------------------------------------------------------------


def _tell_refusal(spoke: Spoke) -> Told:
    if not spoke.view.refusal or spoke.is_refused:
        return spoke, ()
    return attrs.evolve(spoke, is_refused=True), (Refused(sentence=spoke.view.refusal),)


def _tell_wait(spoke: Spoke) -> Told:
    """Tell what this node waits for, once that lasts and then each minute; most waits are over in a moment."""
    wait, (sentence, due) = _wait(spoke), spoke.waiting
    if wait and wait != sentence:
        due = spoke.now + (0.0 if _is_about_this(spoke) else LASTING)
        spoke = attrs.evolve(spoke, waiting=(wait, due))
    if not wait or spoke.now < due:
        return spoke, ()
    news = Waiting(sentence=wait, rereads_table=spoke.view.rereads_table)
    return attrs.evolve(spoke, waiting=(wait, spoke.now + AGAIN)), (news,)


def _end_wait(spoke: Spoke) -> Told:
    if _wait(spoke) or not spoke.waiting[0]:
        return spoke, ()
    return attrs.evolve(spoke, waiting=("", 0.0)), (Waiting(sentence=""),)


def _wait(spoke: Spoke) -> str:
    """Return what this node waits for, "" for nothing. The hub may not know yet that it is ready."""
    local, view = spoke.local, spoke.view
    is_idle = local.stage in {Stage.READY, Stage.DEAD} and local.attempt >= view.attempt
    others = [node for node in view.awaited if node != spoke.identity.node]
    if not (is_idle or _is_about_this(spoke)) or (view.awaited and not others):
        return ""
    return f"waiting for {named(others)} {view.wait}" if others else view.wait


def _is_about_this(spoke: Spoke) -> bool:
    return spoke.view.rereads_table or not spoke.is_welcome


def _tell_warning(spoke: Spoke) -> Told:
    warning = spoke.view.warning
    if not spoke.is_welcome or warning == spoke.warning:
        return spoke, ()
    return attrs.evolve(spoke, warning=warning), (Warned(sentence=warning),) if warning else ()


def _tell_joined(spoke: Spoke) -> Told:
    is_behind = spoke.view.attempt > max(spoke.local.attempt, spoke.knows + 1)
    joined = Joined(missing=spoke.view.missing, attempt=spoke.view.attempt if is_behind else 0)
    if not spoke.is_welcome or joined == spoke.joined or _is_first_open(spoke):
        return spoke, ()
    return attrs.evolve(spoke, joined=joined), (joined,)


def _is_first_open(spoke: Spoke) -> bool:
    """Whether the first attempt may turn out to be over: a new node 0 learns that from the others, who look for it."""
    is_first = spoke.identity.max_restarts > 0 and spoke.joined is None and spoke.view.attempt == 0
    return is_first and bool(spoke.view.missing) and spoke.now < _first_at(spoke)


def _first_at(spoke: Spoke) -> float:
    return (spoke.born or 0.0) + FIRST_WORD


def _tell_stop(spoke: Spoke) -> Told:
    """Pass on the stop of this attempt; ranks of an attempt that the others have left are stopped as well (law 5)."""
    stop, attempt = spoke.view.stop, spoke.local.attempt
    obeyed = spoke.stop if stop is None else stop
    is_late = spoke.view.attempt > attempt and spoke.local.stage in RAN
    if is_late and (stop is None or stop.attempt != attempt):
        stop = StopAll(attempt=attempt, ending=f"the other nodes are at attempt {spoke.view.attempt}")
    if stop is None or stop.attempt != attempt or spoke.stopped >= attempt or not spoke.is_welcome:
        return spoke, ()
    failed_at = spoke.now if spoke.failed_at is None else spoke.failed_at
    return attrs.evolve(spoke, stopped=attempt, stop=obeyed, failed_at=failed_at), (stop,)


def _tell_verdict(spoke: Spoke) -> Told:
    """Pass on the verdict; a node that is behind learns the last one, and goes on from there.

    A hub that has taken the place of another one does not know the verdict of that, but that the others go on.
    """
    verdict, attempt = spoke.view.verdict, spoke.local.attempt
    is_unknown = verdict is None or verdict.attempt < attempt
    if is_unknown and spoke.view.attempt > attempt and spoke.local.stage is Stage.DEAD:
        sentence = f"the other nodes are at attempt {spoke.view.attempt}"
        missing = _others(spoke)
        verdict = JobVerdict(
            attempt=attempt, sentence=sentence, certainty="open", restarts=True, replaces=True, missing=missing
        )
    if verdict is None or not spoke.is_welcome or verdict.attempt <= max(spoke.knows, spoke.local.attempt - 1):
        return spoke, ()
    settled = verdict.attempt if verdict.restarts and not verdict.missing else spoke.settled
    return attrs.evolve(spoke, verdict=verdict, settled=settled, is_due=True), (VerdictReached(verdict),)


def _tell_start(spoke: Spoke) -> Told:
    attempt = spoke.local.attempt
    is_ready = spoke.local.stage is Stage.READY and spoke.knows < attempt and spoke.stopped < attempt
    if not (is_ready and spoke.is_welcome and spoke.view.start == attempt > spoke.started):
        return spoke, ()
    return attrs.evolve(spoke, started=attempt), (StartAll(attempt=attempt),)


def _hear_bye(spoke: Spoke) -> Told:
    """Acknowledge that node 0 leaves, which waits for that, and say nothing more."""
    if spoke.is_unlinked or not (spoke.view.is_bye and spoke.is_welcome):
        return spoke, ()
    return attrs.evolve(spoke, is_unlinked=True, is_due=True), ()


def _tell_requests(spoke: Spoke) -> Told:
    news: list[News] = []
    asked, own = spoke.view.asked, spoke.request
    if asked and asked.request_id != spoke.passed_on:
        spoke = attrs.evolve(spoke, passed_on=asked.request_id)
        news.append(asked)
    if asked and own and asked.request == own.request == "checkpoint":  # a scheduler signals all nodes: one is enough
        own = attrs.evolve(own, request_id=asked.request_id)
        spoke = attrs.evolve(spoke, request=own)
    is_answered = own is not None and spoke.view.answered == own.request_id
    if own and (is_answered or spoke.now >= spoke.request_until):
        spoke = attrs.evolve(spoke, request=None, is_due=True)
        news.append(Answered(request=own.request, results=spoke.view.results if is_answered else ()))
    return spoke, tuple(news)


# --- Without the hub --------------------------------------------------------------------------------------------------


def _watch_hub(spoke: Spoke) -> Told:
    """Warn about a hub that is silent, at most once a minute, and say when it is back; not once the job has ended."""
    is_over = spoke.verdict is not None and not spoke.verdict.restarts and spoke.knows >= spoke.local.attempt
    is_recent = not spoke.is_unreachable and spoke.warned is not None and spoke.now < spoke.warned + AGAIN
    is_unreachable = (
        spoke.now >= _silent_at(spoke)
        and not is_recent
        and not (spoke.is_unlinked or spoke.parting is not None or is_over)
    )
    if is_unreachable == spoke.is_unreachable:
        return spoke, ()
    spoke = attrs.evolve(spoke, is_unreachable=is_unreachable, warned=spoke.now if is_unreachable else spoke.warned)
    if spoke.is_unlinked or spoke.parting is not None:
        return spoke, ()
    sentence = "node 0 is reachable again"
    if is_unreachable and spoke.heard is None:
        sentence = f"node 0 does not answer within {duration(NO_HUB)}: this node runs without a link to the others"
    elif is_unreachable:
        sentence = f"node 0 is unreachable: no message for {duration(UNREACHABLE)}"
    return spoke, (Warned(sentence=sentence),)


def _silent_at(spoke: Spoke) -> float:
    return (spoke.born or 0.0) + NO_HUB if spoke.heard is None else spoke.heard + UNREACHABLE


def _decide_alone(spoke: Spoke) -> Told:
    """End by this node's own verdict if no other one comes (law 4)."""
    attempt, deadline = spoke.local.attempt, _alone_at(spoke)
    if deadline is None or spoke.now < deadline or spoke.knows >= attempt:
        return spoke, ()
    verdict = _own_verdict(spoke)
    return attrs.evolve(spoke, verdict=verdict, is_due=True), (VerdictReached(verdict),)


def _alone_at(spoke: Spoke) -> float | None:
    """Return when this node decides alone, None if there is nothing to decide."""
    if spoke.parting is not None or spoke.is_gone:
        return None
    if spoke.failed_at is not None and spoke.is_unlinked and spoke.local.stage is Stage.DEAD:
        return spoke.failed_at
    if spoke.failed_at is not None:
        return spoke.failed_at + ALONE + (spoke.identity.grace if spoke.hub and not spoke.is_unlinked else 0.0)
    is_waiting = spoke.local.stage is Stage.DEAD or (spoke.local.stage in WAITS and spoke.local.attempt > 0)
    return _lease(spoke) if is_waiting else None


def _lease(spoke: Spoke) -> float:
    """Return until when the hub counts on this node: since the last message that it has certainly heard."""
    contact = spoke.born if spoke.contact is None else spoke.contact
    return (contact or 0.0) + spoke.identity.link_timeout


def _own_verdict(spoke: Spoke) -> JobVerdict:
    """Return the verdict of this node alone; its status is that of the stop that the hub sent, if any (law 3)."""
    identity, local = spoke.identity, spoke.local
    stop = spoke.view.stop if spoke.view.stop and spoke.view.stop.attempt == local.attempt else None
    verdict = JobVerdict(attempt=local.attempt, missing=_others(spoke), is_alone=True, pod=identity.pod)
    found = local.diagnosed or local.failure
    if found:
        verdict = attrs.evolve(
            verdict,
            node=identity.node,
            rank_id=found.rank_id,
            sentence=local.diagnosed.sentence if local.diagnosed else local.failure.ending if local.failure else "",
            kind=found.kind.value,
            certainty="likely" if found.kind is FailureClass.OWN else "open",
            status=found.status,
            lines=local.diagnosed.lines if local.diagnosed else (),
        )
    elif local.signum:
        verdict = attrs.evolve(verdict, node=identity.node, certainty="likely", status=128 + local.signum)
    elif local.stage is Stage.DEAD and spoke.failed_at is None:
        return verdict  # it has succeeded
    else:  # it was stopped, or was not ready for the attempt after the last verdict
        status = spoke.verdict.status if spoke.verdict else 1
        verdict = attrs.evolve(verdict, sentence="no verdict from node 0", certainty="open", status=status)
    return attrs.evolve(verdict, status=exit_status(stop.status if stop else verdict.status))


def _others(spoke: Spoke) -> tuple[int, ...]:
    identity = spoke.identity
    return tuple(node for node in range(identity.nodes) if node != identity.node)[:MOST_NAMED]


def _keep_lease(spoke: Spoke) -> Told:
    """Stop the ranks of a node that has had no contact for so long that the others may start without it."""
    attempt = spoke.local.attempt
    is_bound = spoke.identity.max_restarts > 0 and spoke.contact is not None and not spoke.is_unlinked
    is_over = spoke.now >= _lease(spoke) and spoke.local.stage in RAN and spoke.stopped < attempt
    if not (is_bound and is_over and spoke.failed_at is None):
        return spoke, ()
    ending = f"no contact with node 0 for {duration(spoke.identity.link_timeout)} (--link-timeout)"
    stop = StopAll(attempt=attempt, ending=ending)
    return attrs.evolve(spoke, stopped=attempt, failed_at=spoke.now), (stop,)


RULES: Final[tuple[Callable[[Spoke], Told], ...]] = (
    _watch_hub,
    _tell_refusal,
    _tell_wait,  # before any news that lets the runner start
    _tell_warning,
    _tell_stop,
    _tell_verdict,
    _tell_joined,
    _end_wait,  # after the news that a runner needs once it stops waiting
    _tell_start,
    _tell_requests,
    _hear_bye,
    _keep_lease,
    _decide_alone,
)


# --- What this node says ----------------------------------------------------------------------------------------------


def _send(spoke: Spoke) -> tuple[Spoke, tuple[Action, ...]]:
    is_beat = not spoke.is_unlinked and (spoke.sent is None or spoke.now >= spoke.sent + BEAT)
    if spoke.is_over or not (spoke.is_due or is_beat):
        return spoke, ()
    seq = max(spoke.seq + 1, int(spoke.now * 1e6))  # another link process of this runner goes on with higher ones
    spoke = attrs.evolve(spoke, seq=seq, sent=spoke.now, is_due=False)
    header = Header(
        sender=spoke.identity.incarnation,
        seq=spoke.seq,
        sent=spoke.now,
        to=spoke.hub,
        echo=spoke.hub_sent,
        held=spoke.now - (spoke.now if spoke.heard is None else spoke.heard),
    )
    body = _body(spoke)
    if body != spoke.body:  # most messages are beats, in which nothing is new
        spoke = attrs.evolve(spoke, body=body, wire_body=wire.encode_spoke(body))
    failure = spoke.local.failure
    age = max(0.0, spoke.now - failure.at) if failure else 0.0
    times = {"header": attrs.asdict(header, recurse=False), "wall": spoke.now + spoke.epoch, "age": age}
    return spoke, (Send(HUB, {**spoke.wire_body, **times}),)


def _body(spoke: Spoke) -> FromSpoke:
    """Return a message without what differs in each."""
    return FromSpoke(
        node=spoke.identity.node,
        local=attrs.evolve(spoke.local, is_silent=_is_silent(spoke)),
        identity=None if _is_identified(spoke) else spoke.identity,
        ran=spoke.ran,
        knows=spoke.knows,
        settled=spoke.settled,
        stop=spoke.stop,
        is_gone=spoke.is_gone,
        asked=spoke.request,
    )


def _is_identified(spoke: Spoke) -> bool:
    """Whether the hub knows the identity of this node as it is now."""
    return spoke.is_welcome and spoke.contact is not None and spoke.contact > spoke.identified_at


def _is_silent(spoke: Spoke) -> bool:
    local = spoke.local
    return local.is_silent or (local.silent_from is not None and spoke.now >= local.silent_from)


def _next(spoke: Spoke) -> float:
    """Return when the next message or decision is due."""
    return min(time for time in _times(spoke) if time > spoke.now)


def _times(spoke: Spoke) -> Iterator[float]:
    yield spoke.now + AGAIN
    if not (spoke.is_unlinked or spoke.is_over):
        yield (spoke.sent or 0.0) + BEAT
    yield from (_silent_at(spoke), _first_at(spoke), spoke.request_until)
    alone = _alone_at(spoke)
    if alone is not None and spoke.knows < spoke.local.attempt:
        yield alone

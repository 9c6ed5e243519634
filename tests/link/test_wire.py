"""Messages between nodes: whatever a node says fits, and whatever a stranger sends is harmless."""

from __future__ import annotations

import json
from typing import Any

import attrs
from hypothesis import given
from hypothesis import strategies as st

from ascend_runner.link import hub as hub_rules
from ascend_runner.link import spoke as spoke_rules
from ascend_runner.link import wire
from ascend_runner.link.hub import Hub
from ascend_runner.link.messages import LARGEST_MESSAGE, Diagnosed, Failure, Identity, Local, Stage, StopAll
from ascend_runner.link.protocol import HUB, Received, Send, Tick
from ascend_runner.link.spoke import Spoke
from ascend_runner.link.wire import FromSpoke, Header, View
from ascend_runner.record.nodes import JobVerdict

LONG = "错" * 5000  # 6 bytes each in the longest form of JSON
IDENTITY = Identity(node=1, nodes=2, incarnation="x")
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=5), children, max_size=3),
    max_leaves=8,
)


def damaged(message: dict[str, Any], path: list[int], value: object) -> dict[str, Any]:
    """Return a message with another value somewhere."""
    message = json.loads(json.dumps(message))
    place, names = message, sorted(message)
    for number in path:
        name = names[number % len(names)]
        if not isinstance(place[name], dict) or not place[name]:
            break
        place = place[name]
        names = sorted(place)
    place[name] = value
    return message


def sent(spoke: Spoke, at: float = 1.0) -> dict[str, Any]:
    """Return the first message of a node."""
    _spoke, actions = spoke_rules.transition(spoke, Tick(at))
    return dict(next(action.message for action in actions if isinstance(action, Send)))


def test_whatever_a_node_says_fits() -> None:
    """Texts are cut, and the ends of long outputs kept, so that a message is never too long."""
    diagnosed = Diagnosed(sentence=LONG, log=LONG, lines=(LONG,) * 50 + ("the end",), fingerprint=LONG)
    local = Local(state=LONG, table=LONG, failure=Failure(ending=LONG), diagnosed=diagnosed, survivors=(LONG,) * 500)
    identity = attrs.evolve(IDENTITY, host=LONG, pod=LONG, versions=((LONG, LONG),) * 100)
    header = Header(sender="x" * 100, seq=1)
    message = wire.encode_spoke(FromSpoke(header=header, node=1, local=local, identity=identity))
    verdict = JobVerdict(sentence=LONG, log=LONG, pod=LONG, lines=(LONG,) * 50, missing=tuple(range(5000)))
    stop = StopAll(attempt=0, node=1, ending=LONG)
    view = View(verdict=verdict, stop=stop, wait=LONG, refusal=LONG, missing=tuple(range(5000)))
    answer = wire.encode_hub(header, wire.encode_view(attrs.evolve(view, results=((LONG, LONG),) * 16)))

    assert LARGEST_MESSAGE >= max(len(json.dumps(message)), len(json.dumps(answer)))


def test_messages_survive_the_way() -> None:
    """What a node says arrives as it was."""
    diagnosed = Diagnosed(sentence="ValueError", lines=("a", "b"), has_progressed=False, certainty="certain")
    local = Local(attempt=2, stage=Stage.DEAD, failure=Failure(rank_id=3), diagnosed=diagnosed, lost=(1,), step=7)
    identity = attrs.evolve(IDENTITY, versions=(("CANN", "8.0"),))
    message = FromSpoke(header=Header(sender="x", seq=4), node=1, local=local, identity=identity, age=1.5)

    assert message == wire.decode_spoke(json.loads(json.dumps(wire.encode_spoke(message))))


@given(st.lists(st.integers(0, 50), min_size=1, max_size=4), values)
def test_damaged_messages_are_harmless(path: list[int], value: object) -> None:
    """A message of which any part is something else raises nothing, and leaves at most one record of a node."""
    identity = attrs.evolve(IDENTITY, node=0)
    hub, actions = hub_rules.transition(
        Hub(identity=identity), Received(b"1", damaged(sent(Spoke(identity=IDENTITY)), path, value), 1.0)
    )
    assert len(hub.peers) + len(hub.contenders) <= identity.nodes
    hub, actions = hub_rules.transition(hub, Received(b"1", sent(Spoke(identity=IDENTITY), 4.0), 4.5))
    answer = dict(next(action.message for action in actions if isinstance(action, Send)))
    spoke = Spoke(identity=IDENTITY)
    for at in (5.0, 6.0):
        spoke, _actions = spoke_rules.transition(spoke, Received(HUB, damaged(answer, path, value), at))


@given(st.dictionaries(st.sampled_from(("header", "view", "node", "local", "identity")), values))
def test_garbage_is_dropped(message: dict[str, object]) -> None:
    """What is no message at all is counted."""
    hub, _actions = hub_rules.transition(Hub(identity=IDENTITY), Received(b"1", message, 1.0))
    spoke, _news = spoke_rules.transition(Spoke(identity=IDENTITY), Received(HUB, message, 1.0))

    assert (1, 1) == (hub.dropped, spoke.dropped)

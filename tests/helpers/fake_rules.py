"""Rules that a test can foresee, instead of `link.protocol`: each node repeats what it says, the hub passes it on.

The news of a runner are what all nodes have said, as the hub knows it: `{"0": "running", "1": "gone"}` in JSON.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping
from typing import Final, Union

import attrs

from ascend_runner.link.channel import Settings
from ascend_runner.link.messages import Warned
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
    Wake,
)

BEAT: Final = 0.05  # seconds
RUN: Final = (
    "from tests.helpers import fake_rules; process.main(int(sys.argv[1]), fake_rules.make, fake_rules.transition)"
)


@attrs.frozen
class Spoke:
    """What this node says."""

    node: int
    beat: float = BEAT
    said: str = "hello"
    heard: Mapping[str, object] = {}
    is_over: bool = True
    contact: float | None = None


@attrs.frozen
class Hub:
    """What the nodes have said, and their peers."""

    said: Mapping[str, str] = {}
    peers: Mapping[str, bytes] = {}
    is_over: bool = True
    contact: float | None = None


State = Union[Spoke, Hub]


def make(settings: Settings, _now: float) -> tuple[Spoke, Hub | None]:
    """Return the machines of a node."""
    return Spoke(settings.identity.node), None if settings.identity.node else Hub()


def transition(state: State, event: Event) -> tuple[State, tuple[Action, ...]]:
    """Return the next state of a machine, and its actions."""
    return _spoke(state, event) if isinstance(state, Spoke) else _hub(state, event)


def _hub(state: Hub, event: Event) -> tuple[Hub, tuple[Action, ...]]:
    if not isinstance(event, Received):
        return state, ()
    node, said = str(event.message["node"]), str(event.message["said"])
    state = Hub({**state.said, node: said}, {**state.peers, node: event.peer})
    return state, tuple(Send(peer, {"said": state.said}) for peer in state.peers.values())


def _spoke(state: Spoke, event: Event) -> tuple[Spoke, tuple[Action, ...]]:
    if isinstance(event, Received):
        heard = event.message
        news = () if heard == state.heard else (Tell(Warned(sentence=json.dumps(heard["said"]))),)
        return attrs.evolve(state, heard=heard), news
    if isinstance(event, LocalChanged):
        _misbehave(event.local.state)
        state = attrs.evolve(state, said=event.local.state)
        if event.local.state == "flood":
            return state, (Tell(Warned(sentence="news")),) * 5000
    elif isinstance(event, RunnerGone):
        state = attrs.evolve(state, said="gone")
    elif isinstance(event, AllDead):
        state = attrs.evolve(state, said=" ".join(["dead", *event.survivors]))
    return state, (Send(HUB, {"node": state.node, "said": state.said}), Wake(event.at + state.beat))


def _misbehave(state: str) -> None:
    if state == "abort":
        os.abort()
    if state == "freeze":
        os.kill(os.getpid(), signal.SIGSTOP)

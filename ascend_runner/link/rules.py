"""The rules of `hub` and `spoke`, as the link process runs them: apart from `process`, which is tested with others."""

from __future__ import annotations

import time
from typing import Union

from ascend_runner.link import hub, spoke
from ascend_runner.link.channel import Settings
from ascend_runner.link.hub import Hub
from ascend_runner.link.protocol import Action, Event
from ascend_runner.link.spoke import Spoke
from ascend_runner.supervision.job_machine import Policy

State = Union[Hub, Spoke]


def make(settings: Settings, now: float) -> tuple[Spoke, Hub | None]:
    """Return the machines of a node; only node 0 has a hub. `now` is the time of the monotonic clock."""
    identity, epoch = settings.identity, time.time() - now
    policy = Policy(
        max_restarts=identity.max_restarts,
        always=frozenset(settings.always),
        never=frozenset(settings.never),
        delay=settings.delay,
    )
    own = Spoke(identity=identity, epoch=epoch, contact=settings.contact)
    if identity.node:
        return own, None
    return own, Hub(identity=identity, policy=policy, epoch=epoch, node_timeout=settings.node_timeout)


def transition(state: State, event: Event) -> tuple[State, tuple[Action, ...]]:
    """Return the machine after an event, and the actions to perform."""
    return hub.transition(state, event) if isinstance(state, Hub) else spoke.transition(state, event)

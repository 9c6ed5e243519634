"""Nodes on loopback addresses that only this test uses."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import attrs
import pytest

from ascend_runner.link import channel, meeting
from ascend_runner.link.link import Limits, Link, Surroundings
from ascend_runner.link.messages import Identity, Warned
from tests.helpers import fake_rules
from tests.helpers.waiting import wait_until

PORTS: Final = (21001, 21002)
QUICK: Final = Limits(ping_interval=0.1, answer=1.0, first_delay=0.05, most_messages=100)
_NUMBERS: Final = itertools.count(1)


def own_address() -> str:
    """Return a loopback address that no other test uses at this time."""
    pid = os.getpid()
    return f"127.{10 + pid // 256 % 200}.{pid % 256}.{next(_NUMBERS) % 254 + 1}"


class Node:
    """A node with its link; `warnings` are those of its runner, `heard` is the last that the hub has sent."""

    def __init__(self, settings: channel.Settings, limits: Limits = QUICK, run: str = fake_rules.RUN) -> None:
        self.warnings: list[str] = []
        self.heard: dict[str, str] = {}
        self.sentences: list[str] = []  # other news
        self.wakes = 0
        around = Surroundings(environ=os.environ, warn=self.warnings.append, wake=self._wake)
        self.link = Link(settings, around, limits, run)

    def _wake(self) -> None:
        self.wakes += 1

    @property
    def pid(self) -> int:
        """The link process, once there is one."""
        wait_until(lambda: self.link.pids)
        (pid,) = self.link.pids
        return pid

    def read(self) -> dict[str, str]:
        """Return what all nodes have said, as this one has heard."""
        for news in self.link.news():
            assert isinstance(news, Warned)
            if news.sentence.startswith("{"):
                self.heard = json.loads(news.sentence)
            else:
                self.sentences.append(news.sentence)
        return self.heard

    def wait_for(self, **said: str) -> None:
        """Wait until the nodes `_0`, `_1` and so on have said this."""
        wait_until(lambda: {name[1:]: text for name, text in said.items()}.items() <= self.read().items())


class Nodes:
    """Nodes of one job."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._nodes: list[Node] = []

    def settings(self, node: int, **changes: Any) -> channel.Settings:
        """Return the settings of a node; `changes` are other values of their fields."""
        identity = Identity(node=node, nodes=2, incarnation=f"runner {node}")
        usual = channel.Settings(
            identity=identity, key=KEY.hex(), ports=PORTS, hubs=(self.address,), interface=self.address
        )
        return attrs.evolve(usual, **changes)

    def open(self, settings: channel.Settings, limits: Limits = QUICK, run: str = fake_rules.RUN) -> Node:
        """Start a node."""
        node = Node(settings, limits, run)
        self._nodes.append(node)
        node.link.open()
        return node

    def meet(self, count: int = 2, limits: Limits = QUICK) -> list[Node]:
        """Start nodes that have all heard of each other."""
        nodes = [self.open(self.settings(number), limits) for number in range(count)]
        for node in nodes:
            node.wait_for(**{f"_{number}": "hello" for number in range(count)})
        return nodes

    def close(self) -> None:
        """End all nodes at once: each may wait for the others to hear its last word."""
        with ThreadPoolExecutor() as pool:
            for _ in pool.map(lambda node: node.link.close(), self._nodes):
                pass


KEY: Final = meeting.derive_key("id a test")


@pytest.fixture
def nodes() -> Iterator[Nodes]:
    """Return the nodes of a job that do not run yet."""
    found = Nodes(own_address())
    yield found
    found.close()

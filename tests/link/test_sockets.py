"""Names of node 0 are resolved beside everything else, and each of their addresses is dialled."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Final

import pytest
import zmq

from ascend_runner.link.sockets import (
    ADDRESSES_OF_NAME,
    MOST_ADDRESSES,
    RESOLVE,
    HubSocket,
    Names,
    SpokeSocket,
    derive_keys,
    resolve,
)
from tests.helpers.waiting import wait_until
from tests.link.conftest import KEY, PORTS, own_address

NAME: Final = "node-0"
DEAD: Final = "203.0.113.1"  # for documentation: nobody answers there (RFC 5737)
KEYS: Final = derive_keys(KEY)


class NameServer:
    """Knows addresses of names, and counts the queries; a query about a slow name waits until `go` is set."""

    def __init__(self) -> None:
        self.addresses: dict[str, tuple[str, ...]] = {}
        self.slow: set[str] = set()
        self.go = threading.Event()
        self.queries: list[str] = []

    def resolve(self, name: str) -> tuple[str, ...]:
        """Answer a query."""
        self.queries.append(name)
        if name in self.slow:
            self.go.wait()
        return self.addresses.get(name, ())


class Scene:
    """A node that dials node 0 at `hubs`, at a time of its own."""

    def __init__(self) -> None:
        self.server, self.now, self.address = NameServer(), 0.0, own_address()
        self.names = Names(self.server.resolve)
        self._context, self._contexts = zmq.Context(), list[zmq.Context[zmq.Socket[bytes]]]()
        self._hubs: list[HubSocket] = []
        self.spoke = SpokeSocket(self._context, KEYS, self.names, (), PORTS)

    def listen(self, address: str) -> HubSocket:
        """Let node 0 listen at an address."""
        self._contexts.append(zmq.Context())  # each has one place where it asks whom to let in
        hub = HubSocket(self._contexts[-1], KEYS)
        assert hub.bind(address, PORTS)
        self._hubs.append(hub)
        return hub

    def dial(self, *hubs: str) -> None:
        """Look for node 0."""
        self.spoke.move(hubs, self.now)

    def pass_time(self, seconds: float) -> None:
        """Let time pass for the node."""
        self.now += seconds
        self.spoke.keep_time(self.now)

    def turn(self) -> bool:
        """Do what can be done now; return whether node 0 has been found."""
        poller = zmq.Poller()
        places: list[SpokeSocket | HubSocket] = [self.spoke, *self._hubs]
        for source in [source for place in places for source in place.sources]:
            poller.register(source, zmq.POLLIN)
        poller.register(self.names.fileno(), zmq.POLLIN)
        ready = {source for source, _events in poller.poll(10)}
        for place in places:
            list(place.receive(ready, self.now))
        if self.names.fileno() in ready:
            self.names.take()
            self.spoke.follow_names()
        return self.spoke.has_hub

    def close(self) -> None:
        """End everything."""
        self.server.go.set()
        self.spoke.close(0)
        self.names.close()
        for context in (self._context, *self._contexts):
            context.destroy(0)


@pytest.fixture
def scene() -> Iterator[Scene]:
    """Return a node that does not dial yet."""
    scene = Scene()
    yield scene
    scene.close()


def test_each_address_of_a_name_is_dialled(scene: Scene) -> None:
    """Of several addresses, the one where node 0 listens is found."""
    scene.server.addresses[NAME] = (DEAD, scene.address)
    scene.listen(scene.address)
    scene.dial(NAME)

    wait_until(scene.turn)


def test_hanging_name_server_holds_up_nothing(scene: Scene) -> None:
    """While a name is being resolved, other places are dialled, and it is not asked for once more."""
    scene.server.slow.add(NAME)
    scene.listen(scene.address)
    scene.dial(NAME, "another")
    for _ in range(3):
        scene.pass_time(RESOLVE)
    scene.dial(NAME, scene.address)

    wait_until(scene.turn)
    assert 1 == scene.server.queries.count(NAME)


def test_unknown_name_is_resolved_again(scene: Scene) -> None:
    """A name that appears with the pod of node 0 is dialled then; once that is found, nobody asks again."""
    scene.listen(scene.address)
    scene.dial(NAME)
    wait_until(lambda: scene.turn() or scene.server.queries)
    scene.server.addresses[NAME] = (scene.address,)

    def is_found() -> bool:
        scene.pass_time(RESOLVE)
        return scene.turn()

    wait_until(is_found)
    count = len(scene.server.queries)
    scene.pass_time(RESOLVE)

    assert count == len(scene.server.queries)
    assert float("inf") == scene.spoke.due


def test_name_may_get_another_address(scene: Scene) -> None:
    """When node 0 is looked for again after a loss, its name is resolved again, and the old address given up."""
    scene.server.addresses[NAME] = (scene.address,)
    hub = scene.listen(scene.address)
    scene.dial(NAME)
    wait_until(scene.turn)
    hub.close()
    scene.server.addresses[NAME] = (moved,) = (own_address(),)
    scene.listen(moved)
    scene.spoke.dial(scene.now)
    wait_until(scene.turn)

    assert 2 == len(scene.spoke.sources)
    assert (moved,) == scene.names.of(NAME)


def test_address_stays_known_if_the_name_server_fails(scene: Scene) -> None:
    """A name server that is gone after the start does not separate a node from node 0."""
    scene.server.addresses[NAME] = (scene.address,)
    scene.dial(NAME)
    wait_until(lambda: scene.turn() or scene.names.of(NAME))
    del scene.server.addresses[NAME]
    scene.pass_time(RESOLVE)
    wait_until(lambda: scene.turn() or len(scene.server.queries) > 1)
    scene.listen(scene.address)

    wait_until(scene.turn)


def test_addresses_are_bounded(scene: Scene) -> None:
    """A name server that knows thousands of addresses costs no more sockets than a few."""
    scene.server.addresses[NAME] = tuple(f"203.0.113.{number}" for number in range(256))
    scene.dial(NAME)
    wait_until(lambda: scene.turn() or scene.names.of(NAME))
    scene.turn()

    assert 2 * len(PORTS) * MOST_ADDRESSES == len(scene.spoke.sources)


@pytest.mark.parametrize(
    ("name", "addresses"),
    [("127.0.0.1", ("127.0.0.1",)), ("::1", ("::1",)), ("a..b", ()), ("x" * 300, ()), ("\udcff", ())],
)
def test_texts_are_resolved(name: str, addresses: tuple[str, ...]) -> None:
    """An address is its own; what can be no name has none."""
    assert addresses == resolve(name)
    assert len(resolve("localhost")) in range(1, ADDRESSES_OF_NAME + 1)

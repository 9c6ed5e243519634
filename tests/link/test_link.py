"""Runners meet by their link processes, and no trouble of a link process reaches its runner."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from typing import TypeVar

import attrs
import pytest

from ascend_runner.link.link import RUN, Limits
from ascend_runner.link.meeting import derive_key, derive_ports
from ascend_runner.link.messages import (
    Diagnosed,
    Failure,
    FailureClass,
    Joined,
    Local,
    News,
    Refused,
    Stage,
    StopAll,
    VerdictReached,
)
from ascend_runner.link.protocol import PARTING
from ascend_runner.link.sockets import REDIAL
from tests.helpers.waiting import is_gone, wait_until
from tests.link.conftest import PORTS, Node, Nodes, own_address

Kind = TypeVar("Kind")

# --- Meeting ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 3])
def test_what_a_node_says_reaches_all(nodes: Nodes, count: int) -> None:
    """What a runner tells its link process is known to the link processes of all nodes, its own included."""
    linked = nodes.meet(count)
    linked[-1].link.tell(Local(state="running"))
    for node in linked:
        node.wait_for(**{f"_{count - 1}": "running"})

    assert all(node.wakes for node in linked)
    assert [[]] * count == [node.warnings for node in linked]


def test_hub_may_come_last(nodes: Nodes) -> None:
    """A spoke dials until its hub listens, and says at once what it has said in vain."""
    spoke = nodes.open(nodes.settings(1))
    spoke.link.tell(Local(state="early"))
    hub = nodes.open(nodes.settings(0))

    hub.wait_for(_0="hello", _1="early")


def test_hub_is_found_among_addresses(nodes: Nodes) -> None:
    """Addresses where nobody listens, names that are unknown and texts that are no addresses do no harm."""
    hubs = ("no-such-host.invalid", "::", own_address(), nodes.address)
    hub = nodes.open(nodes.settings(0))
    spoke = nodes.open(nodes.settings(1, hubs=hubs))
    hub.wait_for(_1="hello")

    assert [] == spoke.warnings


@pytest.mark.parametrize("hub", ["127.0.0.1", "::1"])
def test_hub_listens_everywhere(nodes: Nodes, hub: str) -> None:
    """Without an interface, the hub is reached by IPv4 and IPv6."""
    if not socket.has_ipv6:
        pytest.skip("no IPv6")
    ports = derive_ports(f"{own_address()} {os.getpid()} {hub}", {})
    linked = [nodes.open(nodes.settings(node, ports=ports, interface="*", hubs=(hub,))) for node in range(2)]

    linked[1].wait_for(_0="hello", _1="hello")


def test_taken_port_is_passed_over(nodes: Nodes) -> None:
    """If another program listens at the first port, the hub takes the next one, and is found there."""
    with socket.create_server((nodes.address, PORTS[0])):
        linked = nodes.meet()

    assert [[], []] == [node.warnings for node in linked]


def test_hub_without_port_says_so(nodes: Nodes) -> None:
    """If all ports are taken, the hub warns once, and its own node stays linked with itself."""
    with socket.create_server((nodes.address, PORTS[0])):
        hub = nodes.open(nodes.settings(0, ports=PORTS[:1]))
        wait_until(lambda: hub.read() and hub.sentences)

    assert [True] == [f"{PORTS[0]} is in use" in sentence for sentence in hub.sentences]
    assert {"0": "hello"} == hub.heard


def test_hub_without_port_ends_at_once(nodes: Nodes) -> None:
    """A node that has not joined is not waited for after a failure: nobody can hear it."""
    with socket.create_server((nodes.address, PORTS[0])):
        hub = nodes.open(nodes.settings(0, ports=PORTS[:1]), run=RUN)
        news = Read([hub])
        failure = Failure(rank_id=0, ending="exit status 7", status=7, kind=FailureClass.OWN, at=time.monotonic())
        hub.link.tell(Local(stage=Stage.DEAD, failure=failure, diagnosed=Diagnosed(status=7)))
        wait_until(lambda: news.of(0, VerdictReached))
        hub.link.tell(Local(stage=Stage.LEFT, failure=failure, status=7))
        decided = time.monotonic()
        hub.link.close()

    assert time.monotonic() - decided < PARTING - 1.0


def test_foreign_hub_is_passed_over(nodes: Nodes) -> None:
    """Two jobs with the same addresses and ports do not hear each other."""
    other = derive_key("id another test").hex()
    foreign = nodes.open(nodes.settings(0, key=other))
    foreign.wait_for(_0="hello")
    linked = nodes.meet()
    foreign_spoke = nodes.open(nodes.settings(1, key=other))
    foreign.wait_for(_1="hello")

    assert {"0": "hello", "1": "hello"} == linked[0].read()
    assert [[], []] == [node.warnings for node in linked]
    assert not foreign_spoke.warnings


def test_wrong_key_is_not_heard(nodes: Nodes) -> None:
    """A node with another key is not heard, and both sides say so once, with the address."""
    hub = nodes.open(nodes.settings(0))
    stranger = nodes.open(nodes.settings(1, key=derive_key("id another test").hex()))
    wait_until(lambda: stranger.read() or stranger.sentences)
    wait_until(lambda: hub.read() and hub.sentences)

    assert {"0": "hello"} == hub.heard
    assert 1 == len(stranger.sentences) == len(hub.sentences)
    assert f"{nodes.address}:{PORTS[0]}" in stranger.sentences[0]
    assert ["a connection from 127.0.0.1 without this job's key was ignored"] == hub.sentences


# --- Strangers --------------------------------------------------------------------------------------------------------

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00CURVE" + bytes(48)  # of ZMTP 3.0; the last byte but 31 says "a client"


@pytest.mark.deep(quick=2)
@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        bytes(100_000),
        b"\xff" * 100_000,
        GREETING + b"\x04\xc8\x05HELLO" + bytes(194),
        GREETING + b"\x06" + b"\xff" * 8 + b"x" * 100_000,
        GREETING.replace(b"CURVE", b"NULL\0") + b"\x04\x26\x05READY" + bytes(32),
    ],
    ids=["http", "zeros", "ones", "hello", "long", "null"],
)
def test_bytes_of_strangers_are_dropped(nodes: Nodes, data: bytes) -> None:
    """Whatever somebody without the key sends, the nodes stay linked, and one sentence reports it."""
    hub, spoke = nodes.meet()
    for _ in range(20):
        with socket.create_connection((nodes.address, PORTS[0])) as stranger:
            try:
                stranger.sendall(data)
            except OSError:
                continue  # refused meanwhile
    spoke.link.tell(Local(state="running"))
    hub.wait_for(_1="running")

    assert [] == hub.warnings
    assert len(hub.sentences) <= 1


@pytest.mark.deep
def test_flood_of_connections_is_bounded(nodes: Nodes) -> None:
    """Thousands of silent connections cost a bounded amount of memory, and those with the key are still heard."""
    hub, spoke = nodes.meet()
    strangers: list[socket.socket] = []
    try:
        for _ in range(900):
            strangers.append(socket.socket(type=socket.SOCK_STREAM | socket.SOCK_NONBLOCK))
            strangers[-1].connect_ex((nodes.address, PORTS[0]))
        spoke.link.tell(Local(state="running"))
        hub.wait_for(_1="running")

        assert memory_of(hub.pid) < 60_000
    finally:
        for stranger in strangers:
            stranger.close()
    assert [] == hub.warnings


def memory_of(pid: int) -> int:
    """Return the memory of a process, in KiB."""
    with open(f"/proc/{pid}/status") as file:
        return int(next(line for line in file if line.startswith("VmRSS:")).split()[1])


# --- Trouble of the link process --------------------------------------------------------------------------------------


@pytest.mark.deep
@pytest.mark.parametrize("node", [0, 1])
@pytest.mark.parametrize(
    ("trouble", "how"),
    [
        ("SIGKILL", "was killed by SIGKILL"),
        ("SIGSTOP", "does not respond and was killed"),
        ("abort", "was killed by SIGABRT"),
        ("flood", "has sent more than 100 messages in a second and was killed"),
    ],
)
def test_link_process_is_started_again(nodes: Nodes, node: int, trouble: str, how: str) -> None:
    """A link process that is killed, frozen, aborted or floods its runner is replaced; a warning says so once."""
    linked = nodes.meet()
    for _ in range(2):
        before = linked[node].pid
        if trouble.startswith("SIG"):
            os.kill(before, getattr(signal, trouble))
        else:
            linked[node].link.tell(Local(state=trouble))
        wait_until(lambda before=before: is_gone(before))
        linked[node].link.tell(Local(state="again"))
        for each in linked:
            each.wait_for(**{f"_{node}": "again"})
        linked[node].link.tell(Local(state="hello"))
        for each in linked:
            each.wait_for(**{f"_{node}": "hello", f"_{1 - node}": "hello"})

    warning = f"the link process {how}; restarting it; until then, the job continues without a link"
    assert [warning] == linked[node].warnings
    assert [] == linked[1 - node].warnings


def test_stop_signals_do_not_end_it(nodes: Nodes) -> None:
    """A scheduler that signals all processes of the job does not silence it: it ends with its runner."""
    hub, spoke = nodes.meet()
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGTSTP):
        os.kill(spoke.pid, signum)
    spoke.link.tell(Local(state="running"))
    hub.wait_for(_1="running")

    assert [] == spoke.warnings


def test_frozen_link_process_blocks_nobody(nodes: Nodes) -> None:
    """A frozen link process can be told anything, and what is new replaces what it has not read."""
    (hub,) = nodes.meet(1, Limits())
    os.kill(hub.pid, signal.SIGSTOP)
    for number in range(5000):
        hub.link.tell(Local(state=f"state {number}"))
    os.kill(hub.pid, signal.SIGCONT)
    hub.wait_for(_0="state 4999")

    assert [] == hub.warnings


@pytest.mark.parametrize("is_frozen", [False, True])
def test_closing_is_bounded(nodes: Nodes, *, is_frozen: bool) -> None:
    """What was told before the end reaches the others, and a frozen link process delays no end."""
    hub, spoke = nodes.meet()
    pid = spoke.pid
    if is_frozen:
        os.kill(pid, signal.SIGSTOP)
    spoke.link.tell(Local(state="bye"))
    spoke.link.close()
    spoke.link.close()
    if not is_frozen:
        hub.wait_for(_1="bye")

    assert is_gone(pid)
    assert [] == spoke.warnings


def test_missing_pyzmq_is_reported(nodes: Nodes) -> None:
    """Where pyzmq cannot be imported there is no link, and one warning."""
    path, sys.path[:] = list(sys.path), [folder for folder in sys.path if "site-packages" not in folder]
    try:
        alone = nodes.open(nodes.settings(0))
    finally:
        sys.path[:] = path
    wait_until(lambda: alone.warnings)
    alone.link.tell(Local(state="running"))
    wait_until(lambda: not alone.link.pids)

    (warning,) = alone.warnings
    assert "this node is not linked to the others: pyzmq cannot be used: No module named" in warning


def test_program_that_cannot_be_started_is_reported(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a Python to start, there is a warning, and the runner goes on."""
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    alone = nodes.open(nodes.settings(0))
    wait_until(lambda: alone.warnings)

    assert "no such file or directory" in alone.warnings[0]


def test_errors_are_shown(nodes: Nodes) -> None:
    """An error in the link process is quoted in the warning."""
    alone = nodes.open(nodes.settings(0), run="raise SystemError('of a test')")
    wait_until(lambda: alone.warnings)

    assert "has ended with the exit status 1 (SystemError: of a test)" in alone.warnings[0]


# --- With the real rules ----------------------------------------------------------------------------------------------


def running(nodes: Nodes) -> tuple[list[Node], Read]:
    """Link two nodes whose ranks run."""
    linked = [nodes.open(nodes.settings(number), run=RUN) for number in range(2)]
    news = Read(linked)
    for node in linked:
        node.link.tell(Local(stage=Stage.RUNNING))
    wait_until(lambda: all(Joined() in news.of(number, Joined) for number in range(2)))
    return linked, news


def test_failure_stops_the_other_node(nodes: Nodes) -> None:
    """With the rules of a job, a failure of one node stops the other, and both learn one verdict."""
    linked, news = running(nodes)
    failure = Failure(rank_id=3, ending="exit status 7", status=7, kind=FailureClass.OWN, at=time.monotonic())
    linked[1].link.tell(Local(stage=Stage.STOPPING, failure=failure))
    wait_until(lambda: news.of(0, StopAll))
    diagnosed = Diagnosed(
        rank_id=3, sentence="an error", kind=FailureClass.OWN, certainty="certain", status=7, means="a", next="b"
    )
    linked[0].link.tell(Local(stage=Stage.DEAD))
    linked[1].link.tell(Local(stage=Stage.DEAD, failure=failure, diagnosed=diagnosed))
    wait_until(lambda: news.of(0, VerdictReached) and news.of(1, VerdictReached))
    for node in linked:
        node.link.tell(Local(stage=Stage.LEFT, status=7))
    for node in linked:
        node.link.close()

    verdicts = [news.of(number, VerdictReached)[0].verdict for number in range(2)]
    assert [("an error", "a", "b")] * 2 == [(one.sentence, one.means, one.next) for one in verdicts]
    assert [[], []] == [node.warnings for node in linked]


def test_last_word_of_a_node_whose_link_process_is_frozen(nodes: Nodes) -> None:
    """Another process tells the others how it has ended."""
    linked, news = running(nodes)
    os.kill(linked[0].pid, signal.SIGSTOP)
    linked[0].link.tell(Local(stage=Stage.LEFT, status=143, signum=signal.SIGTERM))
    linked[0].link.close()
    wait_until(lambda: news.of(1, StopAll))

    assert [signal.SIGTERM] == [stop.signum for stop in news.of(1, StopAll)]


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("trouble", [signal.SIGSTOP, signal.SIGKILL])
def test_last_word_on_a_failure(nodes: Nodes, trouble: signal.Signals, number: int) -> None:
    """A new process sends it if the last one is frozen or gone, even before the next one was due."""
    linked = [nodes.open(nodes.settings(number), Limits(first_delay=1000.0), run=RUN) for number in range(2)]
    news = Read(linked)
    for node in linked:
        node.link.tell(Local(stage=Stage.RUNNING))
    wait_until(lambda: all(Joined() in news.of(number, Joined) for number in range(2)))
    wait_until(lambda: linked[number].link.contact)
    os.kill(linked[number].pid, trouble)
    wait_until(lambda: linked[number].warnings or trouble == signal.SIGSTOP)
    failure = Failure(rank_id=3, ending="exit status 12", status=12)
    linked[number].link.tell(Local(stage=Stage.LEFT, status=12, failure=failure))
    linked[number].link.close()
    wait_until(lambda: news.of(1 - number, StopAll))

    assert [(number, 12)] == [(stop.node, stop.status) for stop in news.of(1 - number, StopAll)]


@pytest.mark.deep
def test_second_runner_of_node_0_is_refused(nodes: Nodes) -> None:
    """It finds the hub of the first one at an earlier port of its machine, and learns where that runs."""
    identities = [
        attrs.evolve(nodes.settings(0).identity, incarnation=f"runner {number}", host=f"host-{number}")
        for number in (1, 2)
    ]
    first, second = (nodes.open(nodes.settings(0, identity=identity), run=RUN) for identity in identities)
    news = Read([first, second])
    for node in (first, second):
        node.link.tell(Local(stage=Stage.READY))
    wait_until(lambda: news.of(1, Refused) or news.of(0, Refused))
    refused = [one.sentence for number in range(2) for one in news.of(number, Refused)]

    assert 1 == len({*refused})
    assert refused[0].startswith("node 0 is already running on host-")
    assert "and was started again on host-" in refused[0]


def test_second_runner_of_node_0_on_another_machine_is_refused(nodes: Nodes) -> None:
    """It finds the hub where node 0 should be, although it can listen at the same port."""
    identities = [
        attrs.evolve(nodes.settings(0).identity, incarnation=f"runner {number}", host=f"host-{number}")
        for number in (1, 2)
    ]
    first, second = (
        nodes.open(nodes.settings(0, identity=identity, interface=place), run=RUN)
        for identity, place in zip(identities, (nodes.address, own_address()))
    )
    news = Read([first, second])
    for node in (first, second):
        node.link.tell(Local(stage=Stage.READY))
    wait_until(lambda: news.of(1, Refused))

    assert ["node 0 is already running on host-1, and was started again on host-2"] == [
        one.sentence for one in news.of(1, Refused)
    ]
    assert [] == news.of(0, Refused)


@pytest.mark.deep
def test_first_runner_of_node_0_is_not_refused_at_a_later_port(nodes: Nodes) -> None:
    """The second runner gets the first port, which was taken before. The older runner stays nevertheless."""
    identity = nodes.settings(0).identity
    with socket.create_server((nodes.address, PORTS[0])):
        older = attrs.evolve(identity, incarnation="z", host="a")
        first = nodes.open(nodes.settings(0, identity=older, began=1.0, boot="one"), run=RUN)
        spoke = nodes.open(nodes.settings(1), run=RUN)
        news = Read([first, spoke])
        for node in (first, spoke):
            node.link.tell(Local(stage=Stage.READY))
        wait_until(lambda: Joined() in news.of(1, Joined))
    younger = attrs.evolve(identity, incarnation="b", host="b")
    second = nodes.open(nodes.settings(0, identity=younger, began=1.5, boot="one"), run=RUN)
    newest = Read([second])
    second.link.tell(Local(stage=Stage.READY))
    wait_until(lambda: newest.of(0, Refused))
    second.link.tell(Local(stage=Stage.LEFT, status=125))
    second.link.close()

    assert ["node 0 is already running on a, and was started again on b"] == [
        one.sentence for one in newest.of(0, Refused)
    ]
    assert [] == news.of(0, Refused)


@pytest.mark.deep
def test_nodes_of_a_runner_that_is_refused_are_told_nothing(nodes: Nodes) -> None:
    """A node that has joined it does not mistake its end for that of the job, and finds the first runner."""
    other, identity = own_address(), nodes.settings(0).identity
    first = nodes.open(nodes.settings(0, identity=attrs.evolve(identity, incarnation="a", host="a")), run=RUN)
    second = nodes.open(
        nodes.settings(0, identity=attrs.evolve(identity, incarnation="b", host="b"), interface=other), run=RUN
    )
    spoke = nodes.open(nodes.settings(1, hubs=(other,)), run=RUN)
    news = Read([first, second, spoke])
    for node in (second, spoke):
        node.link.tell(Local(stage=Stage.READY))
    wait_until(lambda: Joined() in news.of(2, Joined))
    first.link.tell(Local(stage=Stage.READY))
    wait_until(lambda: news.of(1, Refused))
    second.link.tell(Local(stage=Stage.LEFT, status=125))
    second.link.close()
    spoke.link.dial((nodes.address,))
    wait_until(lambda: Joined() in news.of(0, Joined))

    assert [] == news.of(2, StopAll)


def test_hub_is_looked_for_where_it_has_moved(nodes: Nodes) -> None:
    """A runner that learns another address of node 0 dials that, and so does a link process that is started later."""
    spoke = nodes.open(nodes.settings(1, hubs=(own_address(),)))
    spoke.link.tell(Local(state="early"))
    wait_until(lambda: spoke.link.pids)
    hub = nodes.open(nodes.settings(0))
    spoke.link.dial((own_address(), nodes.address))
    hub.wait_for(_1="early")
    os.kill(spoke.pid, signal.SIGKILL)
    spoke.link.tell(Local(state="again"))

    hub.wait_for(_1="again")


@pytest.mark.deep
def test_lease_outlives_the_link_process(nodes: Nodes) -> None:
    """A node without contact for --link-timeout stops its ranks, also if its link process has died meanwhile."""
    limits = Limits(ping_interval=0.1, first_delay=0.05)
    identities = [
        attrs.evolve(nodes.settings(node).identity, max_restarts=1, link_timeout=4.0, grace=1.0) for node in range(2)
    ]
    hub = nodes.open(nodes.settings(0, identity=identities[0]), Limits(first_delay=1000.0), run=RUN)
    spoke = nodes.open(nodes.settings(1, identity=identities[1]), limits, run=RUN)
    news = Read([hub, spoke])
    spoke.link.tell(Local(stage=Stage.RUNNING))
    wait_until(lambda: news.of(1, Joined))
    os.kill(hub.pid, signal.SIGKILL)
    asked_again = time.monotonic() + 1.5  # since the last answer of the hub
    wait_until(lambda: time.monotonic() > asked_again)
    os.kill(spoke.pid, signal.SIGKILL)
    wait_until(lambda: news.of(1, StopAll))
    spoke.link.tell(Local(stage=Stage.LEFT, status=1))

    assert ["no contact with node 0 for 4 s (--link-timeout)"] == [stop.ending for stop in news.of(1, StopAll)]


def test_lost_hub_keeps_nobody(nodes: Nodes) -> None:
    """A node that leaves does not wait for a hub that has gone, even after it has looked for it again."""
    hub = nodes.open(nodes.settings(0), Limits(first_delay=1000.0), run=RUN)
    spoke = nodes.open(nodes.settings(1), run=RUN)
    news = Read([hub, spoke])
    spoke.link.tell(Local(stage=Stage.RUNNING))
    wait_until(lambda: news.of(1, Joined))
    os.kill(hub.pid, signal.SIGKILL)
    looked_again = time.monotonic() + REDIAL + 1.0
    wait_until(lambda: time.monotonic() > looked_again)
    spoke.link.tell(Local(stage=Stage.LEFT, status=7))
    started = time.monotonic()
    spoke.link.close()

    assert time.monotonic() - started < 2.5


class Read:
    """The news of some nodes so far."""

    def __init__(self, nodes: list[Node]) -> None:
        self._nodes = nodes
        self._news: list[list[News]] = [[] for _ in nodes]

    def of(self, node: int, kind: type[Kind]) -> list[Kind]:
        """Return the news of one kind that a node has had."""
        self._news[node] += self._nodes[node].link.news()
        return [news for news in self._news[node] if isinstance(news, kind)]

"""The laws of the link in random histories of 2 to 1,024 nodes: see `ascend_runner.link.protocol`.

Nodes have clocks that differ by up to 10 minutes, messages take up to half a second. Where they also get lost, runners
and machines die, hubs are started again and pods replaced, only what holds of every history is checked.
"""

from __future__ import annotations

import functools
import random

import pytest

from ascend_runner.link.messages import FailureClass
from ascend_runner.record.nodes import JobVerdict
from tests.helpers.link_world import Habits, Machine, Network, World

SCENES = range(30)
OFFSETS = (0.0, 1.0, 600.0)  # seconds
DELAYS = (0.001, 0.05, 0.5)  # seconds, at most


def random_world(chance: random.Random, nodes: int, *, offset: float, delay: float, **options: float) -> World:
    """Return a world of clocks that differ by up to `offset`, and messages that take up to `delay`, in seconds."""
    clocks = {node: (chance.uniform(0, offset), chance.uniform(-offset, offset)) for node in range(nodes)}
    network = Network(fate=lambda _node, _at: (chance.uniform(delay / 10, delay),))
    habits = Habits(prepare=chance.uniform(0, 1), stop=chance.uniform(0, 3), diagnose=chance.uniform(0, 1))
    return World(nodes=nodes, network=network, clocks=clocks, habits=habits, **options)  # type: ignore[arg-type]  # ints


def fail_at_random(chance: random.Random, world: World) -> list[tuple[float, int, FailureClass]]:
    """Let a few nodes fail within a second; return when, which and of which class, the first one first."""
    failures = []
    begin = world.now + chance.uniform(0, 1)
    spread = chance.choice((0.0, 0.1, 1.0))
    for node in chance.sample(range(world.nodes), min(world.nodes, chance.randint(1, 3))):
        kind = chance.choice(tuple(FailureClass))
        at = begin + chance.uniform(0, spread)
        failures.append((at, node, kind))
        machine = world.machines[node]
        shown = chance.choice((kind, FailureClass.UNKNOWN))
        world.after(at - world.now, functools.partial(machine.fail, kind, shown=shown))
    return sorted(failures, key=lambda failure: failure[0])


@pytest.mark.deep
@pytest.mark.parametrize("delay", DELAYS)
@pytest.mark.parametrize("offset", OFFSETS)
@pytest.mark.parametrize("nodes", [2, 3, 8, 32])
def test_one_cause_on_all_linked_nodes(nodes: int, offset: float, delay: float) -> None:
    """All linked nodes learn one cause and exit with one status; a wrong cause is never called certain (law 3)."""
    for scene in SCENES[:: 1 if nodes < 32 else 6]:
        chance = random.Random(f"{scene} {nodes} {offset} {delay}")  # noqa: S311 - a scene
        world = random_world(chance, nodes, offset=offset, delay=delay).start().play(5.0)
        assert world.hub
        fail_at_random(chance, world)
        world.play(40.0)
        check_one_cause(world)


def check_one_cause(world: World) -> None:
    """Check law 3 where every node was linked all the time and one attempt was made."""
    machines = list(world.machines.values())
    verdicts = {verdict for machine in machines for verdict in machine.verdicts}
    assert 1 == len(verdicts), verdicts
    assert [1] * len(machines) == [len(machine.verdicts) for machine in machines]
    verdict = verdicts.pop()
    assert {verdict.status} == {machine.local.status for machine in machines}
    check_certainty(verdict, machines)


def check_certainty(verdict: JobVerdict, machines: list[Machine]) -> None:
    """Check that no wrong cause is called certain."""
    own = [
        (machine.failed_at, machine.node)
        for machine in machines
        if machine.failed_at is not None and machine.kind is FailureClass.OWN
    ]
    if verdict.certainty == "certain" and verdict.kind:
        assert min(own)[1] == verdict.node
        assert () == verdict.tied == verdict.missing


@pytest.mark.deep
def test_many_nodes() -> None:
    """The laws hold in a job of 1,024 nodes, and every message fits."""
    world = World(nodes=1024, max_restarts=1).start().play(3.0)
    world.machines[1000].fail()
    world.play(5.0)

    assert all(machine.is_alive and machine.runs[-1][0] == 1 for machine in world.machines.values())
    assert 1 == len({verdict for machine in world.machines.values() for verdict in machine.verdicts})


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(200))
def test_random_histories(seed: int) -> None:
    """Whatever gets lost, dies, is replaced or comes late, no two attempts overlap, and nobody stays for ever."""
    chance = random.Random(seed)  # noqa: S311 - a scene
    nodes = chance.choice((2, 3, 3, 4, 8))
    restarts = chance.choice((0, 1, 3))
    delay = chance.choice(DELAYS)
    options = {"max_restarts": restarts, "link_timeout": 30.0, "grace": 5.0}
    world = random_world(chance, nodes, offset=600.0, delay=delay, **options)
    losses = chance.choice((0.0, 0.0, 0.1, 0.5))
    fate = world.network.fate
    world.network = Network(
        fate=lambda node, at: () if chance.random() < losses else fate(node, at) * chance.choice((1, 1, 2))
    )
    world.start_hub()
    world.boot(0)
    for node in range(1, nodes):
        world.after(chance.choice((0.0, 0.0, 10.0)), functools.partial(world.boot, node))
    for _number in range(chance.randint(1, 6)):
        world.play(chance.uniform(0, 15))
        something(chance, world)
    world.play(20.0)
    world.network = Network(fate=fate)
    for _number in range(3):
        heal(world)
        world.play(60.0)
        for machine in world.machines.values():
            machine.succeed()
    world.play(60.0)
    check_attempts(world)
    check_end(world)


def something(chance: random.Random, world: World) -> None:
    """Let something happen to a node."""
    machine = world.machines.get(chance.randrange(world.nodes))
    if machine:
        chance.choice(HAPPENINGS)(world, machine)


def cut(_world: World, machine: Machine) -> None:
    """Pull the cable of a node."""
    machine.is_cut = machine.node != 0


def replace(world: World, machine: Machine) -> None:
    """Let the platform replace a node, of which it may have lost sight."""
    if machine.node:
        if machine.has_runner and not machine.is_cut:
            machine.vanish()
        world.boot(machine.node, f"{machine.spoke.identity.incarnation}+", begins=False).begin(patience=45.0)


def succeed(world: World, _machine: Machine) -> None:
    """Let all ranks end with 0."""
    for machine in world.machines.values():
        machine.succeed()


HAPPENINGS = (
    *(lambda _world, machine: machine.fail(),) * 3,
    lambda _world, machine: machine.fail(FailureClass.PEER),
    lambda _world, machine: machine.kill_runner() if machine.node else None,
    lambda _world, machine: machine.signal(),
    lambda world, _machine: world.start_hub(),
    lambda world, _machine: heal(world),
    cut,
    replace,
    succeed,
)


def heal(world: World) -> None:
    """Let all messages pass again."""
    for machine in (*world.machines.values(), *world.former):
        machine.is_cut = False


def check_attempts(world: World) -> None:
    """Check that no attempt has started while a rank of an earlier one was alive (law 5)."""
    runs = [run for machine in (*world.machines.values(), *world.former) for run in machine.runs]
    for attempt, first, _last in runs:
        for other, begun, ended in runs:
            assert not (other < attempt and begun <= first < ended), runs


def check_end(world: World) -> None:
    """Check that nobody waits for ever once all ranks have ended."""
    waiting = {
        machine.node: machine.local
        for machine in world.machines.values()
        if machine.has_runner and not machine.is_off and machine.local.status is None and not machine.is_refused
    }
    assert {} == waiting

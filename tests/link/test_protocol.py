"""The laws of the link in scenes of simulated time: see `ascend_runner.link.protocol`."""

from __future__ import annotations

from ascend_runner.link.messages import FailureClass, Joined, Stage, StopAll
from tests.helpers.link_world import World


def statuses(world: World) -> set[int | None]:
    """Return the exit statuses of all runners."""
    return {machine.local.status for machine in world.machines.values()}


def causes(world: World) -> set[tuple[int | None, str, int]]:
    """Return the causes that all runners have learned."""
    return {
        (verdict.node, verdict.certainty, verdict.status)
        for machine in world.machines.values()
        for verdict in machine.verdicts
    }


def test_all_nodes_join() -> None:
    """Each node learns when all have joined."""
    world = World(nodes=3).start().play(2.0)

    assert [Joined()] * 3 == [[news for _at, news in world.machines[node].news][-1] for node in range(3)]


def test_a_failure_stops_all_nodes_with_one_cause() -> None:
    """An own failure stops every node within a message's time, and all exit with its status."""
    world = World(nodes=4).start().play(10.25)
    world.machines[3].fail()
    world.play(5.0)
    stops = [[at for at, news in machine.news if isinstance(news, StopAll)] for machine in world.machines.values()]

    assert [[10.251], [10.252], [10.252], []] == [[round(at, 6) for at in ats] for ats in stops]
    assert {(3, "certain", 10)} == causes(world)
    assert {10} == statuses(world)


def test_success_needs_no_barrier() -> None:
    """Each node leaves as soon as its ranks have succeeded, node 0 included."""
    world = World(nodes=3).start().play(10.0)
    for node in range(3):
        world.machines[node].succeed()
        world.play(20.0)

    assert {0} == statuses(world)
    assert not any(isinstance(news, StopAll) for machine in world.machines.values() for _at, news in machine.news)


def test_a_lost_peer_waits_for_the_cause() -> None:
    """A node that only reports a lost peer stops nobody for half a second; the true cause wins."""
    world = World(nodes=3).start().play(10.25)
    world.machines[1].fail(FailureClass.PEER)
    world.play(0.3)
    assert Stage.RUNNING is world.machines[2].local.stage
    world.machines[2].fail()
    world.play(5.0)

    assert {(2, "certain", 9)} == causes(world)


def test_restart_together() -> None:
    """All nodes start the next attempt together, after everything of the first is dead."""
    world = World(nodes=3, max_restarts=1).start().play(10.25)
    world.machines[1].fail()
    world.play(5.0)
    runs = [machine.runs for machine in world.machines.values()]

    assert [[0, 1]] * 3 == [[attempt for attempt, _first, _last in run] for run in runs]
    assert max(run[0][2] for run in runs) < min(run[1][1] for run in runs)

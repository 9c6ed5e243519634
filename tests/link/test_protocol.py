"""The laws of the link in scenes of simulated time: see `ascend_runner.link.protocol`."""

from __future__ import annotations

from collections.abc import Callable
from signal import SIGKILL, SIGTERM
from typing import Any, TypeVar

import attrs
import pytest

from ascend_runner.link import hub as hub_rules
from ascend_runner.link import spoke as spoke_rules
from ascend_runner.link import wire
from ascend_runner.link.hub import Hub, node_records
from ascend_runner.link.messages import (
    NOT_REACHED,
    Answered,
    Asked,
    FailureClass,
    Identity,
    Joined,
    Local,
    NodesKnown,
    Refused,
    Stage,
    StopAll,
    VerdictReached,
    Waiting,
    Warned,
)
from ascend_runner.link.protocol import ASK_LIMIT, FIRST_WORD, HUB, LocalChanged, Received, Requested, Send, Tell, Tick
from ascend_runner.link.spoke import Spoke
from ascend_runner.link.wire import Header, View
from ascend_runner.record.nodes import JobVerdict
from tests.helpers.link_world import Habits, Machine, Network, World

Kind = TypeVar("Kind")


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


def test_last_word_is_sent_at_the_time_of_an_answer() -> None:
    """What was answered before, at the same time, is not the last word."""
    identity = Identity(node=0, nodes=2, incarnation="r0")
    hub, spoke, at = Hub(identity=identity), Spoke(identity=identity), 1.0
    for stage in (Stage.RUNNING, Stage.STOPPING, Stage.DEAD, Stage.LEFT):
        spoke, actions = spoke_rules.transition(spoke, LocalChanged(Local(stage=stage), at))
        for said in [action.message for action in actions if isinstance(action, Send)]:
            hub, answers = hub_rules.transition(hub, Received(b"0", said, at))
            for answer in [action.message for action in answers if isinstance(action, Send)]:
                spoke, _actions = spoke_rules.transition(spoke, Received(HUB, answer, at))

    assert Stage.LEFT is hub.peers[0].local.stage
    assert (True, True) == (hub.is_over, spoke.is_over)


def test_all_nodes_join() -> None:
    """Each node learns when all have joined."""
    world = World(nodes=3).start().play(2.0)

    assert [Joined()] * 3 == [[news for _at, news in world.machines[node].news][-1] for node in range(3)]


def test_all_nodes_learn_at_once_that_the_last_one_has_joined() -> None:
    """With --link require, all ranks wait for that: no node waits for its next beat."""
    world = World(nodes=3)
    world.start_hub()
    for node in range(2):
        world.boot(node)
    world.play(5.25)
    world.boot(2)
    world.play(0.01)

    assert [Joined()] * 3 == [told(world, node, Joined)[-1][1] for node in range(3)]


def test_a_failure_stops_all_nodes_with_one_cause() -> None:
    """An own failure stops every node within a message's time, and all exit with its status."""
    world = World(nodes=4).start().play(10.25)
    world.machines[3].fail()
    world.play(5.0)
    stops = [[at for at, news in machine.news if isinstance(news, StopAll)] for machine in world.machines.values()]

    assert [[10.251], [10.252], [10.252], [10.252]] == [[round(at, 6) for at in ats] for ats in stops]
    assert {(3, "certain", 10)} == causes(world)
    assert {10} == statuses(world)


@pytest.mark.parametrize(("others", "is_stopped"), [("run", True), ("fail", False), ("succeed", False)])
def test_whether_all_other_ranks_were_just_stopped(others: str, *, is_stopped: bool) -> None:
    """Only if every node says so of its ranks, but for the one that is the cause."""
    world = World(nodes=3).start().play(10.25)
    if others == "succeed":
        world.machines[2].succeed()
    world.machines[1].fail()
    if others == "fail":
        world.machines[2].fail(FailureClass.PEER)
    world.play(5.0)

    assert {(1, is_stopped)} == {(one.node, one.is_stopped) for one in world.machines[0].verdicts}


def test_success_needs_no_barrier() -> None:
    """Each node leaves as soon as its ranks have succeeded, node 0 included."""
    world = World(nodes=3).start().play(10.0)
    for node in range(3):
        world.machines[node].succeed()
        world.play(20.0)

    assert {0} == statuses(world)
    assert not any(isinstance(news, StopAll) for machine in world.machines.values() for _at, news in machine.news)


def test_node_0_leaves_without_waiting() -> None:
    """The farewell of node 0 is acknowledged at once by the nodes that go on without a link."""
    world = World(nodes=3).start().play(10.25)
    world.machines[0].succeed()
    world.play(0.01)

    assert world.hub
    assert world.hub.is_over


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


def told(world: World, node: int, kind: type[Kind]) -> list[tuple[float, Kind]]:
    """Return the news of one kind that a node's runner was told, with the time since the start."""
    return [(round(at, 2), news) for at, news in world.machines[node].news if isinstance(news, kind)]


def warnings(world: World) -> list[str]:
    """Return what node 0's runner was warned of."""
    return [news.sentence for _at, news in told(world, 0, Warned)]


def test_a_silent_node_is_unreachable_and_stops_nobody() -> None:
    """After 3 s of silence both sides warn once, and once more when the node is back (law 1)."""
    world = World(nodes=3).start().play(10.25)
    world.machines[2].is_cut = True
    world.play(100.0)
    world.machines[2].is_cut = False
    world.play(10.0)

    assert ["node 2 is unreachable: no message for 3 s", "node 2 is reachable again"] == [
        news.sentence for _at, news in told(world, 0, Warned)
    ]
    assert ["node 0 is unreachable: no message for 3 s", "node 0 is reachable again"] == [
        news.sentence for _at, news in told(world, 2, Warned)
    ]
    assert {Stage.RUNNING} == {machine.local.stage for machine in world.machines.values()}


@pytest.mark.parametrize(("verdict", "count"), [(None, 1), (JobVerdict(restarts=True), 1), (JobVerdict(), 0)])
def test_node_0_may_leave_after_its_verdict(verdict: JobVerdict | None, count: int) -> None:
    """A node that stays, as one that is held, does not miss node 0 when the job has ended."""
    spoke = Spoke(identity=Identity(node=1, nodes=2, incarnation="r1"), heard=1.0, verdict=verdict)
    _spoke, actions = spoke_rules.transition(spoke, Tick(9.0))

    assert count == sum(isinstance(action, Tell) for action in actions)


@pytest.mark.parametrize("seconds", [4.0, 100.0])
def test_sleep_of_node_0_is_no_silence_of_the_others(seconds: float) -> None:
    """A machine that was frozen has heard nobody: it calls no node unreachable or lost as it wakes up, nor itself."""
    world = World(nodes=2, node_timeout=20.0).start().play(10.25)
    assert world.hub
    hub, at = world.hub, world.hub.due + seconds
    hub, actions = hub_rules.transition(hub, Tick(at))
    later = at + 4.0 if seconds < 20.0 else at + 21.0
    _hub, later_actions = hub_rules.transition(attrs.evolve(hub, due=later), Tick(later))
    spoke = world.machines[1].spoke
    _spoke, said = spoke_rules.transition(spoke, Tick(spoke.due + seconds))

    assert not [one for one in (*actions, *said) if isinstance(one, Tell)]
    assert "node 1 is unreachable: no message for 3 s" in [
        one.news.sentence for one in later_actions if isinstance(one, Tell) and isinstance(one.news, Warned)
    ]


def test_missing_nodes_are_said_once() -> None:
    """Node 0 is told after 30 s which nodes have not joined, and when all have."""
    world = World(nodes=3)
    world.start_hub()
    world.boot(0)
    world.play(100.0)
    world.boot(1)
    world.play(100.0)
    world.boot(2)
    world.play(100.0)

    assert 30.0 == told(world, 0, Warned)[0][0]
    assert ["nodes 1, 2 have not joined within 30 s", "all nodes have joined"] == warnings(world)


def test_no_hub_is_said_once() -> None:
    """A node that finds no hub runs, and is told after 30 s."""
    world = World(nodes=2)
    world.boot(1)
    world.machines[1].is_cut = True
    world.play(500.0)

    assert [30.0] == [at for at, _news in told(world, 1, Warned)]
    assert Stage.RUNNING is world.machines[1].local.stage


def test_a_runner_that_dies_is_a_cause() -> None:
    """The link process says at once that its runner has died, and what it leaves behind when that is known."""
    world = World(nodes=3).start().play(10.25)
    world.machines[1].kill_runner()
    world.play(0.01)
    assert all(told(world, node, StopAll) for node in (0, 2))
    world.play(5.0)
    assert world.hub

    assert {(1, "likely", 137)} == causes(world)
    assert world.machines[1].spoke.is_over
    assert "runner died" == node_records(world.hub)[1].state


@pytest.mark.parametrize(("is_linked", "seconds"), [(True, 20.0), (False, 5.0)])
def test_without_a_verdict_a_node_ends_alone(*, is_linked: bool, seconds: float) -> None:
    """A node that fails without the hub ends by its own cause, said as such, `ALONE` beyond its grace.

    Where it has never heard the hub, it tries only for `ALONE`.
    """
    world = World(nodes=2).start()
    world.machines[1].is_cut = not is_linked
    world.play(10.25)
    world.machines[1].is_cut = True
    world.machines[1].fail()
    world.play(60.0)
    [(at, reached)] = told(world, 1, VerdictReached)

    assert (10.25 + seconds, 1, 8, True, (0,)) == (
        at,
        reached.verdict.node,
        reached.verdict.status,
        reached.verdict.is_alone,
        reached.verdict.missing,
    )
    assert Stage.RUNNING is world.machines[0].local.stage


def test_without_a_verdict_the_stop_gives_the_status() -> None:
    """Nodes that node 0 stops, and leaves without a verdict, still end with the status of the failed node."""
    world = World(nodes=3).start().play(10.25)
    world.machines[2].fail()
    world.play(0.0025)
    world.machines[0].is_off = True
    world.play(60.0)
    reached = [news.verdict for _at, news in told(world, 1, VerdictReached)]

    assert [(None, 9, True)] == [(verdict.node, verdict.status, verdict.is_alone) for verdict in reached]


def test_failure_that_a_signal_explains() -> None:
    """A node that takes its failure back, since it was stopped, is not waited for, and is stopped like all others."""
    world = World(nodes=2).start().play(10.25)
    world.machines[0].fail(FailureClass.UNKNOWN)
    world.machines[0].tell(failure=None, signum=SIGTERM)
    world.play(2.0)

    assert {(0, "", 143)} == {
        (verdict.node, verdict.kind, verdict.status)
        for machine in world.machines.values()
        for verdict in machine.verdicts
    }


def test_without_a_verdict_all_nodes_end_alike() -> None:
    """A node that fails while node 0 dies has a cause of its own, but the status of the stop, as all others."""
    world = World(nodes=3, network=Network(fate=lambda _node, _at: (0.01,))).start().play(10.25)
    world.machines[2].fail()
    world.machines[0].kill_runner()
    world.play(0.05)
    world.machines[0].is_off = True
    world.play(60.0)
    verdicts = [world.machines[node].verdicts[-1] for node in (1, 2)]

    assert [(None, 137), (2, 137)] == [(verdict.node, verdict.status) for verdict in verdicts]


def test_other_failures_are_named() -> None:
    """A node that has lost a peer before it was stopped is not the cause, and the verdict names it as well."""
    world = World(nodes=3, network=Network(fate=lambda _node, _at: (0.01,))).start().play(10.25)
    world.machines[2].fail()
    world.machines[1].fail(FailureClass.PEER)
    world.play(5.0)
    verdicts = {verdict for machine in world.machines.values() for verdict in machine.verdicts}

    assert {(2, (), (1,))} == {(verdict.node, verdict.tied, verdict.failed_too) for verdict in verdicts}


def test_what_the_clocks_cannot_tell_apart_is_a_tie() -> None:
    """Failures that are closer than the time of a message are tied, and neither is called certain."""
    world = World(nodes=3, network=Network(fate=lambda _node, _at: (0.2,))).start().play(10.25)
    world.machines[2].fail()
    world.play(0.1)
    world.machines[1].fail()
    world.play(5.0)
    verdicts = {verdict for machine in world.machines.values() for verdict in machine.verdicts}

    assert {(2, (1,), "open")} == {(verdict.node, verdict.tied, verdict.certainty) for verdict in verdicts}


def test_clocks_do_not_decide() -> None:
    """Of two own failures, the first one wins whatever the clocks of the nodes show."""
    world = World(nodes=3, clocks={1: (5000.0, -600.0), 2: (0.0, 600.0)}).start().play(10.25)
    world.machines[1].is_cut = True  # its message arrives a second later
    world.machines[1].fail()
    world.play(0.5)
    world.machines[1].is_cut = False
    world.machines[2].fail()
    world.play(10.0)

    assert {(1, "certain", 8)} == causes(world)


def with_tables(*tables: str, running: tuple[int, ...] = ()) -> World:
    """Return a world of nodes with these rank tables, that wait for a start or run."""
    world = World(nodes=len(tables))
    world.start_hub()
    for node, table in enumerate(tables):
        world.boot(node, begins=False).tell(stage=Stage.RUNNING if node in running else Stage.READY, table=table)
    return world


DIFFERENT = (
    "the rank tables of the nodes differ: node 2 has /b (1 server, 8 devices), SHA-256 4ded669c; "
    "nodes 0, 1 have /a (2 servers, 16 devices), SHA-256 c415f2b4"
)
TABLES = (
    "c415f2b4 /a (2 servers, 16 devices)",
    "c415f2b4 /c (2 servers, 16 devices)",
    "4ded669c /b (1 server, 8 devices)",
)


def test_rank_tables_that_differ() -> None:
    """Nodes with another rank table read it again; if it still differs after a minute, all are refused."""
    world = with_tables(*TABLES).play(59.0)
    assert all(told(world, node, Waiting)[0][1].rereads_table for node in range(3))
    assert not any(told(world, node, Refused) for node in range(3))
    world.play(3.0)

    assert [DIFFERENT] * 3 == [news.sentence for node in range(3) for _at, news in told(world, node, Refused)]
    assert {125} == statuses(world)


@pytest.mark.parametrize(("running", "seconds"), [((0, 1, 2), 2.0), ((0, 2), 62.0)])
def test_rank_tables_that_differ_while_ranks_run(running: tuple[int, ...], seconds: float) -> None:
    """Ranks that run have read their table: all nodes are warned once, nobody is stopped, and nobody waits any more."""
    world = with_tables(*TABLES, running=running).play(seconds)
    is_reread = [waits[-1][1].rereads_table for node in range(3) if (waits := told(world, node, Waiting))]
    world.play(200.0)

    assert [[f"{DIFFERENT}; ranks run with them already"]] * 3 == [
        [news.sentence for _at, news in told(world, node, Warned)] for node in range(3)
    ]
    assert not any(is_reread)
    assert not any(told(world, node, kind) for node in range(3) for kind in (Refused, StopAll))


def test_rank_tables_that_differ_for_a_while() -> None:
    """A table that was read again ends the wait."""
    world = with_tables("a", "b").play(30.0)
    world.machines[1].tell(table="a")
    world.play(90.0)

    assert not any(told(world, node, Refused) for node in range(2))
    assert "" == told(world, 1, Waiting)[-1][1].sentence


def test_node_counts_that_differ_are_refused_at_once() -> None:
    """A node that counts other nodes is refused, and so are all others, since the job cannot begin."""
    world = World(nodes=3)
    world.start_hub()
    world.boot(0)
    world.boot(1)
    world.boot(2, nodes=4)
    world.play(1.0)

    assert ["node 2 expects 4 nodes, node 0 expects 3"] * 3 == [
        news.sentence for node in range(3) for _at, news in told(world, node, Refused)
    ]


def test_a_stranger_does_not_end_a_job_that_is_complete() -> None:
    """A runner of another protocol or job is refused alone where all nodes have joined."""
    world = World(nodes=2).start().play(5.0)
    first = world.machines[1]
    world.boot(1, "stranger", nodes=4)
    world.play(5.0)

    assert [] == [news for _at, news in first.news if isinstance(news, Refused)]
    assert told(world, 1, Refused)


def test_a_second_runner_is_refused_when_the_first_one_answers() -> None:
    """Of two living runners of one node, the second is refused within two beats, with both places named."""
    world = World(nodes=2).start().play(5.0)
    first = world.machines[1]
    world.boot(1, "second", pod="pod-x")
    world.play(2.5)

    assert ["node 1 is already running on pod-1, and was started again on pod-x"] == [
        news.sentence for _at, news in told(world, 1, Refused)
    ]
    assert Stage.RUNNING is first.local.stage


def test_a_second_runner_waits_while_the_first_one_is_silent() -> None:
    """While the first runner is unreachable, it is not known to be dead: the second waits, and is refused later."""
    world = World(nodes=2).start().play(5.0)
    first = world.machines[1]
    first.is_cut = True
    world.boot(1, "second", begins=False)
    world.machines[1].tell()
    world.play(700.0)
    assert told(world, 1, Waiting)
    assert not told(world, 1, Refused)
    first.is_cut = False
    world.play(3.0)

    assert told(world, 1, Refused)


def test_a_lease_is_as_long_as_its_node_takes_it_to_be() -> None:
    """A node that was started with a longer --link-timeout than node 0 is not replaced before its ranks have ended."""
    world = World(nodes=2, max_restarts=1, link_timeout=60.0, node_timeout=10.0, grace=1.0)
    world.start_hub()
    world.boot(0)
    first = world.boot(1, link_timeout=200.0)
    world.play(5.0)
    first.is_cut = True
    world.boot(1, "second", begins=False).tell()
    world.play(300.0)

    assert [0, 1] == [attempt for attempt, _first, _last in world.machines[0].runs]
    assert first.runs[0][2] < world.machines[0].runs[1][1]


def test_a_replacement_hears_the_verdict_before_its_wait_ends() -> None:
    """Its runner, which waits no longer then, would begin with an attempt that the others have left."""
    world = World(nodes=2, max_restarts=1, link_timeout=60.0, grace=1.0).start().play(5.0)
    world.machines[1].vanish()
    second = world.boot(1, "second", begins=False)
    second.tell(stage=Stage.READY)
    world.play(100.0)
    news = [one for _at, one in second.news if isinstance(one, (Waiting, VerdictReached, Joined))]
    end = news.index(Waiting(sentence=""))

    assert [VerdictReached, Joined] == [type(one) for one in news[:end] if not isinstance(one, Waiting)]


def test_a_node_learns_that_tables_differ_before_it_learns_that_all_have_joined() -> None:
    """With --link require, its runner would begin with a table that is to be read again."""
    spoke = Spoke(identity=Identity(node=1, nodes=2, incarnation="r1"))
    spoke, _actions = spoke_rules.transition(spoke, LocalChanged(Local(stage=Stage.READY), 1.0))
    view = View(wait="the rank tables of the nodes differ", rereads_table=True)
    message = wire.encode_hub(Header(sender="hub", seq=1), wire.encode_view(view))
    spoke, actions = spoke_rules.transition(spoke, Received(HUB, message, 1.1))

    assert [Waiting, Joined] == [type(one.news) for one in actions if isinstance(one, Tell)]


def test_ranks_that_start_as_their_verdict_arrives_are_stopped() -> None:
    """The others have left the attempt, although this node has learned that before it has said that its ranks run."""
    spoke = Spoke(identity=Identity(node=1, nodes=3, incarnation="r1", max_restarts=2))
    spoke, _actions = spoke_rules.transition(spoke, LocalChanged(Local(stage=Stage.READY), 1.0))
    view = View(attempt=1, verdict=JobVerdict(attempt=0, node=2, status=9, restarts=True))
    message = wire.encode_hub(Header(sender="hub", seq=1), wire.encode_view(view))
    spoke, _actions = spoke_rules.transition(spoke, Received(HUB, message, 1.1))
    spoke, actions = spoke_rules.transition(spoke, LocalChanged(Local(stage=Stage.RUNNING), 1.2))

    assert [0] == [one.news.attempt for one in actions if isinstance(one, Tell) and isinstance(one.news, StopAll)]


def test_sigterm_to_one_node_stops_the_job() -> None:
    """Without restarts a stop signal to one node stops all of them with its status."""
    world = World(nodes=3).start().play(10.0)
    world.machines[1].signal()
    world.play(5.0)

    assert {143} == statuses(world)
    assert {(1, "certain", 143)} == causes(world)


@pytest.mark.parametrize("is_first", [True, False])
def test_a_signal_that_overtakes_a_failure(*, is_first: bool) -> None:
    """Of a failure and a signal to another node within a millisecond, the hub's first is the status of all, at once."""
    world = World(nodes=3).start().play(10.0)
    happen: list[Callable[[], None]] = [world.machines[1].signal, world.machines[2].fail]
    for each in happen if is_first else happen[::-1]:
        each()
        world.play(0.0002)
    world.play(0.5)

    assert {143 if is_first else 9} == statuses(world)


@pytest.mark.parametrize("is_first", [True, False])
def test_a_node_that_is_stopped_learns_what_has_stopped_the_job(*, is_first: bool) -> None:
    """The stop is told to all nodes, also to its own: only then it knows that nothing else came first."""
    world = World(nodes=3).start().play(10.0)
    if not is_first:
        world.machines[2].fail()
    world.machines[1].signal()
    world.play(0.1)

    assert [1 if is_first else 2] == [stop.node for _at, stop in told(world, 1, StopAll)]


def test_without_node_0_a_node_decides_at_once() -> None:
    """A node that fails after node 0 has succeeded and left waits for nobody."""
    world = World(nodes=2).start().play(10.0)
    world.machines[0].succeed()
    world.play(1.0)
    world.machines[1].fail()
    world.play(0.5)

    assert 8 == world.machines[1].local.status


@pytest.mark.parametrize("signum", [SIGTERM, SIGKILL])
def test_signal_to_one_node_lets_it_be_replaced(signum: int) -> None:
    """With restarts the node leaves alone, and the others start again with the one that replaces it."""
    world = World(nodes=3, max_restarts=2).start().play(10.0)
    world.machines[1].signal(signum)
    world.play(5.0)
    assert {(0, None), (1, 128 + signum), (2, None)} == {(node, it.local.status) for node, it in world.machines.items()}
    world.play(100.0)
    world.boot(1, "another", begins=False).tell()
    world.play(5.0)

    assert [1, 1, 1] == [machine.runs[-1][0] for machine in world.machines.values()]
    assert all(machine.is_alive for machine in world.machines.values())


def test_sigterm_before_a_restart_stops_the_job() -> None:
    """A node that leaves while all wait for a restart ends the job everywhere, and no rank is started again."""
    world = World(nodes=4, max_restarts=1).start().play(10.0)
    world.machines[1].kill_runner()
    world.play(5.0)
    assert Stage.READY is world.machines[0].local.stage
    world.machines[0].tell(stage=Stage.LEFT, status=128 + SIGTERM, signum=SIGTERM)
    world.play(5.0)

    assert [SIGTERM] * 2 == [told(world, node, StopAll)[-1][1].signum for node in (2, 3)]
    assert [(143, [0])] * 2 == [
        (machine.local.status, [attempt for attempt, _first, _last in machine.runs])
        for machine in (world.machines[2], world.machines[3])
    ]


def test_sigterm_to_all_nodes_stops_a_job_with_restarts() -> None:
    """A stop signal that reaches every node within 2 s ends the job."""
    world = World(nodes=3, max_restarts=2).start().play(10.0)
    for node in range(3):
        world.machines[node].signal()
        world.play(0.5)
    world.play(5.0)

    assert {143} == statuses(world)


def test_missing_replacement_ends_the_job() -> None:
    """A node that is not replaced within --link-timeout ends the job with the status of the failure."""
    world = World(nodes=3, max_restarts=2).start().play(10.0)
    world.machines[1].fail()
    world.machines[1].kill_runner()
    world.play(500.0)
    assert Stage.READY is world.machines[0].local.stage
    world.play(150.0)

    assert 8 == world.machines[0].local.status == world.machines[2].local.status
    assert (1,) == world.machines[2].verdicts[-1].missing


@pytest.mark.parametrize(("survivors", "decision"), [((), "no_link"), (("pid 7",), "not_clear")])
def test_no_restart_without_a_node_that_is_cut_off(survivors: tuple[str, ...], decision: str) -> None:
    """A node that is cut off while its ranks stop is not said to have processes that are alive."""
    world = World(nodes=3, max_restarts=2, grace=1.0, habits=Habits(stop=1.0)).start().play(10.0)
    world.machines[1].fail()
    world.machines[1].tell(survivors=survivors)
    world.play(0.5)
    world.machines[2].is_cut = True
    world.play(10.0)

    assert decision == world.machines[0].verdicts[-1].decision


@pytest.mark.parametrize(
    ("end", "replaces"),
    [
        (lambda machine: machine.fail(), False),
        (lambda machine: machine.kill_runner(), True),
        (lambda machine: machine.signal(), True),
        (lambda machine: machine.vanish(), True),
    ],
    ids=["fail", "kill", "signal", "vanish"],
)
def test_verdict_says_whether_a_node_has_to_be_replaced(end: Callable[[Machine], None], *, replaces: bool) -> None:
    """Only then the platform writes the rank table anew."""
    world = World(nodes=3, max_restarts=1, node_timeout=5.0).start().play(10.0)
    end(world.machines[2])
    world.play(30.0)

    assert [replaces] == [verdict.replaces for verdict in world.machines[1].verdicts]


def test_restarts_are_counted_at_the_hub() -> None:
    """Whichever node fails, the job is restarted `max_restarts` times."""
    world = World(nodes=3, max_restarts=2).start()
    for node in (1, 2, 0):
        world.play(10.0)
        world.machines[node].fail()
    world.play(10.0)

    assert {7} == statuses(world)
    assert [0, 1, 2] == [attempt for attempt, _first, _last in world.machines[1].runs]
    assert "used_up" == world.machines[1].verdicts[-1].decision


def test_a_new_hub_goes_on_with_the_attempt_that_it_hears() -> None:
    """A link process of node 0 that was started again knows nothing, and hears everything of the nodes."""
    world = World(nodes=3, max_restarts=3).start().play(10.0)
    world.machines[1].fail()
    world.play(5.0)
    world.start_hub()
    world.play(5.0)
    assert all(machine.is_alive and machine.runs[-1][0] == 1 for machine in world.machines.values())
    world.machines[2].fail()
    world.play(5.0)

    assert [2, 2, 2] == [machine.runs[-1][0] for machine in world.machines.values()]


@pytest.mark.parametrize(
    ("end", "attempt"),
    [(lambda machine: machine.vanish(), 1), (lambda machine: machine.kill_runner(), 2), (lambda it: it.signal(), 2)],
    ids=["vanish", "kill", "signal"],
)
@pytest.mark.parametrize("late", [0.0, 4.0])
def test_a_new_node_0_does_not_begin_with_an_attempt_that_is_over(
    end: Callable[[Machine], None], attempt: int, late: float
) -> None:
    """It starts no ranks before it has heard the others, or they have had 5 s to reach it."""
    world = World(nodes=3, max_restarts=3).start().play(10.0)
    world.machines[1].fail()
    world.play(5.0)
    end(world.machines[0])
    world.play(30.0)
    for node in (1, 2):
        world.machines[node].is_cut = True
    world.start_hub("runner-0-again")
    world.boot(0, "runner-0-again")
    world.play(late)
    for node in (1, 2):
        world.machines[node].is_cut = False
    world.play(60.0)

    assert [attempt] == [number for number, _first, _last in world.machines[0].runs]
    assert all(machine.is_alive and machine.runs[-1][0] == attempt for machine in world.machines.values())


@pytest.mark.parametrize("earlier", [0, 1])
@pytest.mark.parametrize("late", [1.0, 3.5])
def test_a_new_hub_goes_on_with_the_stop_of_the_former_one(earlier: int, late: float) -> None:
    """While other nodes still stop their ranks because node 0 has died, its new runner starts none of that attempt."""
    world = World(nodes=3, max_restarts=3).start().play(10.0)
    for _ in range(earlier):
        world.machines[1].fail()
        world.play(10.0)
    for node in (1, 2):
        world.machines[node].habits = Habits(stop=8.0)
    world.machines[0].kill_runner()
    world.play(late)
    world.start_hub("runner-0-again")
    world.boot(0, "runner-0-again")
    world.play(60.0)
    verdicts = [news.verdict for _at, news in told(world, 1, VerdictReached)]

    assert [earlier + 1] == [number for number, _first, _last in world.machines[0].runs]
    assert all(machine.is_alive and machine.runs[-1][0] == earlier + 1 for machine in world.machines.values())
    assert ("the runner of node 0 died", 137, True) == (
        verdicts[-1].sentence,
        verdicts[-1].status,
        verdicts[-1].restarts,
    )


@pytest.mark.parametrize("is_back", [True, False])
def test_a_new_hub_waits_for_the_node_that_the_former_one_stopped_for(*, is_back: bool) -> None:
    """It hears the others first; a node that does not join again is named all the same."""
    world = World(nodes=3).start().play(10.0)
    world.machines[2].habits = Habits(diagnose=4.0)
    world.machines[2].fail()
    world.play(1.0)
    world.machines[2].is_cut = True
    world.start_hub()
    world.play(2.0)
    early = told(world, 1, VerdictReached)
    world.machines[2].is_cut = not is_back
    world.play(60.0)
    ((_at, news),) = told(world, 1, VerdictReached)

    assert [] == early
    assert (2, 9, () if is_back else (2,)) == (news.verdict.node, news.verdict.status, news.verdict.missing)


@pytest.mark.parametrize(("nodes", "at"), [((0, 1, 2), 0.1), ((0, 1), FIRST_WORD)])
def test_the_first_attempt_waits_for_no_node_that_is_late(nodes: tuple[int, ...], at: float) -> None:
    """Where all nodes are started together, restarts delay no rank; otherwise, a rank waits for 5 s."""
    world = World(nodes=3, max_restarts=1)
    world.start_hub()
    for node in nodes:
        world.boot(node)
    world.play(10.0)

    assert [at] * len(nodes) == [
        pytest.approx(world.machines[node].runs[0][1], abs=world.habits.prepare + 0.01) for node in nodes
    ]


def test_a_new_hub_does_not_take_a_stopped_node_for_a_successful_one() -> None:
    """It hears its own node first, whose ranks have ended without a failure; the others are at the next attempt."""
    world = World(nodes=3, max_restarts=2).start().play(10.0)
    world.machines[0].habits = Habits(diagnose=100.0)
    world.machines[1].fail()
    world.play(1.0)
    machine = world.machines[0]
    machine.spoke = Spoke(identity=machine.spoke.identity)
    for other in (world.machines[1], world.machines[2]):
        other.is_cut = True
    world.start_hub()
    machine.local = Local(stage=Stage.DEAD)
    machine.tell()
    world.play(10.0)
    assert [] == [verdict for verdict in machine.verdicts[1:] if not verdict.restarts]
    for other in (world.machines[1], world.machines[2]):
        other.is_cut = False
    world.play(10.0)

    assert [1] * 3 == [each.runs[-1][0] for each in world.machines.values()]
    assert all(each.is_alive for each in world.machines.values())


def test_a_node_follows_the_others_although_its_hub_has_forgotten_the_verdict() -> None:
    """A node that waits for a verdict goes on with the others; what has become of those is not known."""
    spoke = Spoke(identity=Identity(node=1, nodes=3, incarnation="r1", max_restarts=2))
    spoke, _actions = spoke_rules.transition(spoke, LocalChanged(Local(stage=Stage.DEAD), 1.0))
    message = wire.encode_hub(Header(sender="another", seq=1), wire.encode_view(View(attempt=1)))
    spoke, actions = spoke_rules.transition(spoke, Received(HUB, message, 1.1))
    news = [action.news for action in actions if isinstance(action, Tell)]
    [verdict] = [one.verdict for one in news if isinstance(one, VerdictReached)]

    assert (0, True, False, (0, 2)) == (verdict.attempt, verdict.restarts, verdict.is_alone, verdict.missing)
    assert -1 == spoke.settled


def test_a_new_hub_waits_for_the_leases_of_nodes_that_it_does_not_know() -> None:
    """If it hears of a later attempt, there was a hub before it, even if all link processes are new."""
    world = World(nodes=3, max_restarts=2, link_timeout=60.0).start().play(10.0)
    cut = world.machines[2]
    cut.is_cut = True
    world.play(5.0)
    world.machines[1].fail()
    world.play(5.0)
    world.hub = None
    world.play(1.0)
    world.start_hub()
    for machine in (world.machines[0], world.machines[1]):
        machine.spoke = Spoke(identity=machine.spoke.identity)
        machine.tell()
    world.boot(2, "runner-2-again", begins=False).tell()
    world.play(30.0)
    assert cut.is_alive
    assert [0] == [attempt for attempt, _first, _last in world.machines[0].runs]
    waits = [told(world, node, Waiting)[-1][1].sentence for node in range(3)]
    wait = "waiting for the previous runner of nodes 0-2 to time out, because its ranks may still be running"
    assert [wait] * 3 == waits
    world.play(90.0)

    assert [1] * 3 == [machine.runs[-1][0] for machine in world.machines.values()]
    assert cut.runs[-1][2] < min(machine.runs[-1][1] for machine in world.machines.values())


def test_a_lease_ends_the_ranks_of_a_node_without_contact() -> None:
    """In a job with restarts a node without contact for --link-timeout stops its ranks, and only there."""
    worlds = [World(nodes=2, max_restarts=restarts).start().play(5.0) for restarts in (1, 0)]
    for world in worlds:
        world.machines[1].is_cut = True
        world.play(700.0)

    assert [False, True] == [world.machines[1].is_alive for world in worlds]


@pytest.mark.parametrize(("node_timeout", "said", "is_stopped"), [
    (None, {}, False),
    (60.0, {}, True),
    (None, {"lost": (2,)}, True),
    (None, {"lost": (1,)}, False),
    (None, {"is_silent": True}, True),
    (None, {"silent_from": 20.0}, True),
    (None, {"silent_from": 1e9}, False),
])  # fmt: skip
def test_when_an_unreachable_node_is_lost(
    *, node_timeout: float | None, said: dict[str, Any], is_stopped: bool
) -> None:
    """Silence alone never makes a node lost (law 7)."""
    world = World(nodes=3, node_timeout=node_timeout).start().play(5.0)
    world.machines[2].vanish()
    world.play(50.0)
    for node in (0, 1):
        world.machines[node].tell(**said)
    world.play(50.0)

    assert is_stopped is (world.machines[0].local.stage is Stage.LEFT)
    if is_stopped:
        assert {(2, "likely", 1)} == causes(world)


def test_one_silent_node_does_not_make_another_lost() -> None:
    """All reachable ranks have to be silent."""
    world = World(nodes=3).start().play(5.0)
    world.machines[2].vanish()
    world.machines[1].tell(is_silent=True)
    world.play(700.0)

    assert Stage.RUNNING is world.machines[0].local.stage


def test_success_waits_for_the_slowest_node_where_there_are_restarts() -> None:
    """With restarts no runner leaves before all have succeeded, and then all do."""
    world = World(nodes=3, max_restarts=1).start().play(5.0)
    for node in range(3):
        world.machines[node].succeed()
        world.play(100.0)
        assert {0 if node == 2 else None} == statuses(world)

    because = "because a failure there would restart all nodes"
    assert f"waiting for nodes 1, 2 to end, {because}" == told(world, 0, Waiting)[0][1].sentence


def test_only_a_wait_that_lasts_is_told() -> None:
    """A node tells what it waits for after 3 s: nothing of a quick restart, and never itself."""
    world = World(nodes=3, max_restarts=2).start().play(10.0)
    world.machines[1].fail()
    world.play(5.0)
    assert not any(news.sentence for node in range(3) for _at, news in told(world, node, Waiting))
    world.machines[2].habits = Habits(prepare=20.0)
    world.machines[1].fail()
    world.play(30.0)

    shown = [[news.sentence for _at, news in told(world, node, Waiting) if news.sentence] for node in range(3)]
    late = "waiting for node 2 to be ready for the restart, for at most 10 min 0 s (--link-timeout)"
    assert [[late], [late], []] == shown


@pytest.mark.parametrize(
    ("awaited", "sentence"),
    [((0, 1, 2), "waiting for nodes 0, 2 to end"), ((2,), "waiting for node 2 to end"), ((1,), "")],
)
def test_no_node_waits_for_itself(awaited: tuple[int, ...], sentence: str) -> None:
    """Node 0 may not know yet what this node has said, or may be cut off from it."""
    spoke = Spoke(identity=Identity(node=1, nodes=3, incarnation="r1", max_restarts=1))
    spoke, _actions = spoke_rules.transition(spoke, LocalChanged(Local(stage=Stage.DEAD), 1.0))
    view = wire.encode_view(View(wait="to end", awaited=awaited))
    spoke, _actions = spoke_rules.transition(
        spoke, Received(HUB, wire.encode_hub(Header(sender="r0", seq=1), view), 1.1)
    )
    _spoke, actions = spoke_rules.transition(spoke, Tick(5.0))
    news = [action.news for action in actions if isinstance(action, Tell)]

    assert [sentence] * bool(sentence) == [one.sentence for one in news if isinstance(one, Waiting)]


def test_versions_that_differ_are_said_once() -> None:
    """A difference of versions is a warning, with the nodes that are alone with theirs."""
    world = World(nodes=4).start().play(1.0)
    for node in range(4):
        world.machines[node].tell(versions=(("CANN", "8.0.RC2" if node == 3 else "8.0.RC3"),))
    world.play(60.0)

    assert ["node 3 has CANN 8.0.RC2, the others 8.0.RC3"] == warnings(world)


@pytest.mark.parametrize(
    ("versions", "sentences"),
    [
        ([{"torch": "2.1.0"}, {"torch": ""}, {"torch": "2.1.0"}], ["node 1 has no torch, the others 2.1.0"]),
        ([{"torch": ""}, {"torch": "2.1.0"}, {"torch": ""}], ["node 1 has torch 2.1.0, the others none"]),
        ([{"CANN": "8.0"}, {"driver": "24.1"}, {"CANN": "8.0"}], []),
        ([{"x": ""}, {"HCCL_A": "1", "x": ""}, {"x": ""}], ["node 1 has HCCL_A 1, the others none"]),
        ([{"x": "1"}, {"x": "2"}, {"x": "3"}], ["node 0 has x 1, node 1 has x 2, node 2 3"]),
        (
            [{f"x{n}": str(node) for n in range(40)} for node in range(3)],
            ["28 other settings differ between the nodes as well"],
        ),
    ],
    ids=["missing on one", "present on one", "unknown", "variable", "all differ", "too many"],
)
def test_differences(versions: list[dict[str, str]], sentences: list[str]) -> None:
    """What is unknown of a node is no difference; software that is not installed and a variable that is not set are."""
    world = World(nodes=3).start().play(1.0)
    for node, found in enumerate(versions):
        world.machines[node].tell(versions=tuple(found.items()))
    world.play(60.0)

    assert sentences == warnings(world)[-1:]


@pytest.mark.parametrize(
    ("versions", "differs"),
    [
        (["8.0", "8.0", "7.0"], ["", "", "CANN 7.0"]),
        (["8.0", "", "8.0"], ["", "no CANN", ""]),
        (["8.0", "7.0"], ["CANN 8.0", "CANN 7.0"]),
        (["8.0", "8.0"], ["", ""]),
    ],
    ids=["one", "missing", "equally common", "none"],
)
def test_rows_name_what_differs(versions: list[str], differs: list[str]) -> None:
    """A row has the values that are not those of most nodes, or all values where none is that of most."""
    world = World(nodes=len(versions)).start().play(1.0)
    for node, version in enumerate(versions):
        world.machines[node].tell(versions=(("CANN", version),))
    world.play(5.0)

    assert world.hub
    assert differs == [record.differs for record in node_records(world.hub)]


def test_versions_arrive_though_messages_are_lost() -> None:
    """What a node tells late of its versions is repeated until the hub has it, and with another hub again."""
    network = Network(fate=lambda _node, at: (0.001,) if int(at * 10) % 3 else ())
    world = World(nodes=3, network=network).start().play(2.75)
    for node in range(3):
        world.machines[node].tell(versions=(("CANN", f"8.{node % 2}"),))
    world.play(5.0)
    sentence = "node 1 has CANN 8.1, the others 8.0"

    assert [sentence] == warnings(world)
    world.start_hub("another")
    assert [sentence] * 2 == warnings(world.play(10.0))


def test_versions_are_compared_without_a_node_that_does_not_tell_them() -> None:
    """A node with a hung disk delays the warning by half a minute, and is compared when it tells its versions."""
    world = World(nodes=3).start().play(1.0)
    for node in range(2):
        world.machines[node].tell(versions=(("CANN", f"8.{node}"),))

    assert [] == warnings(world.play(20.0))
    assert ["node 0 has CANN 8.0, node 1 8.1"] == warnings(world.play(60.0))
    world.machines[2].tell(versions=(("CANN", "7.0"),))
    assert "node 0 has CANN 8.0, node 1 has CANN 8.1, node 2 7.0" == warnings(world.play(60.0))[1]


def test_clocks_that_differ_are_said_once() -> None:
    """A wall clock that is more than a second off is a warning, and in the node's record."""
    world = World(nodes=3, clocks={2: (77.0, 1.25)}).start().play(60.0)
    assert world.hub

    assert ["clocks differ from node 0's: node 2 by +1.25 s"] == warnings(world)
    assert ["", "", "+1.25 s"] == [record.clock_offset for record in node_records(world.hub)]


def test_a_request_is_passed_to_all_and_answered() -> None:
    """A request on any node reaches all, and is answered there with every node's result."""
    world = World(nodes=3).start().play(5.0)
    world.machines[2].feed(Requested(Asked(request="checkpoint"), world.machines[2].at()))
    world.play(0.1)
    for node in range(3):
        [(_at, asked)] = told(world, node, Asked)
        world.machines[node].tell(answered=asked.request_id, answer="saved" if node else "not saved")
    world.play(1.0)

    assert [Answered(request="checkpoint", results=(("0", "not saved"), ("1, 2", "saved")))] == [
        news for _at, news in told(world, 2, Answered)
    ]
    assert [] == told(world, 1, Answered)


def test_a_request_is_bounded() -> None:
    """Nodes that are not reached, or whose runners do not answer, are named; without node 0, nothing is asked."""
    world = World(nodes=4).start().play(5.0)
    world.machines[3].is_cut = True
    world.play(5.0)
    for machine in (world.machines[2], world.machines[3]):
        machine.feed(Requested(Asked(request="checkpoint"), machine.at()))
    world.play(0.1)
    for node in range(2):
        [(_at, asked)] = told(world, node, Asked)
        world.machines[node].tell(answered=asked.request_id, answer="saved")
    world.play(ASK_LIMIT)

    assert [Answered(request="checkpoint", results=(("0, 1", "saved"), ("2", ""), ("3", NOT_REACHED)))] == [
        news for _at, news in told(world, 2, Answered)
    ]
    assert [(10.0, Answered(request="checkpoint"))] == told(world, 3, Answered)


def test_requests_for_one_checkpoint_are_one() -> None:
    """If a scheduler signals all runners, each rank is asked once, and each node learns the result."""
    world = World(nodes=3).start().play(5.0)
    for machine in world.machines.values():
        machine.feed(Requested(Asked(request="checkpoint"), machine.at()))
    world.play(0.1)
    for node in range(3):
        [(_at, asked)] = told(world, node, Asked)
        world.machines[node].tell(answered=asked.request_id, answer="saved")
    world.play(2.0)

    assert [[("0-2", "saved")]] * 3 == [
        [*news.results] for node in range(3) for _at, news in told(world, node, Answered)
    ]


def test_a_request_to_stop_outlives_the_stop() -> None:
    """The first node that is stopped does not end the request before the others have answered, nor is it the cause."""
    world = World(nodes=3, max_restarts=1).start().play(5.0)
    world.machines[1].feed(Requested(Asked(request="stop"), world.machines[1].at()))
    world.play(0.1)
    for node in range(3):
        [(_at, asked)] = told(world, node, Asked)
        world.machines[node].tell(answered=asked.request_id, answer="stopping")
        world.machines[node].signal()
        world.play(0.01)
    world.play(5.0)

    assert [(("0-2", "stopping"),)] == [news.results for _at, news in told(world, 1, Answered)]
    assert [(1, 128 + SIGTERM)] * 3 == [
        (verdict.node, verdict.status) for verdict in (world.machines[node].verdicts[-1] for node in range(3))
    ]


def test_a_node_knows_itself_and_whether_it_reaches_node_0() -> None:
    """Without the hub's knowledge, a viewer on another node still sees whether that node is linked."""
    world = World(nodes=3).start().play(5.0)
    machine = world.machines[2]
    machine.feed(Requested(Asked(request="nodes"), machine.at()))
    machine.is_cut = True
    world.play(5.0)
    machine.feed(Requested(Asked(request="nodes"), machine.at()))

    assert [[(0, False), (2, False)], [(0, True), (2, False)]] == [
        [(row.node, row.is_unreachable) for row in news.nodes] for _at, news in told(world, 2, NodesKnown)
    ]


def test_a_malformed_message_is_dropped_and_said_once() -> None:
    """Bytes that are no message change nothing but a counter."""
    world = World(nodes=2).start().play(5.0)
    hub = world.hub
    for number in range(5):
        world.feed_hub(Received(b"x", {"node": number}, world.now + world.hub_clock))
        world.machines[1].feed(Received(HUB, {"view": []}, world.machines[1].at()))
    assert hub
    assert world.hub

    assert (5, 5) == (world.hub.dropped, world.machines[1].spoke.dropped)
    assert 1 == len(told(world, 0, Warned)) == len(told(world, 1, Warned))
    assert hub.peers == world.hub.peers


@pytest.mark.parametrize("stopped", [0, 1])
def test_stop_before_the_other_node_listens(stopped: int) -> None:
    """A node that is stopped while the other one still starts waits a moment to tell it, and no longer."""
    world = World(nodes=2)
    other = 1 - stopped
    for early, node in ((True, stopped), (False, other)):
        if node == 0:
            world.start_hub()
        world.boot(node)
        world.play(1.0)
        if early:
            world.machines[node].signal()
            world.machines[node].leave(143)
            world.play(3.0)
            assert not (world.hub and world.hub.is_over)
    [(_at, stop)] = told(world, other, StopAll)
    world.play(10.0)

    assert (stopped, SIGTERM) == (stop.node, stop.signum)
    assert world.machines[stopped].spoke.is_over

"""What a runner says of its node, and what it makes of the news of the others, without a process or a second passed."""

from __future__ import annotations

from signal import SIGTERM
from types import SimpleNamespace
from typing import Any

import attrs
import pytest

from ascend_runner.errors import AscendRunnerError, StopRequestedError
from ascend_runner.job.nodes import LAST_WORD, Nodes
from ascend_runner.link.messages import (
    Failure,
    FailureClass,
    Joined,
    Local,
    News,
    Refused,
    Stage,
    StartAll,
    StopAll,
    VerdictReached,
    Waiting,
    Warned,
)
from ascend_runner.plan.spec import LinkPlan
from ascend_runner.record.nodes import JobVerdict
from ascend_runner.record.rank_record import Outcome
from ascend_runner.services.control import Requests
from ascend_runner.supervision.causes import Ending, Exited, PeerFailed, Restart, SignalReceived
from ascend_runner.supervision.events import Spawned
from ascend_runner.supervision.job_machine import Failed, Policy, Verdict
from ascend_runner.supervision.state import Phase, State
from tests.fakes import FakeClock
from tests.helpers.plans import job_spec, rank_spec

GRACE = 15.0
LINK = LinkPlan(node=1, nodes=4, key=b"k" * 32, hubs=("10.0.0.1",), ports=(20000,), timeout=60.0, table="a table")
EXITED = Exited(0, Ending(exit_code=7))
FAILED = Failed(status=7, restart=Restart.TRANSIENT, fingerprint="exit status 7")
STOP = StopAll(attempt=0, node=3, rank_id=26, ending="exit status 9", status=9)


class Clock(FakeClock):
    """Virtual time in which nobody sends a second signal."""

    stop_signum = 0

    def is_stopped(self) -> bool:
        """Return whether a stop signal has arrived."""
        return False

    def is_hurried(self) -> bool:
        """Return whether a second stop signal has arrived."""
        return False


class FakePeers:
    """The other nodes: what they are told, and the news that a test sends."""

    is_usable = True
    pids: tuple[int, ...] = ()

    def __init__(self) -> None:
        self.told: list[Local] = []
        self.waiting: list[News] = []

    def open(self) -> None:
        """Do nothing."""

    def tell(self, local: Local) -> None:
        """Keep what is said."""
        self.told.append(local)

    def news(self) -> tuple[News, ...]:
        """Return the news since the last call."""
        news, self.waiting = tuple(self.waiting), []
        return news

    def close(self) -> None:
        """Do nothing."""


class Scene:
    """One node of four."""

    def __init__(self, *, restarts: int = 0, is_required: bool = False) -> None:
        self.clock, self.peers, self.shown = Clock(), FakePeers(), list[str]()
        self.requests = Requests(self.clock)
        messages = SimpleNamespace(info=self.shown.append, warning=self.shown.append, warn_once=self.shown.append)
        setup: Any = SimpleNamespace(
            signals=self.clock, requests=self.requests, messages=messages, wait_in_time=self._wait, environ={}
        )
        link = attrs.evolve(LINK, is_required=is_required)
        spec = job_spec([rank_spec()], link=link, restarts=Policy(max_restarts=restarts), grace=GRACE)
        self.nodes = Nodes(setup, spec)
        self.nodes.use(self.peers)

    def send_at(self, moment: float, *news: News) -> None:
        """Let news arrive at a moment."""

        def arrive() -> None:
            self.peers.waiting += news
            self.nodes.take_news()

        self.clock.at(moment, arrive)

    def _wait(self, seconds: float) -> None:
        if SIGTERM in self.clock.wait(seconds):
            raise StopRequestedError(SIGTERM, "stopped by SIGTERM")


def test_failure_is_said_at_once_and_explained_later() -> None:
    """The first failure is sent when the ranks are asked to stop, its diagnosis when they have ended."""
    scene = Scene()
    scene.nodes.observe(State(grace=GRACE, phase=Phase.TERMINATING, cause=EXITED), 3.0)
    scene.send_at(1.0, VerdictReached(JobVerdict(attempt=0, node=1, status=7)))
    first, failure = scene.peers.told[-1], scene.peers.told[-1].failure
    scene.nodes.confer(FAILED, Outcome(cause=EXITED))
    last = scene.peers.told[-1]

    assert Stage.STOPPING is first.stage
    assert Failure(rank_id=0, ending="exit status 7", status=7, at=3.0) == failure
    assert last.diagnosed
    assert (Stage.DEAD, FailureClass.UNKNOWN, 7) == (last.stage, last.diagnosed.kind, last.diagnosed.status)


def test_end_of_the_only_rank_is_said_at_once() -> None:
    """The failure of a node's last rank does not wait for its output; one that was stopped is no failure."""
    scene = Scene()
    for ending in (Ending(signum=SIGTERM), Ending(exit_code=7)):
        scene.nodes.begin_attempt(0)
        scene.nodes.observe(Spawned(0, 1000), 0.0)
        scene.nodes.observe(Exited(0, ending), 1.0)

    assert [None, 7] == [one.failure and one.failure.status for one in scene.peers.told if not one.alive][2::2]


@pytest.mark.parametrize(
    ("expected", "stop"),
    [
        (PeerFailed(attempt=0, sentence="node 3 failed (rank 26: exit status 9)", exit_status=9), STOP),
        (SignalReceived(SIGTERM, node=3), StopAll(attempt=0, node=3, signum=SIGTERM)),
    ],
)
def test_stop_becomes_a_cause(expected: object, stop: StopAll) -> None:
    """The stop of another node ends the attempt, also if it has come before the ranks are started."""
    scene = Scene()
    scene.send_at(0.0, stop)
    scene.clock.wait(0.0)
    early = scene.requests.take_findings()
    scene.nodes.begin_attempt(0)

    assert [expected] == early == scene.requests.take_findings()


def test_verdict_gives_status_and_decision() -> None:
    """All nodes exit with the status of the verdict, and restart if it says so; only the named one has the cause."""
    scene = Scene(restarts=3)
    scene.send_at(2.0, VerdictReached(JobVerdict(attempt=0, node=3, status=9, restarts=True, delay=10.0)))
    end = scene.nodes.confer(FAILED, Outcome(cause=EXITED))

    assert (9, Verdict.RESTART, 10.0, False) == (end.status, end.decision, end.delay, end.is_local)
    assert 2.0 == scene.clock.now()


def test_without_a_verdict_a_node_ends_by_itself() -> None:
    """Nothing waits for longer than a bound that the grace sets; then no attempt follows."""
    scene = Scene(restarts=3)
    end = scene.nodes.confer(FAILED, Outcome(cause=EXITED))

    assert (7, Verdict.NO_LINK) == (end.status, end.decision)
    assert GRACE + LAST_WORD == pytest.approx(scene.clock.now())


def test_next_attempt_waits_for_the_others() -> None:
    """A restart begins when node 0 says so, and the rank table of this node is known to it."""
    scene = Scene(restarts=3)
    scene.send_at(5.0, StartAll(attempt=1))

    assert 1 == scene.nodes.await_start(1)
    assert 5.0 == scene.clock.now()
    assert Local(attempt=1, stage=Stage.READY, table="a table") == scene.peers.told[-1]


def test_new_runner_joins_the_attempt_of_the_others() -> None:
    """A runner that replaces another one begins with the attempt that the job is at."""
    scene = Scene(restarts=3)
    scene.send_at(1.0, Joined(attempt=2))
    scene.send_at(4.0, StartAll(attempt=2))

    assert 2 == scene.nodes.await_start(0)


def test_first_attempt_starts_at_once_without_restarts() -> None:
    """Trouble of the link delays no first start."""
    scene = Scene()

    assert 0 == scene.nodes.await_start(0)
    assert 0.0 == scene.clock.now()


def test_missing_nodes_are_waited_for_if_required() -> None:
    """With --link require, the first attempt waits for all, and ends with the numbers of the missing ones."""
    scene = Scene(is_required=True)
    scene.send_at(1.0, Joined(missing=(2, 3)))

    with pytest.raises(AscendRunnerError, match="2, 3"):
        scene.nodes.await_start(0)
    assert 60.0 == scene.clock.now()


def test_end_of_the_job_ends_the_wait_for_a_restart() -> None:
    """If node 0 gives up, the status is that of its verdict."""
    scene = Scene(restarts=3)
    scene.send_at(3.0, VerdictReached(JobVerdict(attempt=1, sentence="node 2 has not been ready", status=9)))

    with pytest.raises(AscendRunnerError, match="node 2 has not been ready") as caught:
        scene.nodes.await_start(1)
    assert 9 == caught.value.exit_status


def test_stop_signal_ends_the_wait_for_a_restart() -> None:
    """A stop signal ends every wait, whichever node has received it."""
    for scene in (Scene(restarts=3), Scene(restarts=3)):
        scene.clock.receive_at(SIGTERM, 2.0)
        with pytest.raises(StopRequestedError):
            scene.nodes.await_start(1)
    other = Scene(restarts=3)
    other.send_at(2.0, StopAll(attempt=1, node=3, signum=SIGTERM))

    with pytest.raises(StopRequestedError, match="on node 3"):
        other.nodes.await_start(1)


def test_refused_node_ends_with_125() -> None:
    """A node that cannot take part starts nothing, and stops what runs."""
    scene = Scene(restarts=3)
    scene.send_at(1.0, Refused(sentence="node 1 counts 3 nodes, node 0 counts 4"))

    with pytest.raises(AscendRunnerError, match="counts 3 nodes") as caught:
        scene.nodes.await_start(1)
    assert 125 == caught.value.exit_status
    assert [125] == [cause.exit_status for cause in scene.requests.take_findings()]


def test_sentences_are_shown() -> None:
    """Warnings and waits of the link are shown as they are."""
    scene = Scene()
    scene.send_at(0.0, Warned(sentence="node 2 is unreachable"), Waiting(sentence="waiting for node 2"))
    scene.clock.wait(0.0)

    assert ["node 2 is unreachable", "waiting for node 2"] == scene.shown


@pytest.mark.parametrize(
    ("status", "verdict"),
    [
        (0, JobVerdict(attempt=0)),
        (9, JobVerdict(attempt=0, node=3, sentence="rank 26 failed", status=9)),
        (9, JobVerdict(attempt=0, node=3, sentence="rank 26 failed", status=9, restarts=True)),
    ],
)
def test_node_that_has_succeeded_waits_for_the_others(status: int, verdict: JobVerdict) -> None:
    """With restarts, a failure on another node is one of this node as well, until all have succeeded."""
    scene = Scene(restarts=1)
    scene.send_at(100.0, Joined(), VerdictReached(verdict))
    outcome = scene.nodes.await_success(Outcome(cause=None))

    assert status == outcome.status
    assert 100.0 == scene.clock.now()

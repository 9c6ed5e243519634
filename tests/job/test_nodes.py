"""What a runner says of its node, and what it makes of the news of the others, without a process or a second passed."""

from __future__ import annotations

import time
from collections.abc import Callable
from copy import copy
from signal import SIGINT, SIGKILL, SIGTERM, SIGUSR1
from types import SimpleNamespace
from typing import Any

import attrs
import pytest

from ascend_runner.errors import AscendRunnerError, CommandError, StopRequestedError
from ascend_runner.job.nodes import LAST_WORD, STOP_WORD, Nodes, of_all_nodes
from ascend_runner.link.messages import (
    NOT_REACHED,
    Answered,
    Asked,
    Failure,
    FailureClass,
    Joined,
    Local,
    News,
    NodesKnown,
    Refused,
    Stage,
    StartAll,
    StopAll,
    VerdictReached,
    Waiting,
    Warned,
)
from ascend_runner.plan.spec import LinkPlan
from ascend_runner.record.facts import CheckpointAsked
from ascend_runner.record.nodes import JobVerdict, NodeRecord
from ascend_runner.record.rank_record import Outcome, RankRecord, RankState
from ascend_runner.services.control import Requests
from ascend_runner.supervision.causes import (
    Cause,
    Ending,
    Exited,
    HangDetected,
    LimitReached,
    PeerFailed,
    Restart,
    SignalReceived,
)
from ascend_runner.supervision.events import Spawned
from ascend_runner.supervision.job_machine import Failed, Policy, Verdict
from ascend_runner.supervision.state import Phase, State
from tests.fakes import FakeClock
from tests.helpers.plans import job_spec, rank_spec
from tests.helpers.waiting import LIMIT, wait_until

GRACE = 15.0
NEW_TABLE = 30.0
DIFFERENT = Waiting(sentence="the rank tables of the nodes differ", rereads_table=True)
LINK = LinkPlan(node=1, nodes=4, key=b"k" * 32, hubs=("10.0.0.1",), ports=(20000,), timeout=60.0, table="a table")
EXITED = Exited(0, Ending(exit_code=7))
FAILED = Failed(status=7, restart=Restart.TRANSIENT, fingerprint="exit status 7")
PEER_FAILED = PeerFailed(attempt=0, sentence="node 3 failed", exit_status=9)
STOP = StopAll(attempt=0, node=3, rank_id=26, ending="exit status 9", status=9)


class Clock(FakeClock):
    """Virtual time with the signals that a test sends; none comes from a launcher."""

    stop_signum = 0
    has_second = False
    stops = 0  # how often this runner was stopped by a request

    def receive_stop_at(self, signum: int, moment: float) -> None:
        """Let a stop signal arrive."""

        def arrive() -> None:
            self.has_second = self.stop_signum != 0
            self.stop_signum = self.stop_signum or signum

        self.at(moment, arrive)

    def request_stop(self) -> None:
        """Count it."""
        self.stops += 1

    def first_stop(self) -> SignalReceived:
        """Return the first stop signal."""
        return SignalReceived(self.stop_signum)

    def is_stopped(self) -> bool:
        """Return whether a stop signal has arrived."""
        return self.stop_signum != 0

    def is_hurried(self) -> bool:
        """Return whether a second stop signal has arrived."""
        return self.has_second


class FakePeers:
    """The other nodes: what they are told, and the news that a test sends."""

    is_usable = True
    pids: tuple[int, ...] = ()

    def __init__(self) -> None:
        self.told: list[Local] = []
        self.hubs: list[tuple[str, ...]] = []  # that were dialled
        self.asked: list[Asked] = []
        self.reply: Callable[[Asked], object] = lambda _asked: None  # to what is asked
        self.waiting: list[News] = []
        self.until: Callable[[Callable[[], bool]], float] = lambda _is_cut: 0.0  # waits; returns when that ended
        self.closed_at = 0.0

    def open(self) -> None:
        """Do nothing."""

    def tell(self, local: Local) -> None:
        """Keep what is said."""
        self.told.append(local)

    def dial(self, hubs: tuple[str, ...]) -> None:
        """Keep what is dialled."""
        self.hubs.append(hubs)

    def ask(self, asked: Asked) -> None:
        """Keep what is asked."""
        self.asked.append(asked)
        self.reply(asked)

    def news(self) -> tuple[News, ...]:
        """Return the news since the last call."""
        news, self.waiting = tuple(self.waiting), []
        return news

    def close(self, is_cut: Callable[[], bool]) -> None:
        """Wait until that is cut short."""
        self.closed_at = self.until(is_cut)


class Scene:
    """One node of four."""

    def __init__(self, *, restarts: int = 0, is_required: bool = False, node: int = 1) -> None:
        self.clock, self.peers, self.shown = Clock(), FakePeers(), list[str]()
        self.requests = Requests(self.clock)
        show = self.shown.append
        messages = SimpleNamespace(info=show, warning=show, error=show, warn_once=show)
        setup: Any = SimpleNamespace(
            signals=self.clock, requests=self.requests, messages=messages, wait_in_time=self._wait, environ={}
        )
        link = attrs.evolve(LINK, is_required=is_required, node=node)
        policy = Policy(max_restarts=restarts)
        spec = job_spec([rank_spec()], link=link, restarts=policy, grace=GRACE, nodes=(4, 4))
        self.nodes = Nodes(setup, spec, link)
        self.nodes.use(self.peers)
        self.plans = (link, attrs.evolve(link, table="a new table", hubs=("10.0.0.2",)))  # the second from `NEW_TABLE`

    def start(self, attempt: int) -> int:
        """Wait until an attempt may start; return its number."""
        return self.nodes.await_start(attempt, self.plans[0], lambda: self.plans[self.clock.now() >= NEW_TABLE])

    def send_at(self, moment: float, *news: News) -> None:
        """Let news arrive at a moment."""

        def arrive() -> None:
            self.peers.waiting += news
            self.nodes.take_news()

        self.clock.at(moment, arrive)

    def send(self, *news: News) -> None:
        """Let news arrive now."""
        self.peers.waiting += news
        self.nodes.take_news()

    def _wait(self, seconds: float) -> None:
        if SIGTERM in self.clock.wait(seconds):
            raise StopRequestedError(SIGTERM, "stopped by SIGTERM")
        self.nodes.check()


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


@pytest.mark.parametrize(
    ("state", "ending", "is_stopped"),
    [
        (RankState.STOPPED, Ending(signum=SIGTERM), True),
        (RankState.STOPPED, Ending(exit_code=3), False),
        (RankState.FAILED, Ending(exit_code=7), False),
        (RankState.SUCCEEDED, Ending(), False),
        (RankState.NOT_STARTED, None, False),
    ],
)
def test_node_says_whether_its_ranks_were_just_stopped(
    state: RankState, ending: Ending | None, *, is_stopped: bool
) -> None:
    """All but the one that may be the cause; the other nodes show that, and learn nothing more of single ranks."""
    failed = RankRecord(rank_id=0, state=RankState.FAILED)
    other = RankRecord(rank_id=1, state=state, ending=ending)
    for outcome in (Outcome(cause=EXITED, ranks=(failed, other)), Outcome(cause=PEER_FAILED, ranks=(other,))):
        scene = Scene()
        scene.send(VerdictReached(JobVerdict(attempt=0, node=1, status=7)))
        scene.nodes.confer(FAILED, outcome)

        assert is_stopped is scene.peers.told[-1].is_stopped


def test_refused_node_waits_for_no_verdict() -> None:
    """Nodes that are refused are no job, which could have one, and no node waits for their last word."""
    scene = Scene()
    scene.peers.until = lambda is_cut: 0.5 if is_cut() else 9.0
    scene.send(Joined(missing=(2,)), Refused(sentence="node 1 expects 3 nodes, node 0 expects 4"))
    end = scene.nodes.confer(FAILED, Outcome(cause=PEER_FAILED))
    scene.nodes.close()

    assert (0.0, [], 0.5) == (scene.clock.now(), scene.shown, scene.peers.closed_at)
    assert Verdict.NOT_WANTED is end.decision


def test_silence_is_said() -> None:
    """A hang is silence once it lasts for 10 minutes; what HCCL reports as lost is forgotten when ranks are active."""
    scene = Scene()
    scene.nodes.begin_attempt(0)
    scene.nodes.note_lost([3])
    scene.nodes.note_lost([2])
    scene.nodes.observe(HangDetected(60.0), 100.0)
    silent = scene.peers.told[-1]
    scene.nodes.observe(HangDetected(60.0, is_over=True), 200.0)
    over = scene.peers.told[-1]

    assert ((2, 3), 640.0) == (silent.lost, silent.silent_from)
    assert ((), None) == (over.lost, over.silent_from)


def test_silence_that_hccl_explains_is_a_lost_peer() -> None:
    """A hang that HCCL reports as another rank's end is a consequence, in the first word and in the diagnosis."""
    scene = Scene()
    hang = HangDetected(35.0, peer="HCCL reports that rank 26 is lost")
    scene.nodes.observe(State(grace=GRACE, phase=Phase.TERMINATING, cause=hang), 3.0)
    scene.send_at(1.0, VerdictReached(JobVerdict(attempt=0, node=3, status=7)))
    scene.nodes.confer(FAILED, Outcome(cause=hang))
    last = scene.peers.told[-1]

    assert last.failure
    assert last.diagnosed
    assert [FailureClass.PEER] * 2 == [last.failure.kind, last.diagnosed.kind]


@pytest.mark.parametrize(
    ("state", "cause"),
    [
        ("succeeded", None),
        ("failed", EXITED),
        ("stopped", PeerFailed(attempt=0, sentence="node 3 failed", exit_status=9)),
        ("stopped", SignalReceived(SIGTERM)),
    ],
)
def test_end_of_a_node_is_said(state: str, cause: Cause | None) -> None:
    """The others see how the ranks of this node have ended, also once its runner has left."""
    scene = Scene()
    scene.nodes.observe(State(grace=GRACE, phase=Phase.DONE, cause=cause), 3.0)
    scene.nodes.leave(0)

    assert [state] * 2 == [local.state for local in scene.peers.told[-2:]]


def test_end_of_a_node_without_ranks_is_said() -> None:
    """A runner that leaves before its ranks were started has failed."""
    scene = Scene()
    scene.nodes.leave(125)

    assert "failed" == scene.peers.told[-1].state


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
        (
            PeerFailed(attempt=0, sentence="the other nodes are at attempt 1", exit_status=1),
            StopAll(attempt=0, ending="the other nodes are at attempt 1"),
        ),
        (
            PeerFailed(attempt=0, sentence="node 3 received SIGTERM", exit_status=143),
            StopAll(attempt=0, node=3, ending="node 3 received SIGTERM", status=143),
        ),
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


def test_stop_about_this_node_becomes_a_cause_unless_it_knows() -> None:
    """A node that was taken for lost and is back is stopped like the others; one that has failed stops itself."""
    lost = StopAll(attempt=0, node=1, ending="node 1 is unreachable")
    scene = Scene()
    scene.nodes.begin_attempt(0)
    scene.send(lost)
    stopped = scene.requests.take_findings()
    scene.nodes.observe(State(grace=GRACE, phase=Phase.TERMINATING, cause=EXITED), 3.0)
    scene.send(lost)

    assert [PeerFailed(attempt=0, sentence="node 1 is unreachable", exit_status=1)] == [*stopped]
    assert [] == [*scene.requests.take_findings()]


def test_attempt_that_was_stopped_before_does_not_run() -> None:
    """If another node fails while all wait for a restart, this node says that it has no ranks, not that it runs."""
    scene = Scene(restarts=3)
    scene.send_at(2.0, attrs.evolve(STOP, attempt=1))

    assert 1 == scene.start(1)
    scene.nodes.begin_attempt(1)
    cause, *_again = scene.requests.take_findings()
    scene.nodes.observe(State(grace=GRACE, phase=Phase.DONE, cause=cause), 2.0)
    assert [Stage.PREPARING, Stage.READY, Stage.DEAD] == list(dict.fromkeys(local.stage for local in scene.peers.told))


def test_verdict_gives_status_and_decision() -> None:
    """All nodes exit with the status of the verdict, and restart if it says so; only the named one has the cause."""
    scene = Scene(restarts=3)
    verdict = JobVerdict(attempt=0, node=3, kind="own", status=9, restarts=True, delay=10.0)
    scene.send_at(2.0, VerdictReached(verdict))
    end = scene.nodes.confer(FAILED, Outcome(cause=EXITED))

    assert (9, Verdict.RESTART, 10.0, False) == (end.status, end.decision, end.delay, end.is_local)
    assert 2.0 == scene.clock.now()


def test_equal_failures_are_those_of_the_verdicts() -> None:
    """Each time, rank 0 of this node has failed as well, but the cause was elsewhere once, and then another rank."""
    found = []
    for node, rank_id in ((1, 0), (1, 0), (3, 26), (3, 27)):
        scene = Scene()
        verdict = JobVerdict(node=node, rank_id=rank_id, sentence=f"rank {rank_id} failed", kind="own", status=7)
        scene.send(VerdictReached(verdict))
        found.append(scene.nodes.confer(FAILED, Outcome(cause=EXITED)).fingerprint)

    assert ["exit status 7", "exit status 7", "rank 26 on node 3 failed", "rank 27 on node 3 failed"] == found


@pytest.mark.parametrize("is_local", [False, None])
def test_node_that_has_only_lost_a_peer_is_not_the_cause(*, is_local: bool | None) -> None:
    """If the verdict is only a lost peer of this node, the cause is where this node places it."""
    scene = Scene()
    lost = JobVerdict(attempt=0, node=1, kind="peer", missing=(0, 2, 3), status=7)
    scene.send(VerdictReached(lost))
    end = scene.nodes.confer(attrs.evolve(FAILED, is_local=is_local), Outcome(cause=EXITED))

    assert end.is_local is is_local


def test_without_a_verdict_a_node_ends_by_itself() -> None:
    """Nothing waits for longer than a bound that the grace sets; then no attempt follows."""
    scene = Scene(restarts=3)
    end = scene.nodes.confer(FAILED, Outcome(cause=EXITED))

    assert (7, Verdict.NO_LINK) == (end.status, end.decision)
    assert GRACE + LAST_WORD == pytest.approx(scene.clock.now())


ERROR = CommandError("command not found: 'trian'", exit_status=127)


@pytest.mark.parametrize(("attempt", "restart"), [(0, "never"), (1, "transient")])
def test_error_before_the_start_is_a_failure(attempt: int, restart: str) -> None:
    """The others learn why this node starts no ranks; before the first attempt, it would happen again."""
    scene = Scene(restarts=3)
    scene.nodes.prepare(attempt)
    scene.nodes.fail(copy(ERROR))
    last = scene.peers.told[-1]

    assert LAST_WORD + GRACE == scene.clock.now()
    assert last.failure
    assert last.diagnosed
    assert (Stage.DEAD, str(ERROR), 127, FailureClass.OWN) == (
        last.stage,
        last.failure.ending,
        last.failure.status,
        last.failure.kind,
    )
    assert (str(ERROR), 127, FailureClass.OWN, restart) == (
        last.diagnosed.sentence,
        last.diagnosed.status,
        last.diagnosed.kind,
        last.diagnosed.restart,
    )


@pytest.mark.parametrize(
    ("verdict", "status", "shown"),
    [
        (JobVerdict(node=1, sentence="command not found: 'trian'", status=127), 127, []),
        (JobVerdict(node=3, sentence="exit status 9", status=9), 9, ["node 3: exit status 9"]),
        (JobVerdict(attempt=2, node=3, sentence="exit status 9", status=9, restarts=True), 127, []),
        (JobVerdict(node=1, status=137, is_alone=True), 137, []),
    ],
)
def test_error_before_the_start_gets_the_status_of_all(verdict: JobVerdict, status: int, shown: list[str]) -> None:
    """All nodes exit with the status of the verdict, unless that is about others that go on."""
    scene, error = Scene(restarts=3), copy(ERROR)
    scene.send_at(1.0, VerdictReached(verdict))
    scene.nodes.fail(error)

    assert (1.0, status, shown) == (scene.clock.now(), error.exit_status, scene.shown)


def test_second_runner_with_an_error_is_refused_at_once() -> None:
    """It waits for no verdict, which is about the first one."""
    scene, error = Scene(), copy(ERROR)
    scene.send_at(1.0, Refused(sentence="node 1 is already running"))
    scene.nodes.fail(error)

    assert (1.0, 127) == (scene.clock.now(), error.exit_status)


@pytest.mark.parametrize(
    ("news", "error"),
    [
        (Refused(sentence="node 1 is already running"), AscendRunnerError("node 1 is already running")),
        (VerdictReached(JobVerdict(node=3, status=9)), AscendRunnerError("no restart: node 3 failed")),
        (Joined(), StopRequestedError(SIGTERM, "stopped by SIGTERM")),
    ],
)
def test_error_that_comes_from_the_others_is_no_failure(news: News, error: AscendRunnerError) -> None:
    """A node that the others have ended, or a signal, says nothing that may become a cause, and does not wait."""
    scene = Scene(restarts=3)
    scene.send(news)
    scene.nodes.fail(error)

    assert 0.0 == scene.clock.now()
    assert not any(local.failure for local in scene.peers.told)


def test_verdict_on_a_later_attempt_is_one_on_this() -> None:
    """A node that was cut off for longer follows the others, instead of waiting for what they have forgotten."""
    scene = Scene(restarts=3)
    scene.send_at(2.0, VerdictReached(JobVerdict(attempt=1, node=3, kind="own", status=9, restarts=True)))

    assert Verdict.RESTART is scene.nodes.confer(FAILED, Outcome(cause=EXITED)).decision
    assert 2.0 == scene.clock.now()


def test_signal_that_explains_the_end_of_a_rank() -> None:
    """A scheduler signals ranks and runner at once: a rank that ended first is then no failure to be explained."""
    scene = Scene()
    scene.clock.stop_signum = SIGTERM
    scene.send(Joined())
    cause = Exited(0, Ending(signum=SIGTERM))
    scene.nodes.observe(State(phase=Phase.TERMINATING, cause=cause, grace=15.0), 1.0)
    assert scene.peers.told[-1].failure
    scene.send_at(1.0, StopAll(attempt=0, node=1, rank_id=0, ending="killed by SIGTERM", status=143))
    outcome = scene.nodes.await_end(Outcome(cause=SignalReceived(SIGTERM)))

    last = scene.peers.told[-1]
    assert (143, 1.0) == (outcome.status, scene.clock.now())
    assert (Stage.DEAD, None, SIGTERM) == (last.stage, last.failure, last.signum)


def test_stop_signal_during_the_wait_for_a_verdict_is_kept() -> None:
    """It does not end that wait, but no attempt follows on this node."""
    scene = Scene(restarts=3)
    scene.clock.receive_stop_at(SIGTERM, 1.0)
    scene.send_at(2.0, VerdictReached(JobVerdict(attempt=0, node=3, kind="own", status=9, restarts=True)))
    end = scene.nodes.confer(FAILED, Outcome(cause=EXITED))

    assert (SIGTERM, Verdict.RESTART, 2.0) == (end.signum, end.decision, scene.clock.now())


def test_stop_signal_after_a_success_is_not_said() -> None:
    """The other nodes go on: they need nothing more of this one."""
    scene = Scene(restarts=3)
    scene.clock.stop_signum = SIGTERM
    for status in (0, 143):
        scene.nodes.leave(status)

    assert [(0, 0), (143, SIGTERM)] == [(local.status, local.signum) for local in scene.peers.told[-2:]]


def test_signal_to_the_guardian_is_said_to_the_end() -> None:
    """The runner receives SIGTERM from the kernel if its guardian was killed, and does not call that the cause."""
    scene = Scene(restarts=3)
    killed = SignalReceived(SIGTERM, guardian=1, runner=2)
    scene.nodes.observe(State(grace=GRACE, phase=Phase.TERMINATING, cause=killed), 3.0)
    scene.clock.stop_signum = SIGTERM
    scene.nodes.leave(137)

    assert SIGKILL == scene.peers.told[-1].signum


def test_node_0_stays_for_the_verdict_of_the_others() -> None:
    """If node 0 alone is to leave, its link process has to stay until the others know that they are to go on."""
    for node, end in ((0, 5.0), (1, 1.0)):
        scene = Scene(restarts=3, node=node)
        scene.clock.stop_signum = SIGTERM
        scene.send(Joined())
        scene.send_at(1.0, StopAll(attempt=0, node=node, ending="received SIGTERM", status=143))
        scene.send_at(5.0, VerdictReached(JobVerdict(attempt=0, node=node, status=143, restarts=True)))
        outcome = scene.nodes.await_end(Outcome(cause=SignalReceived(SIGTERM)))

        assert (143, end) == (outcome.status, scene.clock.now())


def test_verdict_before_the_start_is_kept() -> None:
    """While a hook delays this node, the others have stopped the attempt and agreed on a cause: nothing more comes."""
    scene = Scene()
    verdict = JobVerdict(attempt=0, node=3, rank_id=26, sentence="rank 26 failed", kind="own", status=9)
    scene.send(Joined(), STOP, VerdictReached(verdict))
    scene.start(0)
    scene.nodes.begin_attempt(0)
    end = scene.nodes.confer(FAILED, Outcome(cause=EXITED))

    assert (0.0, 9, verdict) == (scene.clock.now(), end.status, scene.nodes.verdict)


def test_time_limit_excludes_a_restart() -> None:
    """The other nodes learn that a node whose time limit is over does not wait for them."""
    scene = Scene(restarts=3)
    limit = LimitReached(59.0)
    scene.nodes.observe(State(grace=GRACE, phase=Phase.TERMINATING, cause=limit), 59.0)
    scene.nodes.await_end(Outcome(cause=limit))
    last = scene.peers.told[-1]

    assert last.diagnosed
    assert (Stage.DEAD, "stopped by the time limit of 59 s") == (last.stage, last.diagnosed.sentence)
    assert ("excluded", 124, "likely") == (last.diagnosed.restart, last.diagnosed.status, last.diagnosed.certainty)


def test_next_attempt_waits_for_the_others() -> None:
    """A restart begins when node 0 says so, and the rank table of this node is known to it."""
    scene = Scene(restarts=3)
    scene.send_at(5.0, StartAll(attempt=1))

    assert 1 == scene.start(1)
    assert 5.0 == scene.clock.now()
    assert Local(attempt=1, stage=Stage.READY, table="a table") == scene.peers.told[-1]


def test_new_runner_joins_the_attempt_of_the_others() -> None:
    """A runner that replaces another one begins with the attempt that the job is at."""
    scene = Scene(restarts=3)
    scene.send_at(1.0, Joined(attempt=2))
    scene.send_at(4.0, StartAll(attempt=2))

    assert 2 == scene.start(0)


@pytest.mark.parametrize("is_required", [False, True])
def test_new_runner_waits_until_the_former_one_is_known_to_be_dead(*, is_required: bool) -> None:
    """As long as node 0 lets it wait, it does not begin on its own with an attempt that the job has left."""
    scene = Scene(restarts=3, is_required=is_required)
    scene.send_at(1.0, Waiting(sentence="node 1 is run by pod-1 already, and again by pod-2"))
    scene.send_at(80.0, Waiting(sentence=""), Joined(attempt=2))
    scene.send_at(81.0, StartAll(attempt=2))

    assert 2 == scene.start(0)


def test_second_runner_waits_for_the_link_timeout_without_restarts() -> None:
    """While the first runner is silent, the second one waits as long as for any other node."""
    scene = Scene(is_required=True)
    scene.send_at(1.0, Waiting(sentence="node 1 is run by pod-1 already, and again by pod-2"))
    scene.send_at(30.0, Waiting(sentence=""), Joined(attempt=0))

    assert 0 == scene.start(0)
    assert scene.clock.now() >= 30.0


def test_node_that_misses_an_attempt_goes_on_with_the_next_one() -> None:
    """While it was cut off, the attempt that it is ready for has been started, stopped and given up by the others."""
    scene = Scene(restarts=3)
    scene.send_at(3.0, VerdictReached(JobVerdict(attempt=1, node=3, status=9, restarts=True)))
    scene.send_at(4.0, StartAll(attempt=2))
    scene.nodes.prepare(1)

    assert 2 == scene.start(1)
    assert 2 == scene.peers.told[-1].attempt


def test_table_of_a_replaced_node_0_is_read_while_all_wait() -> None:
    """Nobody can say that tables differ if node 0 has another address: this node finds that in its own table."""
    scene = Scene(restarts=3)
    scene.send_at(40.0, StartAll(attempt=1))
    scene.start(1)

    assert [("10.0.0.2",)] == scene.peers.hubs
    assert "a new table" == scene.peers.told[-1].table


def test_first_attempt_starts_at_once_without_restarts() -> None:
    """Trouble of the link delays no first start."""
    scene = Scene()

    assert 0 == scene.start(0)
    assert 0.0 == scene.clock.now()


def test_missing_nodes_are_waited_for_if_required() -> None:
    """With --link require, the first attempt waits for all, and ends with the numbers of the missing ones."""
    scene = Scene(is_required=True)
    scene.send_at(1.0, Joined(missing=(2, 3)))

    with pytest.raises(AscendRunnerError, match="2, 3"):
        scene.start(0)
    assert 60.0 == scene.clock.now()


@pytest.mark.parametrize(("attempt", "is_required"), [(0, True), (0, False), (2, False)])
def test_differing_table_is_read_again(attempt: int, *, is_required: bool) -> None:
    """Before a start, a table that differs is read until it has changed, and the other nodes learn its hash."""
    scene = Scene(restarts=3, is_required=is_required)
    scene.send_at(1.0, Joined(), DIFFERENT)
    scene.send_at(40.0, Waiting(sentence=""), StartAll(attempt=2))

    assert attempt == scene.start(attempt)
    assert 40.0 == scene.clock.now()
    assert ["a table", "a new table"] == list(dict.fromkeys(local.table for local in scene.peers.told))


def test_stop_of_another_node_ends_the_preparation() -> None:
    """Any wait before an attempt ends when the job is stopped, or node 0 has given up."""
    stopped, given_up = Scene(restarts=3), Scene(restarts=3)
    stopped.send_at(0.0, StopAll(attempt=1, node=3, signum=SIGTERM))
    given_up.send_at(0.0, VerdictReached(JobVerdict(attempt=1, sentence="node 2 has not been ready", status=9)))
    for scene, error in ((stopped, StopRequestedError), (given_up, AscendRunnerError)):
        scene.nodes.prepare(1)
        scene.nodes.check()
        scene.clock.wait(0.0)

        with pytest.raises(error):
            scene.nodes.check()


def test_end_of_the_job_ends_the_wait_for_a_restart() -> None:
    """If node 0 gives up, the status is that of its verdict."""
    scene = Scene(restarts=3)
    scene.send_at(3.0, VerdictReached(JobVerdict(attempt=1, sentence="node 2 has not been ready", status=9)))

    with pytest.raises(AscendRunnerError, match="node 2 has not been ready") as caught:
        scene.start(1)
    assert 9 == caught.value.exit_status


def test_end_of_the_job_ends_the_preparation_of_an_attempt_that_was_stopped() -> None:
    """A node that still waits for its rank table does not go on with that."""
    scene = Scene(restarts=3)
    scene.nodes.prepare(1)
    scene.send(attrs.evolve(STOP, attempt=1), VerdictReached(JobVerdict(attempt=1, node=3, sentence="bad", status=9)))

    with pytest.raises(AscendRunnerError, match="no restart: bad"):
        scene.nodes.check()


def test_stop_signal_ends_the_wait_for_a_restart() -> None:
    """A stop signal ends every wait, whichever node has received it."""
    for scene in (Scene(restarts=3), Scene(restarts=3)):
        scene.clock.receive_at(SIGTERM, 2.0)
        with pytest.raises(StopRequestedError):
            scene.start(1)
    other = Scene(restarts=3)
    other.send_at(2.0, StopAll(attempt=1, node=3, signum=SIGTERM))

    with pytest.raises(StopRequestedError, match="on node 3"):
        other.start(1)


def test_refused_node_ends_with_125() -> None:
    """A node that cannot take part starts nothing, and stops what runs."""
    scene = Scene(restarts=3)
    scene.send_at(1.0, Refused(sentence="node 1 counts 3 nodes, node 0 counts 4"))

    with pytest.raises(AscendRunnerError, match="counts 3 nodes") as caught:
        scene.start(1)
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
    outcome = scene.nodes.await_end(Outcome(cause=None))

    assert status == outcome.status
    assert 100.0 == scene.clock.now()


@pytest.mark.parametrize(
    ("status", "restarts", "news"),
    [
        (143, 0, StopAll(attempt=0, node=1, signum=SIGTERM, status=143)),
        (130, 0, StopAll(attempt=0, node=3, signum=SIGINT, status=130)),
        (9, 0, STOP),
        (143, 1, STOP),
    ],
    ids=["own signal", "another signal", "failure", "restart"],
)
def test_stop_signal_that_something_else_has_overtaken(status: int, restarts: int, news: StopAll) -> None:
    """A node that a signal has stopped exits like the others if node 0 has heard of another end first, at once."""
    scene = Scene(restarts=restarts)
    scene.clock.stop_signum = SIGTERM
    verdict = JobVerdict(attempt=0, node=3, kind="own", sentence="bad", status=9, restarts=restarts > 0)
    scene.send(Joined())
    scene.send_at(1.0, news)
    scene.send_at(2.0, VerdictReached(verdict))
    outcome = scene.nodes.await_end(Outcome(cause=SignalReceived(SIGTERM)))

    assert status == outcome.status
    assert (2.0 if news is STOP else 1.0) == scene.clock.now()
    assert Stage.DEAD is scene.peers.told[-1].stage


@pytest.mark.parametrize("cause", [SignalReceived(SIGTERM), SignalReceived(SIGTERM, node=3)])
@pytest.mark.parametrize("is_between", [False, True])
def test_stopped_nodes_agree_on_the_node_with_the_signal(*, cause: SignalReceived, is_between: bool) -> None:
    """The report of every node names the one whose signal has stopped the job, also between two attempts."""
    scene = Scene(restarts=1)
    scene.clock.stop_signum = 0 if cause.node else SIGTERM
    scene.send(Joined())
    scene.send_at(1.0, StopAll(attempt=0, node=3, signum=SIGTERM, status=143))
    while cause.node and scene.clock.now() < 1.0:  # this node learns of the signal by the news
        scene.clock.wait(1.0)
    outcome = scene.nodes.stopped() if is_between else scene.nodes.await_end(Outcome(cause=cause))

    assert outcome.verdict
    assert (3, 143) == (outcome.verdict.node, outcome.status)
    assert "stopped by SIGTERM on node 3" == str(outcome.cause) == str(outcome.verdict)
    assert 1.0 == scene.clock.now()


@pytest.mark.parametrize(("is_joined", "seconds"), [(True, STOP_WORD), (False, 0.0)])
def test_stopped_node_does_not_wait_for_a_silent_node_0(*, is_joined: bool, seconds: float) -> None:
    """It waits for a moment if node 0 was ever heard, and exits with the status of its signal."""
    scene = Scene()
    scene.clock.stop_signum = SIGTERM
    if is_joined:
        scene.send(Joined())

    assert 143 == scene.nodes.await_end(Outcome(cause=SignalReceived(SIGTERM))).status
    assert seconds == scene.clock.now()


@pytest.mark.parametrize(("signals", "end"), [([SIGINT], 4.0), ([SIGTERM], 9.0), ([SIGTERM, SIGTERM], 5.0)])
def test_impatient_user_ends_the_last_waits(signals: list[int], end: float) -> None:
    """Ctrl-C or a second stop signal ends the wait for a verdict and for the last word; long ones are said."""
    for wait in (
        lambda scene: scene.nodes.confer(FAILED, Outcome(cause=EXITED)),
        lambda scene: (scene.nodes.leave(7), scene.nodes.close()),
    ):
        scene = Scene()

        def until(is_cut: Callable[[], bool], clock: Clock = scene.clock) -> float:
            while not is_cut() and clock.now() < 9.0:
                clock.wait(1.0)
            return clock.now()

        scene.peers.until = until
        for number, signum in enumerate(signals):
            scene.clock.receive_stop_at(signum, 4.0 + number)
        scene.send_at(9.0, VerdictReached(JobVerdict(attempt=0, kind="own", node=3, status=7)))
        wait(scene)

        assert end == scene.clock.now()
        assert ["waiting"] == [line.partition(" ")[0] for line in scene.shown if "Ctrl-C" in line]


def results(scene: Scene) -> list[tuple[str, str]]:
    """Return the results that this node has said, with the requests."""
    said = [(one.answered, one.answer) for one in scene.peers.told if one.answered]
    return list(dict.fromkeys(said))


def test_checkpoint_for_the_whole_job() -> None:
    """The ranks of this node are asked, and the result is said when they were; without ranks, it is refused."""
    scene = Scene()
    asked = CheckpointAsked(signum=SIGUSR1, reached=frozenset({0}), unreached=frozenset(), seconds=300.0)
    for request_id, came in (("a", asked), ("b", None)):
        scene.requests.is_running = True
        scene.send(Asked(request="checkpoint", request_id=request_id))
        assert scene.requests.take_checkpoint_request()
        scene.requests.answer(came)
    scene.requests.is_running = False
    scene.send(Asked(request="checkpoint", request_id="c"))

    assert [
        ("a", "all ranks were asked for a checkpoint"),
        ("b", "refused: the ranks are being stopped"),
        ("c", "refused: no rank is running, so no checkpoint can be requested"),
    ] == results(scene)


def test_limit_for_the_whole_job() -> None:
    """The time limit of this node is changed like by `ascend-job` here; nonsense is refused."""
    scene = Scene()
    for number, argument in enumerate(('{"seconds": 3600}', '{"by": 60}', '{"by": 1e99}', "[]", "{")):
        scene.send(Asked(request="limit", argument=argument, request_id=str(number)))

    assert 3660.0 == scene.requests.limit
    assert ["changed"] * 2 + ["refused"] * 3 == [result.partition(":")[0] for _id, result in results(scene)]


def test_stop_signal_to_all_nodes_is_one() -> None:
    """A node that was signaled itself has nothing to do for the signal to another node, but for a failure there."""
    for stop, count in ((StopAll(attempt=0, node=3, signum=SIGTERM), 0), (STOP, 1)):
        scene = Scene()
        scene.nodes.begin_attempt(0)
        scene.nodes.observe(State(grace=GRACE, phase=Phase.TERMINATING, cause=SignalReceived(SIGTERM)), 1.0)
        scene.send(stop)

        assert count == len(scene.requests.take_findings())


def test_stop_for_the_whole_job() -> None:
    """The signal is said before this runner receives it, so that it is one to all nodes, which no restart follows."""
    scene = Scene(restarts=3)
    scene.send(Asked(request="stop", request_id="a"))
    last = scene.peers.told[-1]

    assert (1, SIGTERM, "a") == (scene.clock.stops, last.signum, last.answered)


def test_unknown_request_is_refused() -> None:
    """A later version may ask for more."""
    scene = Scene()
    scene.send(Asked(request="dance", request_id="a"))

    assert [("a", "refused: unknown request 'dance'")] == results(scene)


def test_answers_of_all_nodes() -> None:
    """A request returns the results, and the nodes come in parts; a late answer to another request is not mistaken."""
    scene = Scene()
    rows = [NodeRecord(node=node) for node in range(3)]
    late, found = Answered(request="limit", results=(("0", "changed"),)), (("0-3", "done"),)
    answers: dict[str, tuple[News, ...]] = {
        "nodes": (late, NodesKnown(nodes=tuple(rows[:2]), is_last=False), NodesKnown(nodes=tuple(rows[2:]))),
        "checkpoint": (late, NodesKnown(), Answered(request="checkpoint", results=found)),
    }
    scene.peers.reply = lambda asked: scene.send(*answers[asked.request])

    assert "all 4 nodes: done" == scene.nodes.ask("checkpoint")
    assert rows == [*scene.nodes.rows()]


def test_checkpoint_is_for_all_nodes_or_none() -> None:
    """A node that has lost node 0 does not ask its own ranks: a save may wait for the ranks of all nodes."""
    scene = Scene()
    scene.peers.reply = lambda asked: scene.send(Answered(request=asked.request))
    before = scene.nodes.ask("checkpoint")
    scene.send(Joined())

    assert "" == before
    assert "" == scene.nodes.ask("limit")
    with pytest.raises(ValueError, match=r"^node 0 does not answer, so the other nodes cannot be asked; "):
        scene.nodes.ask("checkpoint")


def test_results_are_grouped() -> None:
    """The answer names the nodes with each result; where no node has carried out the request, it is refused."""
    found = of_all_nodes([("0-2", "done"), ("3, 5", ""), ("4", NOT_REACHED)])

    assert "nodes 0-2: done; nodes 3, 5: no answer; node 4: not reached" == found
    for result in ("refused: no rank is running", "", NOT_REACHED):
        with pytest.raises(ValueError, match=r"^nodes 0, 1: "):
            of_all_nodes([("0, 1", result), ("2", NOT_REACHED)])


def test_frozen_link_has_no_nodes() -> None:
    """Rows are missing then, and nothing waits for longer than half a second."""
    began = time.monotonic()

    assert () == Scene().nodes.rows()
    assert 0.5 <= time.monotonic() - began < LIMIT


def test_signal_for_a_checkpoint_is_passed_to_all_nodes() -> None:
    """It comes back as a request to this node; without node 0, the ranks of this node are asked, and that is said."""
    scene = Scene()
    scene.requests.is_running = True
    scene.peers.reply = lambda asked: scene.send(Answered(request=asked.request))

    assert scene.requests.ask_all_nodes()
    wait_until(scene.requests.take_checkpoint_request)
    assert [Asked(request="checkpoint")] == scene.peers.asked
    assert ["node 0 does not answer"] == [line.partition(";")[0] for line in scene.shown]


def test_without_a_link_nothing_is_passed_on() -> None:
    """Then this node is on its own."""
    scene = Scene()
    scene.peers.is_usable = False

    assert not scene.requests.ask_all_nodes()
    assert ("", ()) == (scene.nodes.ask("stop"), scene.nodes.rows())


def test_steps_are_said_once_a_second() -> None:
    """Heartbeats come up to ten times a second, and each message would wake the link process."""
    scene = Scene()
    for number in range(25):
        scene.nodes.note_step(100.0 + number / 10, number)
    scene.nodes.note_step(200.0, None)

    assert [0, 10, 20] == [one.step for one in scene.peers.told if one.step is not None]

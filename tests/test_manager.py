"""The manager's loop, on a fake node: every order of events in virtual time."""

from __future__ import annotations

import errno
from signal import SIGCONT, SIGHUP, SIGINT, SIGKILL, SIGTERM, SIGTSTP
from typing import Optional

import pytest

from ascend_runner import facts
from ascend_runner.errors import AscendRunnerError
from ascend_runner.facts import Fact, Survivor
from ascend_runner.manager import DRAIN_LIMIT, GIVEN_UP_LIMIT, SWEEP_LIMIT, Manager
from ascend_runner.supervision.events import Ending
from ascend_runner.supervision.outcome import AttemptOutcome, Hung, Interrupted, RankFailed, RankNotStarted
from tests.fakes import Behaviour, FakeNode, Recording, make_job

OK, FAILED = Ending(), Ending(exit_code=7)
STUBBORN = Behaviour(dies_of={SIGKILL: 0.0})
UNKILLABLE = Behaviour(dies_of={})


@pytest.fixture
def node() -> FakeNode:
    """Give a node."""
    return FakeNode()


@pytest.fixture
def recording() -> Recording:
    """Give an observer."""
    return Recording()


def exits(ending: Ending, after: float = 1.0) -> Behaviour:
    """Give a rank that ends by itself."""
    return Behaviour(exits=(after, ending))


def run(
    node: FakeNode, ranks: int, recording: Optional[Recording] = None, *, hang_timeout: Optional[float] = None
) -> AttemptOutcome:
    """Run a job of so many ranks on a node."""
    job = make_job(ranks, hang_timeout=hang_timeout)
    return Manager(job, node.node, [recording] if recording else []).run()


def kinds(recording: Recording) -> list[type[Fact]]:
    """Return the types of the facts in order."""
    return [type(fact) for fact in recording.facts]


# --- The stream of facts ----------------------------------------------------------------------------------------------


def test_facts_come_in_the_order_in_which_they_happen(node: FakeNode, recording: Recording) -> None:
    """A rank is started, exits, is reaped; then the output is complete, and the end of the job comes last."""
    node.processes.behaviours = {0: exits(OK, 1.0), 1: exits(OK, 2.0)}
    outcome = run(node, 2, recording)

    expected: list[type[Fact]] = [facts.JobStarting, facts.RankStarted, facts.RankStarted]
    expected += [facts.RankExited, facts.RankReaped] * 2
    expected += [facts.OutputComplete, facts.OutputComplete, facts.JobEnded]
    assert expected == kinds(recording)
    assert facts.RankExited(rank_id=1, ending=OK, at=2.0) in recording.facts
    assert facts.JobEnded(outcome, 2.0) == recording.facts[-1]
    assert outcome.status == 0


def test_teardown_is_one_fact_with_its_cause(node: FakeNode, recording: Recording) -> None:
    """However often ranks are signalled, the teardown starts once."""
    node.processes.behaviours = {0: exits(FAILED), 1: STUBBORN}
    run(node, 2, recording)

    started = [fact for fact in recording.facts if isinstance(fact, facts.TeardownStarted)]
    assert [facts.TeardownStarted(cause=RankFailed(0, FAILED), rank_ids=(1,), grace=15.0, at=1.0)] == started


# --- The order of simultaneous deaths ---------------------------------------------------------------------------------


@pytest.mark.parametrize("has_order", [True, False])
def test_evidence_decides_between_simultaneous_failures(node: FakeNode, *, has_order: bool) -> None:
    """Of ranks that fail in one wake-up, the most suspicious is the cause; evidence learns of the kernel's order."""
    node.processes.behaviours = {0: exits(Ending(exit_code=1)), 1: exits(FAILED), 2: exits(Ending(exit_code=2))}
    node.processes.has_order = has_order
    node.evidence.suspects = [1]
    outcome = run(node, 3)

    assert RankFailed(1, FAILED) == outcome.cause
    assert has_order == node.evidence.was_ordered


def test_single_failure_needs_no_evidence(node: FakeNode) -> None:
    """A rank that exits 0 at the same moment is no suspect."""
    node.processes.behaviours = {0: exits(OK), 1: exits(FAILED)}

    assert RankFailed(1, FAILED) == run(node, 2).cause
    assert node.evidence.was_ordered is None


def test_own_failure_precedes_a_signal_of_the_same_moment(node: FakeNode) -> None:
    """A rank that exits 7 failed by itself, even if SIGTERM arrives in the same wake-up, before it or after it."""
    node.processes.behaviours = {0: exits(FAILED)}
    node.clock.at(1.0, lambda: node.clock.receive(SIGTERM))

    assert RankFailed(0, FAILED) == run(node, 2).cause


@pytest.mark.parametrize(
    "ending", [Ending(signum=SIGTERM), Ending(signum=SIGKILL), Ending(exit_code=143), Ending(exit_code=137)]
)
def test_signal_precedes_a_death_that_it_may_have_caused(node: FakeNode, ending: Ending) -> None:
    """A signal to the whole container reaches ranks and runner: an interruption, not a failure."""
    node.processes.behaviours = {0: exits(ending)}
    node.clock.at(1.0, lambda: node.clock.receive(SIGTERM))

    assert Interrupted(SIGTERM) == run(node, 2).cause


def test_failure_that_a_signal_explains_is_an_interruption(node: FakeNode) -> None:
    """The last rank dies of SIGTERM, and the runner's own SIGTERM arrives just behind it."""
    node.processes.behaviours = {0: exits(Ending(signum=SIGTERM))}

    def when(fact: Fact) -> None:
        if isinstance(fact, facts.RankReaped):
            node.clock.receive(SIGTERM)

    assert Interrupted(SIGTERM) == run(node, 1, Recording(when)).cause


# --- Signals at any time ----------------------------------------------------------------------------------------------


def test_signal_between_two_spawns_stops_the_rest(node: FakeNode) -> None:
    """At most the rank whose start follows at once is still started; every started rank is stopped."""
    node.processes.when_spawned[0] = lambda: node.clock.receive(SIGTERM)
    outcome = run(node, 8)

    assert outcome.status == 143
    assert [0, 1] == node.processes.spawned
    assert [rank_id for rank_id in range(8) if outcome.ranks[rank_id].is_started] == [0, 1]


def test_signal_before_the_first_spawn_reaches_the_first_rank(node: FakeNode) -> None:
    """A signal that is pending when the job starts ends it with 143, with every started rank stopped."""
    node.clock.receive(SIGTERM)

    assert run(node, 8).status == 143
    assert {rank_id for _at, rank_id, _signum in node.processes.signalled} == set(node.processes.spawned)


def test_signal_while_the_runner_is_busy_stops_the_ranks(node: FakeNode) -> None:
    """A runner that is busy with an observer stops the ranks as soon as it looks."""

    def when(fact: Fact) -> None:
        if isinstance(fact, facts.RankStarted) and fact.rank_id == 1:
            node.clock.receive(SIGTERM)

    outcome = run(node, 2, Recording(when))

    assert Interrupted(SIGTERM) == outcome.cause
    assert [(0.0, 0, SIGTERM), (0.0, 1, SIGTERM)] == node.processes.signalled


@pytest.mark.parametrize("signum", [SIGTERM, SIGINT, SIGHUP])
@pytest.mark.parametrize(("ending", "status"), [(OK, 0), (FAILED, 7)])
def test_signal_after_the_last_rank_changes_no_status(
    node: FakeNode, recording: Recording, signum: int, ending: Ending, status: int
) -> None:
    """While the output is completed the job is over: its status stands, and observers get every fact."""
    node.processes.behaviours = {0: exits(ending)}
    node.output.when_finishing = lambda: node.clock.receive(signum)
    outcome = run(node, 1, recording)

    assert status == outcome.status
    assert [facts.OutputComplete, facts.JobEnded] == kinds(recording)[-2:]


def test_second_sigterm_kills_at_once(node: FakeNode) -> None:
    """The grace is for the patient: SIGKILL follows the second SIGTERM, not the end of the grace."""
    node.processes.behaviours = {0: STUBBORN, 1: STUBBORN}
    for moment in (2.0, 2.5):
        node.clock.at(moment, lambda: node.clock.receive(SIGTERM))
    outcome = run(node, 2)

    assert outcome.status == 143
    assert [(2.5, 0, SIGKILL), (2.5, 1, SIGKILL)] == node.processes.signalled[-2:]


def test_stubborn_rank_is_asked_once_and_killed_at_the_end_of_the_grace(node: FakeNode) -> None:
    """SIGTERM once at the failure, however often the ranks are looked at again, and SIGKILL after 15 s."""
    node.processes.behaviours = {0: exits(FAILED, 0.0), 1: STUBBORN}
    run(node, 2)

    assert [(0.0, 1, SIGTERM), (15.0, 1, SIGKILL)] == node.processes.signalled


def test_stragglers_have_the_grace_and_are_reaped_last(node: FakeNode, recording: Recording) -> None:
    """A leader that dies at once leaves its child the time to save; the rank is reaped when the child has ended."""
    node.processes.behaviours = {0: Behaviour(exits=(1.0, FAILED), dies_of={SIGTERM: 4.0}, has_child=True)}
    run(node, 1, recording)

    assert facts.RankExited(rank_id=0, ending=FAILED, at=1.0, has_stragglers=True) in recording.facts
    assert [facts.RankReaped, facts.OutputComplete, facts.JobEnded] == kinds(recording)[-3:]
    assert node.clock.now() == 5.0


# --- Starts that fail -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["spawn", "open"])
def test_rank_that_cannot_be_started_stops_the_others(node: FakeNode, where: str) -> None:
    """No process or no descriptor for rank 1: rank 0 is stopped, rank 2 is not started."""
    refusals = node.processes.spawn_errors if where == "spawn" else node.output.open_errors
    refusals[1] = OSError(errno.EAGAIN, "")
    outcome = run(node, 3)

    assert isinstance(outcome.cause, RankNotStarted)
    assert (1, 125) == (outcome.cause.rank_id, outcome.status)
    assert [0] == node.processes.spawned
    assert [(0.0, 0, SIGTERM)] == node.processes.signalled


# --- Hangs ------------------------------------------------------------------------------------------------------------


def test_silence_for_the_limit_is_a_hang(node: FakeNode, recording: Recording) -> None:
    """60 s after the last output the stacks of living ranks are found, and the job ends with 124."""
    node.processes.behaviours = {1: exits(OK, 10.0)}
    node.clock.at(50.0, lambda: node.output.write(0, b"step 1\n"))
    outcome = run(node, 2, recording, hang_timeout=60.0)

    assert Hung(60.0) == outcome.cause
    assert outcome.status == 124
    assert [0] == list(node.evidence.looked_at)
    assert facts.TeardownStarted(cause=Hung(60.0), rank_ids=(0,), grace=15.0, at=110.0) in recording.facts
    assert kinds(recording).index(facts.HangSeen) < kinds(recording).index(facts.TeardownStarted)


def test_ranks_that_are_being_stopped_do_not_hang(node: FakeNode, recording: Recording) -> None:
    """Silence during the grace is expected: no stacks are taken."""
    node.processes.behaviours = {0: exits(FAILED), 1: STUBBORN}
    outcome = run(node, 2, recording, hang_timeout=2.0)

    assert RankFailed(0, FAILED) == outcome.cause
    assert facts.HangSeen not in kinds(recording)


def test_failure_at_the_moment_of_a_hang_is_the_cause(node: FakeNode, recording: Recording) -> None:
    """Pending events are handled before stacks are taken."""
    node.processes.behaviours = {0: exits(FAILED, 60.0)}
    outcome = run(node, 2, recording, hang_timeout=60.0)

    assert RankFailed(0, FAILED) == outcome.cause
    assert facts.HangSeen not in kinds(recording)


def test_stopped_ranks_do_not_hang(node: FakeNode) -> None:
    """After Ctrl-Z nothing counts as a hang; the limit begins anew with SIGCONT."""
    node.clock.at(10.0, lambda: node.clock.receive(SIGTSTP))
    node.clock.at(500.0, lambda: node.clock.receive(SIGCONT))
    outcome = run(node, 1, hang_timeout=60.0)

    assert Hung(60.0) == outcome.cause
    assert node.clock.now() == 560.0


# --- Afterwards -------------------------------------------------------------------------------------------------------


def test_escaped_processes_are_killed_and_named(node: FakeNode, recording: Recording) -> None:
    """What has left its rank's session is asked, has the grace, and does not outlive the job, however that ended."""
    node.processes.behaviours = {0: exits(OK)}
    node.processes.escaped = {77: ("daemon", False)}
    outcome = run(node, 1, recording)

    assert outcome.status == 0
    assert facts.EscapedKilled({77: "daemon"}) in recording.facts
    assert facts.ProcessesSurvived not in kinds(recording)
    assert [(1.0, SIGTERM)] == node.processes.escaped_asked
    assert node.clock.now() == 16.0


def test_escaped_process_that_survives_is_given_up_in_time(node: FakeNode, recording: Recording) -> None:
    """The sweep is bounded, names the survivor, and expects no end of the output that it holds open."""
    node.processes.behaviours = {0: exits(OK)}
    node.processes.escaped = {77: ("stuck", True)}
    node.output.drain_seconds = 1000.0
    run(node, 1, recording)

    (complete,) = [fact for fact in recording.facts if isinstance(fact, facts.OutputComplete)]
    assert not complete.is_cut_off
    assert facts.ProcessesSurvived((Survivor(None, "77"),)) in recording.facts
    assert 16.0 + SWEEP_LIMIT == node.clock.now()
    assert [GIVEN_UP_LIMIT] == node.output.finish_limits


def test_unkillable_rank_is_given_up_in_time(node: FakeNode, recording: Recording) -> None:
    """5 s after SIGKILL the job goes on without the rank, names it, and hurries with the rest."""
    node.processes.behaviours = {0: UNKILLABLE}
    node.processes.escaped = {77: ("stuck", True)}
    for moment in (1.0, 1.0):
        node.clock.at(moment, lambda: node.clock.receive(SIGTERM))
    outcome = run(node, 1, recording)

    assert outcome.ranks[0].ending is None
    assert facts.ProcessesSurvived((Survivor(0, "1000"), Survivor(None, "77"))) in recording.facts
    assert 6.0 + GIVEN_UP_LIMIT == node.clock.now()


@pytest.mark.parametrize(("seconds", "is_cut_off"), [(0.0, False), (DRAIN_LIMIT, False), (DRAIN_LIMIT + 1, True)])
def test_drain_is_bounded(node: FakeNode, recording: Recording, seconds: float, *, is_cut_off: bool) -> None:
    """Output that is not read in time is reported as cut off, and the job ends all the same."""
    node.processes.behaviours = {0: exits(OK)}
    node.output.drain_seconds = seconds
    node.output.write(0, b"last line\n")
    outcome = run(node, 1, recording)

    (complete,) = [fact for fact in recording.facts if isinstance(fact, facts.OutputComplete)]
    assert outcome.status == 0
    assert is_cut_off == complete.is_cut_off
    assert b"last line\n" == complete.output.tail


def test_output_that_fails_is_an_error_after_all_have_ended(node: FakeNode, recording: Recording) -> None:
    """The reader of output asks the runner to stop when it dies: ranks are stopped first, then the error is raised."""
    node.output.failure = MemoryError("no room")
    node.clock.at(1.0, lambda: node.clock.receive(SIGTERM))

    with pytest.raises(AscendRunnerError, match="no room"):
        run(node, 2, recording)

    assert [(1.0, 0, SIGTERM), (1.0, 1, SIGTERM)] == node.processes.signalled
    assert {0, 1} == {fact.rank_id for fact in recording.facts if isinstance(fact, facts.RankReaped)}

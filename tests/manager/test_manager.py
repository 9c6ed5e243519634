"""The manager's loop, on a fake node: every order of events in virtual time."""

from __future__ import annotations

import errno
import functools
import os
import threading
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from signal import SIGCONT, SIGHUP, SIGINT, SIGKILL, SIGTERM, SIGTSTP, SIGUSR1
from types import SimpleNamespace
from typing import Any

import attrs
import pytest

from ascend_runner.diagnosis.flight_recorder import Question
from ascend_runner.errors import AscendRunnerError
from ascend_runner.guardian.signal_sets import ONE_SIGNAL
from ascend_runner.guardian.sweep import SWEEP_LIMIT
from ascend_runner.manager.manager import DRAIN_LIMIT, GIVEN_UP_LIMIT, Manager
from ascend_runner.manager.requests import RETRY_EVERY
from ascend_runner.plan.spec import Attempt
from ascend_runner.record.facts import (
    CheckpointAsked,
    CheckpointEnded,
    CheckpointPostponed,
    CheckpointRefused,
    EngineSeen,
    Escaped,
    Fact,
    HangSeen,
    LimitChanged,
    RankOutput,
    RankReaped,
    SignalsSent,
    Swept,
)
from ascend_runner.supervision.causes import (
    Ending,
    Exited,
    HangDetected,
    LimitReached,
    PeerFailed,
    Rule,
    SignalReceived,
    Slowdown,
    SpawnFailed,
    WatchAction,
)
from ascend_runner.supervision.events import Emptied, Spawned
from ascend_runner.supervision.job_machine import Policy
from ascend_runner.supervision.state import Phase, State
from ascend_runner.training.agreement import COPIES
from tests.fakes import LOGGED, Behaviour, FakeNode, Recording
from tests.helpers.plans import job_spec, rank_spec
from tests.helpers.waiting import wait_until

OK, FAILED = Ending(), Ending(exit_code=7)
STUBBORN = Behaviour(dies_of={SIGKILL: 0.0})
UNKILLABLE = Behaviour(dies_of={})


@pytest.fixture
def node() -> FakeNode:
    """Return a node."""
    return FakeNode()


@pytest.fixture
def recording() -> Recording:
    """Return an observer."""
    return Recording()


def exits(ending: Ending, after: float = 1.0) -> Behaviour:
    """Return a rank that ends by itself."""
    return Behaviour(exits=(after, ending))


def run(node: FakeNode, ranks: int, recording: Recording | None = None, **changes: object) -> State:
    """Run a job of so many ranks on a node, and return its last fact; `changes` are other values of its plan."""
    recording = recording or Recording()
    job = job_spec([rank_spec(rank_id) for rank_id in range(ranks)], **changes)
    Manager(Attempt(job), job.processes, node.node, [recording]).run()
    state = recording.facts[-1]
    assert isinstance(state, State)
    return state


def status(state: State) -> int:
    """Return the exit status of a job."""
    return state.cause.exit_status if state.cause else 0


def kinds(recording: Recording) -> list[Phase | type[Fact]]:
    """Return the types of the facts in order, and the phases in place of states."""
    return [fact.phase if isinstance(fact, State) else type(fact) for fact in recording.facts]


def teardown(recording: Recording) -> tuple[State, float]:
    """Return the state in which ranks are asked to stop, and when it began."""
    (found,) = [
        (fact, at) for fact, at in recording.timed if isinstance(fact, State) and fact.phase is Phase.TERMINATING
    ]
    return found


def timed_phases(recording: Recording) -> list[tuple[Phase, float]]:
    """Return the phases, and when they began."""
    return [(fact.phase, at) for fact, at in recording.timed if isinstance(fact, State)]


def test_attempt_that_another_node_has_stopped_starts_nothing(node: FakeNode, recording: Recording) -> None:
    """No rank is started if the stop has come before (law 2): the other nodes may not be ready for it."""
    for stop in (PeerFailed(attempt=0, sentence="node 3 failed", exit_status=9), SignalReceived(SIGTERM, node=3)):
        node.requests.pass_on(stop)

        assert stop == run(node, 2, recording).cause
    assert [Phase.DONE] * 2 == [kind for kind in kinds(recording) if isinstance(kind, Phase)]
    assert Spawned not in kinds(recording)


# --- Engines below ranks ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("since", "ends", "looks"),
    [
        (0.0, 100.0, [3.0]),
        (4.0, 100.0, [3.0, 30.0]),
        (90.0, 100.0, [3.0, 30.0]),
        (0.0, 2.0, [2.0]),
        (0.0, 0.0, [0.0]),
        (90.0, 95.0, [3.0, 30.0]),
    ],
)
def test_engine_is_reported_once(
    node: FakeNode, recording: Recording, since: float, ends: float, looks: list[float]
) -> None:
    """An engine below a rank is looked for twice, and when the first rank has failed before that."""
    node.processes.behaviours = {0: exits(FAILED, ends)}
    node.processes.engines = {1: ("torchrun", since)}
    run(node, 2, recording)

    assert looks == node.processes.engine_checks
    assert looks[-1:] * (since <= looks[-1]) == recording.times_of(EngineSeen)


def test_engine_is_not_looked_for_below_one_rank(node: FakeNode) -> None:
    """A single rank may run an engine: that is one way to run it once."""
    node.processes.behaviours = {0: exits(FAILED, 100.0)}
    run(node, 1)

    assert [] == node.processes.engine_checks


# --- The stream of facts ----------------------------------------------------------------------------------------------


def test_facts_come_in_the_order_in_which_they_happen(node: FakeNode, recording: Recording) -> None:
    """A rank is started, exits, is reaped; then the output is complete, and the end of the job comes last."""
    node.processes.behaviours = {0: exits(OK, 1.0), 1: exits(OK, 2.0)}
    state = run(node, 2, recording)

    expected = [Phase.STARTING, Spawned, Spawned, Phase.RUNNING, *[Exited, RankReaped] * 2]
    expected += [RankOutput, RankOutput, Phase.DONE]
    assert expected == kinds(recording)
    assert (Exited(1, OK), 2.0) in recording.timed
    assert (state, 2.0) == recording.timed[-1]
    assert state.cause is None


def test_start_of_a_rank_precedes_its_first_instruction(node: FakeNode, recording: Recording) -> None:
    """A rank has begun when its spawn does, not when that is over: it may have ended by then."""
    node.processes.behaviours = {0: exits(OK, 0.5), 1: exits(OK, 0.5)}
    node.processes.when_spawned[1] = lambda: node.clock.spend(2.0)
    run(node, 2, recording)

    assert [0.0, 0.0] == recording.times_of(Spawned)
    assert [2.0, 2.0] == recording.times_of(Exited)


def test_teardown_is_one_fact_with_its_cause(node: FakeNode, recording: Recording) -> None:
    """However often ranks are signalled, the teardown starts once."""
    node.processes.behaviours = {0: exits(FAILED), 1: STUBBORN}
    run(node, 2, recording)

    state, at = teardown(recording)
    assert (Exited(0, FAILED), frozenset({1}), 1.0) == (state.cause, state.alive, at)


def test_outputs_are_told_before_the_ranks_are_asked(node: FakeNode, recording: Recording) -> None:
    """Output that a rank writes because it is stopped is not evidence of the cause."""
    node.processes.behaviours = {0: exits(FAILED), 1: Behaviour(dies_of={SIGTERM: 1.0})}
    node.clock.at(0.5, lambda: node.output.write(1, b"step 7\n"))
    node.clock.at(1.5, lambda: node.output.write(1, b"SystemExit\n"))
    run(node, 2, recording)

    outputs = [fact.tail for fact in recording.of(RankOutput) if fact.rank_id == 1]
    assert [b"step 7\n", b"step 7\nSystemExit\n"] == outputs


# --- A rank that has only lost a peer ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "told_at", "asked_at"),
    [(b"a peer", 0.0, 1.0), (b"a peer", 1.25, 1.3), (b"a peer", 9.0, 1.5), (b"", 9.0, 1.0)],
)
def test_others_may_tell_the_cause_first(node: FakeNode, text: bytes, told_at: float, asked_at: float) -> None:
    """After a consequence the others are asked once one of them has told the cause, at the latest after 0.5 s.

    A rank that has printed nothing reports no peer, whatever else is known.
    """
    node.processes.behaviours = {0: exits(FAILED), 1: STUBBORN}
    node.output.write(0, text)
    node.evidence.open_until = told_at
    state = run(node, 2)

    assert asked_at == pytest.approx(node.processes.signalled[0][0])
    assert isinstance(state.cause, Exited)
    assert (0, FAILED) == (state.cause.rank_id, state.cause.ending)


@pytest.mark.parametrize(("grace", "asked_at"), [(60.0, 31.0), (15.0, 1.2)])
def test_report_of_hccl(node: FakeNode, grace: float, asked_at: float) -> None:
    """If HCCL is to report the cause, the others are asked up to 30 s later, if the grace is long enough for that."""
    node.processes.behaviours = {0: exits(FAILED), 1: exits(FAILED, 1.2), 2: STUBBORN}
    node.evidence.open_until = 99.0
    for rank_id in range(3):
        node.output.write(rank_id, b"EI0006")
    recording = Recording()
    state = run(node, 3, recording, grace=grace)

    assert asked_at == pytest.approx(node.processes.signalled[0][0])
    assert 1.0 + grace == pytest.approx(recording.times_of(RankReaped)[-1], abs=1.0)
    assert (0, True) == (state.cause and state.cause.rank_id, isinstance(state.cause, Exited))


# --- The order of simultaneous deaths ---------------------------------------------------------------------------------


@pytest.mark.parametrize("has_order", [True, False])
def test_evidence_decides_between_simultaneous_failures(node: FakeNode, *, has_order: bool) -> None:
    """Of ranks that fail in one wake-up, the most suspicious is the cause; evidence learns of the kernel's order."""
    node.processes.behaviours = {0: exits(Ending(exit_code=1)), 1: exits(FAILED), 2: exits(Ending(exit_code=2))}
    node.processes.has_order = has_order
    node.evidence.suspects = [1]
    state = run(node, 3)

    assert Exited(1, FAILED) == state.cause
    assert has_order == node.evidence.was_ordered


def test_single_failure_needs_no_evidence(node: FakeNode) -> None:
    """A rank that exits 0 at the same moment is no suspect."""
    node.processes.behaviours = {0: exits(OK), 1: exits(FAILED)}

    assert Exited(1, FAILED) == run(node, 2).cause
    assert node.evidence.was_ordered is None


def test_rank_that_fails_before_it_is_asked_to_stop_was_not_stopped(node: FakeNode) -> None:
    """It may fail while the first failure is looked into, so it is not among those that were sent the signal."""

    def when(fact: Fact) -> None:
        if isinstance(fact, State) and fact.phase is Phase.TERMINATING:
            node.processes.end(1, FAILED)

    node.processes.behaviours = {0: exits(FAILED)}
    recording = Recording(when)
    run(node, 3, recording)

    assert [SignalsSent({2: SIGTERM})] == recording.of(SignalsSent)


def test_own_failure_precedes_a_signal_of_the_same_moment(node: FakeNode) -> None:
    """A rank that exits 7 failed by itself, even if SIGTERM arrives in the same wake-up, before it or after it."""
    node.processes.behaviours = {0: exits(FAILED)}
    node.clock.receive_at(SIGTERM, 1.0)

    assert Exited(0, FAILED) == run(node, 2).cause


@pytest.mark.parametrize(
    "ending", [Ending(signum=SIGTERM), Ending(signum=SIGKILL), Ending(exit_code=143), Ending(exit_code=137)]
)
def test_signal_precedes_a_death_that_it_may_have_caused(node: FakeNode, ending: Ending) -> None:
    """A signal to the whole container reaches ranks and runner: an interruption, not a failure."""
    node.processes.behaviours = {0: exits(ending)}
    node.clock.receive_at(SIGTERM, 1.0)

    assert SignalReceived(SIGTERM) == run(node, 2).cause


def test_failure_that_a_signal_explains_is_an_interruption(node: FakeNode) -> None:
    """The last rank dies of SIGTERM, and the runner's own SIGTERM arrives just behind it."""
    node.processes.behaviours = {0: exits(Ending(signum=SIGTERM))}

    def when(fact: Fact) -> None:
        if isinstance(fact, RankReaped):
            node.clock.receive(SIGTERM)

    assert SignalReceived(SIGTERM) == run(node, 1, Recording(when)).cause


# --- Signals at any time ----------------------------------------------------------------------------------------------


def test_signal_between_two_spawns_stops_the_rest(node: FakeNode) -> None:
    """At most the rank whose start follows at once is still started; every started rank is stopped."""
    node.processes.when_spawned[0] = lambda: node.clock.receive(SIGTERM)
    state = run(node, 8)

    assert 143 == status(state)
    assert [0, 1] == node.processes.spawned
    assert {0, 1} == set(state.endings)


def test_signal_before_the_first_spawn_reaches_the_first_rank(node: FakeNode) -> None:
    """A signal that is pending when the job starts ends it with 143, with every started rank stopped."""
    node.clock.receive(SIGTERM)

    assert 143 == status(run(node, 8))
    assert {rank_id for _at, rank_id, _signum in node.processes.signalled} == set(node.processes.spawned)


def test_signal_while_the_runner_is_busy_stops_the_ranks(node: FakeNode) -> None:
    """A runner that is busy with an observer stops the ranks as soon as it reads the signal."""

    def when(fact: Fact) -> None:
        if isinstance(fact, Spawned) and fact.rank_id == 1:
            node.clock.receive(SIGTERM)

    state = run(node, 2, Recording(when))

    assert SignalReceived(SIGTERM) == state.cause
    assert [(0.0, 0, SIGTERM), (0.0, 1, SIGTERM)] == node.processes.signalled


@pytest.mark.parametrize("signum", [SIGTERM, SIGINT, SIGHUP])
@pytest.mark.parametrize(("ending", "expected"), [(OK, 0), (FAILED, 7)])
def test_signal_after_the_last_rank_changes_no_status(
    node: FakeNode, recording: Recording, signum: int, ending: Ending, expected: int
) -> None:
    """While the output is completed the job is over: its status stands, and observers get every fact."""
    node.processes.behaviours = {0: exits(ending)}
    node.output.when_finishing = lambda: node.clock.receive(signum)
    state = run(node, 1, recording)

    assert expected == status(state)
    assert [RankOutput, Phase.DONE] == kinds(recording)[-2:]


def test_second_sigterm_kills_at_once(node: FakeNode) -> None:
    """The grace is for the patient: SIGKILL follows the second SIGTERM, not the end of the grace."""
    node.processes.behaviours = {0: STUBBORN, 1: STUBBORN}
    node.clock.receive_at(SIGTERM, 2.0, 2.5)
    state = run(node, 2)

    assert 143 == status(state)
    assert [(2.5, 0, SIGKILL), (2.5, 1, SIGKILL)] == node.processes.signalled[-2:]


def test_signal_that_changes_nothing_is_a_fact(node: FakeNode, recording: Recording) -> None:
    """A SIGTERM while ranks are stopped because of a failure is told; one that begins to stop or kill is a phase."""
    node.processes.behaviours = {0: exits(FAILED, 1.0), 1: STUBBORN}
    node.clock.receive_at(SIGTERM, 2.0, 4.0)
    node.clock.receive_at(SIGCONT, 3.0)
    run(node, 2, recording)

    assert ([SignalReceived(SIGTERM)], [2.0]) == (recording.of(SignalReceived), recording.times_of(SignalReceived))
    assert [(Phase.KILLING, SIGTERM, 4.0)] == [
        (fact.phase, fact.killed_by, at)
        for fact, at in recording.timed
        if isinstance(fact, State) and fact.phase is Phase.KILLING
    ]


def test_stubborn_rank_is_asked_once_and_killed_at_the_end_of_the_grace(node: FakeNode) -> None:
    """SIGTERM once at the failure, however often the ranks are checked again, and SIGKILL after 15 s."""
    node.processes.behaviours = {0: exits(FAILED, 0.0), 1: STUBBORN}
    run(node, 2)

    assert [(0.0, 1, SIGTERM), (15.0, 1, SIGKILL)] == node.processes.signalled


def test_stragglers_have_the_grace_and_are_reaped_last(node: FakeNode, recording: Recording) -> None:
    """A leader that dies at once leaves its child the time to save; the rank is reaped when the child has ended."""
    node.processes.behaviours = {0: Behaviour(exits=(1.0, FAILED), dies_of={SIGTERM: 4.0}, has_child=True)}
    run(node, 1, recording)

    assert (Exited(0, FAILED, has_stragglers=True), 1.0) in recording.timed
    assert [Emptied, RankReaped, RankOutput, Phase.DONE] == kinds(recording)[-4:]
    assert 5.0 == node.clock.now()


# --- Starts that fail -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["spawn", "open"])
def test_rank_that_cannot_be_started_stops_the_others(node: FakeNode, where: str) -> None:
    """No process or no descriptor for rank 1: rank 0 is stopped, rank 2 is not started."""
    refusals = node.processes.spawn_errors if where == "spawn" else node.output.open_errors
    refusals[1] = OSError(errno.EAGAIN, "")
    state = run(node, 3)

    assert isinstance(state.cause, SpawnFailed)
    assert (1, 125) == (state.cause.rank_id, state.cause.exit_status)
    assert [0] == node.processes.spawned
    assert [(0.0, 0, SIGTERM)] == node.processes.signalled


# --- Hangs ------------------------------------------------------------------------------------------------------------


def test_silence_for_the_limit_is_a_hang(node: FakeNode, recording: Recording) -> None:
    """60 s after the last output the stacks of living ranks are found, and the job ends with 124."""
    node.processes.behaviours = {1: exits(OK, 10.0)}
    node.clock.at(50.0, lambda: node.output.write(0, b"step 1\n"))
    state = run(node, 2, recording, hang_timeout=60.0)

    assert HangDetected(60.0) == state.cause
    assert 124 == status(state)
    assert [0] == list(node.evidence.looked_at)
    assert 110.0 == teardown(recording)[1]
    first = kinds(recording).index(HangDetected)
    assert [HangDetected, HangSeen, Phase.TERMINATING] == kinds(recording)[first : first + 3]


def test_ranks_that_are_being_stopped_do_not_hang(node: FakeNode, recording: Recording) -> None:
    """Silence during the grace is expected: no stacks are taken."""
    node.processes.behaviours = {0: exits(FAILED), 1: STUBBORN}
    state = run(node, 2, recording, hang_timeout=2.0)

    assert Exited(0, FAILED) == state.cause
    assert HangSeen not in kinds(recording)


def test_failure_at_the_moment_of_a_hang_is_the_cause(node: FakeNode, recording: Recording) -> None:
    """Pending events are handled before stacks are taken."""
    node.processes.behaviours = {0: exits(FAILED, 60.0)}
    state = run(node, 2, recording, hang_timeout=60.0)

    assert Exited(0, FAILED) == state.cause
    assert HangSeen not in kinds(recording)


def test_stopped_ranks_do_not_hang(node: FakeNode) -> None:
    """Between Ctrl-Z and SIGCONT nothing counts as a hang; the limit starts over with the first check afterwards."""
    node.clock.receive_at(SIGTSTP, 10.0)
    node.clock.receive_at(SIGCONT, 500.0)
    state = run(node, 1, hang_timeout=60.0)

    assert HangDetected(60.0) == state.cause
    assert node.clock.now() == 504.0 + 60.0


def test_runner_that_was_held_itself_finds_no_hang(node: FakeNode) -> None:
    """If a check is late, guardian, runner and ranks were frozen alike: the limit starts over."""
    node.clock.late_by = 500.0
    state = run(node, 1, hang_timeout=60.0)

    assert HangDetected(60.0) == state.cause
    assert node.clock.now() == 506.0 + 60.0


def test_heartbeats_count_in_place_of_output(node: FakeNode) -> None:
    """A rank that has sent a heartbeat hangs without any, even if it goes on to print."""
    node.clock.at(30.0, lambda: node.heartbeats.send(0))
    node.clock.at(80.0, lambda: node.output.write(0, b"waiting for the other ranks\n"))
    state = run(node, 2, hang_timeout=60.0)

    assert HangDetected(60.0, has_heartbeats=True) == state.cause
    assert "no rank sent a heartbeat for 60 s (--hang-timeout)" == str(state.cause)
    assert 30.0 + 60.0 == node.clock.now()


def test_heartbeats_are_read_before_a_hang_is_found(node: FakeNode) -> None:
    """A heartbeat that still waits to be read at the end of the limit counts."""
    node.processes.behaviours = {0: exits(OK, 80.0)}
    node.clock.at(1.0, lambda: node.heartbeats.send(0))
    node.clock.at(60.0, lambda: node.heartbeats.unread_beats.append(0))

    assert 0 == status(run(node, 1, hang_timeout=60.0))


def test_active_ranks_are_not_searched_for_stopped_processes(node: FakeNode) -> None:
    """Only silence can have been a pause of the ranks, so only then their processes are checked."""
    node.processes.behaviours = {0: exits(OK, 100.0)}
    for moment in range(1, 95, 5):
        node.clock.at(float(moment), lambda: node.output.write(0, b"step\n"))
    run(node, 1, hang_timeout=60.0)

    assert 0 == node.processes.held_checks


def test_heartbeats_of_ended_ranks_do_not_count(node: FakeNode) -> None:
    """When all ranks that send heartbeats have ended, the output of the others counts again."""
    node.processes.behaviours = {0: exits(OK, 40.0), 1: exits(OK, 120.0)}
    node.clock.at(30.0, lambda: node.heartbeats.send(0))
    node.clock.at(80.0, lambda: node.output.write(1, b"step 1\n"))

    assert 0 == status(run(node, 2, hang_timeout=60.0))


def test_announced_pause_is_waited_for(node: FakeNode) -> None:
    """A rank may announce that it will be silent for longer than the limit."""
    node.heartbeats.announced_until = 500.0
    state = run(node, 1, hang_timeout=60.0)

    assert HangDetected(60.0) == state.cause
    assert 500.0 == node.clock.now()


def test_hang_that_only_warns(node: FakeNode, recording: Recording) -> None:
    """With --hang-action warn each silence is reported once, with the stacks, and the job goes on."""
    node.processes.behaviours = {0: exits(OK, 1000.0)}
    node.clock.at(500.0, lambda: node.output.write(0, b"step 1\n"))
    state = run(node, 1, recording, hang_timeout=60.0, hang_action=WatchAction.WARN)
    ends = [at for fact, at in recording.timed if isinstance(fact, HangDetected) and fact.is_over]

    assert 0 == status(state)
    assert [60.0, 504.0, 560.0] == recording.times_of(HangDetected)
    assert [60.0, 560.0] == recording.times_of(HangSeen)
    assert [504.0] == ends


@pytest.mark.parametrize(("was_asked", "expected"), [(False, [61.0, 61.0, 122.0]), (True, [61.0])])
def test_what_ranks_write_of_their_dumps(
    node: FakeNode, recording: Recording, *, was_asked: bool, expected: list[float]
) -> None:
    """A line that a rank writes because its flight recorder is asked does not end a hang, as any other line does."""
    node.processes.behaviours = {0: exits(OK, 300.0)}
    node.evidence.was_asked = was_asked

    def look() -> None:
        node.clock.spend(1.0)
        if node.clock.now() < 100.0:
            node.output.write(0, b"dumping hccl trace\n")

    node.evidence.when_looking = look
    run(node, 1, recording, hang_timeout=60.0, hang_action=WatchAction.WARN)

    assert expected == [at for fact, at in recording.timed if isinstance(fact, HangDetected)]


def test_recorders_are_asked_before_the_limit(node: FakeNode) -> None:
    """What they log about it is no sign of life, so that the limit is kept to the second."""
    node.output.write(0, b"step 1\nstep 2")
    node.evidence.when_asked = lambda: node.clock.at(51.0, lambda: node.output.write(0, LOGGED))
    state = run(node, 2, hang_timeout=60.0)

    assert HangDetected(60.0) == state.cause
    assert ([50.0], 60.0) == (node.evidence.asked_at, node.clock.now())


@pytest.mark.parametrize("output", [b"step 2\n", LOGGED[:-1], LOGGED + b"step 2\n"])
def test_sign_of_life_after_recorders_were_asked(output: bytes, node: FakeNode) -> None:
    """Any other output starts the limit over. As it may be due to the question, the next limit comes without one."""
    node.evidence.when_asked = lambda: node.output.write(1, output)
    state = run(node, 2, hang_timeout=60.0)

    assert HangDetected(60.0) == state.cause
    assert ([50.0], 110.0) == (node.evidence.asked_at, node.clock.now())


def test_slow_job_whose_recorders_are_asked(node: FakeNode) -> None:
    """A job that writes shortly before each limit is not ended; a dump that comes after that is no sign of life."""
    for number in range(1, 6):
        node.clock.at(55.0 * number, lambda: node.output.write(0, b"step\n"))
    node.evidence.when_asked = lambda: node.clock.at(node.clock.now() + 14.0, lambda: node.output.write(1, LOGGED))
    state = run(node, 2, hang_timeout=60.0)

    assert HangDetected(60.0) == state.cause
    assert ([50.0, 160.0, 270.0], 335.0) == (node.evidence.asked_at, node.clock.now())


def test_recorders_whose_disk_hangs(node: FakeNode, tmp_path: Path) -> None:
    """As long as a question has not ended, there is no other one, which might not end either."""
    responds = threading.Event()
    os.mkfifo(tmp_path / "pipe")
    pipe = os.open(tmp_path / "pipe", os.O_RDWR)
    node.evidence.question = Question({0: ((str(tmp_path / "pipe"), "dump"),)}, lambda: responds.wait() or True)
    node.evidence.question.start()
    for moment in (55.0, 100.0):
        node.clock.at(moment, lambda: node.output.write(0, b"step\n"))
    run(node, 2, hang_timeout=60.0)
    is_open = node.evidence.question.is_open
    responds.set()
    wait_until(lambda: not node.evidence.question.is_open)
    os.close(pipe)

    assert ([50.0], True) == (node.evidence.asked_at, is_open)


def test_peer_that_is_reported_after_recorders_were_asked(node: FakeNode) -> None:
    """What ranks have said before they went on does not count."""
    node.clock.at(52.0, lambda: node.output.write(0, b"step\n"))
    node.clock.at(55.0, lambda: node.peer_reports.report("HCCL reports that rank 1 is lost"))
    closed: list[bool] = []
    node.evidence.when_looking = lambda: closed.append(node.evidence.question.is_closed)
    run(node, 2, hang_timeout=60.0)

    assert ([50.0], [True]) == (node.evidence.asked_at, closed)


def test_heartbeat_after_recorders_were_asked(node: FakeNode) -> None:
    """The limit starts over."""
    node.heartbeats.send(0)
    node.evidence.when_asked = lambda: node.output.write(0, b"unknown\n")
    node.clock.at(55.0, lambda: node.heartbeats.send(0))
    state = run(node, 2, hang_timeout=60.0)

    assert HangDetected(60.0, has_heartbeats=True) == state.cause
    assert ([50.0], 115.0) == (node.evidence.asked_at, node.clock.now())


def test_recorders_of_a_hang_that_is_over(node: FakeNode) -> None:
    """If the job goes on and hangs again, they are asked again."""
    node.processes.behaviours = {0: exits(OK, 300.0)}
    node.evidence.when_asked = lambda: node.output.write(0, LOGGED)
    node.clock.at(100.0, lambda: node.output.write(0, b"step 2\n"))
    run(node, 1, hang_timeout=60.0, hang_action=WatchAction.WARN)

    assert [50.0, 150.0] == node.evidence.asked_at


@pytest.mark.parametrize("is_active", [False, True])
def test_end_of_a_job_that_hangs(node: FakeNode, recording: Recording, *, is_active: bool) -> None:
    """A hang is over if a rank was active after it, also if the job ends before the next check."""
    node.processes.behaviours = {0: exits(OK, 500.0)}
    node.heartbeats.send(0)
    if is_active:
        node.clock.at(499.0, lambda: node.heartbeats.send(0))
    run(node, 1, recording, hang_timeout=60.0, hang_action=WatchAction.WARN)

    assert is_active is any(fact.is_over for fact in recording.of(HangDetected))


def test_peer_that_hccl_reports_is_a_hang_at_once(node: FakeNode, recording: Recording) -> None:
    """A lost or stuck rank ends the job like a hang, without waiting for the limit; the stacks are found first."""
    node.clock.at(30.0, lambda: node.output.write(0, b"step 1\n"))
    node.clock.at(65.0, lambda: node.peer_reports.report("HCCL reports that rank 1 is lost"))
    state = run(node, 2, recording, hang_timeout=3600.0)

    assert HangDetected(35.0, peer="HCCL reports that rank 1 is lost") == state.cause
    assert "HCCL reports that rank 1 is lost; no rank wrote any output for 35 s" == str(state.cause)
    assert [65.0] == recording.times_of(HangSeen)


def test_peers_that_only_warn(node: FakeNode, recording: Recording) -> None:
    """With --hang-action warn each lost peer is reported, and the job goes on."""
    node.processes.behaviours = {0: exits(OK, 100.0)}
    node.clock.at(40.0, lambda: node.peer_reports.report("a"))
    node.clock.at(50.0, lambda: node.peer_reports.report("b"))
    state = run(node, 1, recording, hang_timeout=3600.0, hang_action=WatchAction.WARN)

    assert 0 == status(state)
    assert ["a", "b"] == [fact.peer for fact in recording.of(HangDetected)]


def test_failure_beside_a_reported_peer_is_the_cause(node: FakeNode) -> None:
    """Pending events are handled before a report of HCCL."""
    node.processes.behaviours = {0: exits(FAILED, 40.0)}
    node.clock.at(40.0, lambda: node.peer_reports.report("a"))
    state = run(node, 2, hang_timeout=3600.0)

    assert Exited(0, FAILED) == state.cause


def test_stacks_are_read_once_at_half_of_the_limit(node: FakeNode, recording: Recording) -> None:
    """They are read once in each silence, however long that took, and not reported; a hang is compared with them."""
    node.processes.behaviours = {0: exits(OK, 1000.0)}
    node.evidence.noting_takes = 20.0
    node.clock.at(55.0, lambda: node.output.write(0, b"step 1\n"))
    node.clock.at(500.0, lambda: node.output.write(0, b"step 2\n"))
    run(node, 1, recording, hang_timeout=60.0, hang_action=WatchAction.WARN)

    assert [30.0, 86.0, 535.0] == node.evidence.noted_at
    assert [86.0, 535.0] == node.evidence.compared_with
    assert [115.0, 560.0] == recording.times_of(HangSeen)


def test_stacks_of_another_silence_are_not_compared(node: FakeNode) -> None:
    """If the limit starts over after half of it, because the ranks were stopped, what was read before is forgotten."""
    node.clock.receive_at(SIGTSTP, 40.0)
    node.clock.receive_at(SIGCONT, 500.0)
    run(node, 1, hang_timeout=60.0)

    assert [30.0, 534.0] == node.evidence.noted_at
    assert [534.0] == node.evidence.compared_with


def test_limit_of_the_job_s_own_pace(node: FakeNode) -> None:
    """--hang-timeout auto gives an hour until the first output."""
    state = run(node, 1, hang_timeout="auto")

    assert HangDetected(3600.0) == state.cause


# --- Afterwards -------------------------------------------------------------------------------------------------------


def test_escaped_processes_are_killed_and_named(node: FakeNode, recording: Recording) -> None:
    """A process that has left its rank's session is asked, has the grace, and does not outlive the job."""
    node.processes.behaviours = {0: exits(OK)}
    node.processes.escaped = {77: ("daemon", False)}
    state = run(node, 1, recording)

    assert state.cause is None
    assert Swept(killed={77: "daemon"}, survivors=()) in recording.facts
    assert (1.0, SIGTERM) == node.processes.escaped_asked[0]
    assert ([Escaped(14.0)], [2.0]) == (recording.of(Escaped), recording.times_of(Escaped))
    assert 16.0 == node.clock.now()


def test_escaped_process_that_survives_is_given_up_in_time(node: FakeNode, recording: Recording) -> None:
    """The sweep is bounded, names the survivor, and expects no end of the output that it holds open."""
    node.processes.behaviours = {0: exits(OK)}
    node.processes.escaped = {77: ("stuck", True)}
    run(node, 1, recording)

    assert Swept(killed={77: "stuck"}, survivors=("77 (stuck)",)) in recording.facts
    assert 16.0 + SWEEP_LIMIT == node.clock.now()
    assert [GIVEN_UP_LIMIT] == node.output.finish_limits


def test_sweep_goes_on_while_others_appear(node: FakeNode, recording: Recording) -> None:
    """The limit counts from the last process that was not there before: chains of processes may need longer."""
    node.processes.behaviours = {0: exits(OK)}
    node.processes.escaped = {77: ("chain", True)}
    node.clock.at(20.0, lambda: node.processes.escaped.update({78: ("chain", True)}))
    node.clock.at(24.0, lambda: setattr(node.processes, "escaped", {}))
    run(node, 1, recording)

    assert Swept(killed={77: "chain", 78: "chain"}, survivors=()) in recording.facts


def test_second_stop_signal_ends_the_sweep_while_others_appear(node: FakeNode, recording: Recording) -> None:
    """The first signal ends the grace, the second one the sweep, although there is always another process."""
    node.processes.behaviours = {0: exits(OK)}
    node.processes.escaped = {77: ("chain", True)}
    for pid in range(1000):
        node.clock.at(float(pid), functools.partial(node.processes.escaped.update, {pid: ("chain", True)}))
    node.clock.receive_at(SIGTERM, 5.0, 8.0)
    run(node, 1, recording)

    assert 8.0 + GIVEN_UP_LIMIT == node.clock.now()
    assert [GIVEN_UP_LIMIT] == node.output.finish_limits


def test_unkillable_rank_is_given_up_in_time(node: FakeNode, recording: Recording) -> None:
    """5 s after SIGKILL the job goes on without the rank, names it, and hurries with the rest."""
    node.processes.behaviours = {0: UNKILLABLE}
    node.processes.escaped = {77: ("stuck", True)}
    node.clock.receive_at(SIGTERM, 1.0, 1.0)
    state = run(node, 1, recording)

    assert {} == state.endings
    assert Swept(killed={77: "stuck"}, survivors=("rank 0: 1000 (program)", "77 (stuck)")) in recording.facts
    assert 6.0 + GIVEN_UP_LIMIT == node.clock.now()


def test_rank_of_another_user_is_given_up_at_once(node: FakeNode, recording: Recording) -> None:
    """A process that may not be signalled, such as sudo(8), is reported when all others are dead."""
    node.processes.behaviours = {0: UNKILLABLE, 1: Behaviour(dies_of={SIGKILL: 2.0})}
    node.processes.refused = {0}
    node.clock.receive_at(SIGTERM, 1.0, 1.0)
    run(node, 2, recording)

    assert Swept(killed={}, survivors=("rank 0: 1000 (program)",)) in recording.facts
    assert 3.0 == node.clock.now()


@pytest.mark.parametrize(("before", "late", "is_cut"), [(0, 0, False), (0, 1, False), (0, 2, True), (1, 1, True)])
def test_second_stop_signal_cuts_the_drain(node: FakeNode, before: int, late: int, *, is_cut: bool) -> None:
    """SIGTERM and SIGINT count from the start of the job: the second one means that nothing is waited for."""
    node.processes.behaviours = {0: Behaviour(exits=None if before else (1.0, OK))}
    node.clock.receive_at(SIGTERM, *[0.5] * before)
    node.output.when_finishing = lambda: node.clock.receive(*[SIGINT] * late)
    run(node, 1)

    assert is_cut == node.output.was_cut


def test_drain_is_bounded(node: FakeNode, recording: Recording) -> None:
    """The last output is waited for within a limit, and then observed."""
    node.processes.behaviours = {0: exits(OK)}
    node.output.write(0, b"last line\n")
    state = run(node, 1, recording)

    (complete,) = recording.of(RankOutput)
    assert state.cause is None
    assert [DRAIN_LIMIT] == node.output.finish_limits
    assert b"last line\n" == complete.tail


def test_output_that_fails_is_an_error_after_all_have_ended(node: FakeNode, recording: Recording) -> None:
    """The reader of output asks the runner to stop when it dies: ranks are stopped first, then the error is raised."""
    node.output.failure = MemoryError("no room")
    node.clock.receive_at(SIGTERM, 1.0)

    with pytest.raises(AscendRunnerError, match="no room"):
        run(node, 2, recording)

    assert [(1.0, 0, SIGTERM), (1.0, 1, SIGTERM)] == node.processes.signalled
    assert {0, 1} == {fact.rank_id for fact in recording.of(RankReaped)}


# --- The time limit ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "changed_to", "ended_at"),
    [(60.0, None, 60.0), (None, 60.0, 60.0), (90.0, 60.0, 60.0), (60.0, 90.0, 90.0)],
)
def test_job_ends_at_its_time_limit(
    node: FakeNode, recording: Recording, limit: float | None, changed_to: float | None, ended_at: float
) -> None:
    """The ranks are asked to stop at the limit, whichever way it was changed."""
    node.requests.limit = limit
    if changed_to:
        node.clock.at(10.0, lambda: node.requests.set_limit(changed_to))
    state = run(node, 2, recording)

    assert LimitReached(changed_to or limit or 0.0) == state.cause
    assert 124 == status(state)
    assert ended_at == teardown(recording)[1]
    assert [changed_to] * bool(changed_to) == [fact.limit for fact in recording.of(LimitChanged)]


def test_limit_while_ranks_are_stopped_changes_nothing(node: FakeNode, recording: Recording) -> None:
    """A failure stays the cause, and the ranks keep their grace."""
    node.processes.behaviours = {0: exits(FAILED), 1: STUBBORN}
    node.requests.limit = 5.0
    state = run(node, 2, recording)

    assert (Exited(0, FAILED), 16.0) == (state.cause, node.clock.now())


# --- Slow training ----------------------------------------------------------------------------------------------------

SLOW = Slowdown(rule=Rule.DROP, rank_id=0, own=2.0, reference=1.0)


@pytest.mark.parametrize(
    ("action", "ended_at"), [(WatchAction.WARN, 100.0), (WatchAction.RESTART, 10.0), (WatchAction.STOP, 10.0)]
)
def test_slow_training(node: FakeNode, recording: Recording, action: WatchAction, ended_at: float) -> None:
    """It is reported, and ends the attempt if the user has chosen that."""
    node.processes.behaviours = {0: exits(OK, 100.0)}
    node.clock.at(10.0, lambda: node.requests.pass_on(SLOW))
    state = run(node, 1, recording, perf_action=action)

    assert (SLOW if ended_at == 10.0 else None, ended_at) == (state.cause, node.clock.now())
    assert SLOW in recording.facts


@pytest.mark.parametrize("action", WatchAction)
def test_training_that_is_no_longer_slow(node: FakeNode, recording: Recording, action: WatchAction) -> None:
    """That is reported, and ends nothing."""
    over = attrs.evolve(SLOW, is_over=True)
    node.processes.behaviours = {0: exits(OK, 100.0)}
    node.clock.at(10.0, lambda: node.requests.pass_on(over))

    assert run(node, 1, recording, perf_action=action).cause is None
    assert over in recording.facts


def test_ranks_that_are_stopped_are_not_slow(node: FakeNode, recording: Recording) -> None:
    """A finding that comes late is passed over."""
    node.processes.behaviours = {0: exits(FAILED, 10.0), 1: STUBBORN}
    node.clock.at(12.0, lambda: node.requests.pass_on(SLOW))
    state = run(node, 2, recording, perf_action=WatchAction.STOP)

    assert Exited(0, FAILED) == state.cause
    assert SLOW not in recording.facts


# --- Checkpoints ------------------------------------------------------------------------------------------------------

SAVER = Behaviour(notes={SIGUSR1})


def ended(recording: Recording) -> CheckpointEnded:
    """Return the only request for a checkpoint that has ended."""
    (found,) = recording.of(CheckpointEnded)
    return found


@pytest.mark.parametrize("is_signal", [True, False])
def test_request_for_a_checkpoint_changes_nothing_else(
    node: FakeNode, recording: Recording, *, is_signal: bool
) -> None:
    """By a signal or by another thread: the ranks are asked once, and go on when they have saved."""
    node.processes.behaviours = {0: attrs.evolve(SAVER, exits=(100.0, OK)), 1: attrs.evolve(SAVER, exits=(100.0, OK))}
    node.heartbeats.saving_ranks = {0, 1}
    node.clock.at(10.0, lambda: node.clock.receive(SIGUSR1) if is_signal else node.requests.ask_for_checkpoint())
    node.clock.at(30.0, lambda: node.heartbeats.save(0, step=7))
    node.clock.at(51.0, lambda: node.heartbeats.save(1, step=7))
    state = run(node, 2, recording)

    assert (None, 100.0) == (state.cause, node.clock.now())
    assert [(0, SIGUSR1), (1, SIGUSR1)] == node.processes.notified
    assert [] == node.processes.signalled
    phases = timed_phases(recording)
    assert [(Phase.CHECKPOINTING, 10.0), (Phase.RUNNING, 51.0)] == phases[2:4]
    assert (10.0, 41.0, {0: 7, 1: 7}, ()) == (
        ended(recording).asked_at,
        ended(recording).seconds,
        {rank_id: saved.step for rank_id, saved in ended(recording).saved.items()},
        ended(recording).missing,
    )


def test_signal_for_a_checkpoint_is_one_for_all_nodes(node: FakeNode, recording: Recording) -> None:
    """Where nodes are linked, the ranks are asked when the request comes back; a save in progress is not repeated."""
    passed_on: list[float] = []

    def ask_for_checkpoint() -> bool:
        passed_on.append(node.clock.now())
        return True

    others: Any = SimpleNamespace(ask_for_checkpoint=ask_for_checkpoint, is_linked=True)
    node.requests.others = others
    node.processes.behaviours = {0: attrs.evolve(SAVER, exits=(100.0, OK))}
    node.heartbeats.saving_ranks = {0}
    for moment in (10.0, 20.0):
        node.clock.receive_at(SIGUSR1, moment)
    node.clock.at(12.0, node.requests.ask_for_checkpoint)
    node.clock.at(30.0, lambda: node.heartbeats.save(0, step=7))
    run(node, 1, recording)

    assert [10.0] == passed_on
    assert (12.0, 18.0) == (ended(recording).asked_at, ended(recording).seconds)


def test_checkpoint_from_before_the_request_is_no_answer(node: FakeNode, recording: Recording) -> None:
    """The report may still wait to be read when the next checkpoint is asked for."""
    node.processes.behaviours = {0: attrs.evolve(SAVER, exits=(100.0, OK))}
    node.heartbeats.saving_ranks = {0}
    node.heartbeats.unread = [0]
    node.clock.receive_at(SIGUSR1, 10.0)
    node.clock.at(30.0, lambda: node.heartbeats.save(0, step=7))
    run(node, 1, recording)

    assert 7 == ended(recording).saved[0].step


def test_rank_that_was_reached_is_not_asked_again(node: FakeNode) -> None:
    """However long it takes to signal the ranks, each of them gets the signal once."""
    node.processes.behaviours = {0: attrs.evolve(SAVER, exits=(100.0, OK))}
    node.processes.notify_seconds = 2 * RETRY_EVERY
    node.clock.receive_at(SIGUSR1, 10.0)
    node.clock.at(30.0, lambda: node.heartbeats.save(0))
    run(node, 1)

    assert [(0, SIGUSR1)] == node.processes.notified


def saving_after(seconds: float, node: FakeNode) -> Callable[[Fact], None]:
    """Let ranks 0 and 1 save so long after they are asked."""

    def when(fact: Fact) -> None:
        for rank_id in (0, 1) if isinstance(fact, CheckpointAsked) else ():
            node.clock.at(node.clock.now() + seconds, functools.partial(node.heartbeats.save, rank_id))

    node.processes.behaviours = dict.fromkeys((0, 1), attrs.evolve(SAVER, exits=(100.0, OK)))
    node.heartbeats.saving_ranks = {0, 1}
    return when


@pytest.mark.parametrize("is_signal", [True, False])
def test_request_that_ranks_would_take_for_a_copy_is_postponed(node: FakeNode, *, is_signal: bool) -> None:
    """They would answer it with the checkpoint that they have saved; it is sent once when they no longer do."""
    recording, answers = Recording(saving_after(1.0, node)), []
    node.clock.receive_at(SIGUSR1, 10.0)
    for moment in (12.0, 13.0):
        if is_signal:
            node.clock.receive_at(SIGUSR1, moment)
        else:
            node.clock.at(moment, lambda: answers.append(node.requests.ask_for_checkpoint()))
    run(node, 2, recording)

    assert [10.0, 11.0 + COPIES] == recording.times_of(CheckpointAsked)
    postponed = [CheckpointPostponed(COPIES - 1.0), CheckpointPostponed(COPIES - 2.0)]
    assert postponed[:1] == recording.of(CheckpointPostponed)
    assert ([] if is_signal else postponed) == [answer.get_nowait() for answer in answers]


def test_stop_answers_a_request_that_was_postponed(node: FakeNode) -> None:
    """The ranks answer a stop with the checkpoint that they have just saved, and nobody asks them again."""
    recording = Recording(saving_after(1.0, node))
    node.clock.receive_at(SIGUSR1, 10.0, 12.0)
    node.clock.receive_at(SIGTERM, 13.0)
    run(node, 2, recording, checkpoint_grace=60.0)

    assert [10.0, 13.0] == recording.times_of(CheckpointAsked)


def test_copy_of_a_request_is_none(node: FakeNode) -> None:
    """Whoever signals every process of the job means one checkpoint, even if the ranks save at once."""
    recording = Recording(saving_after(ONE_SIGNAL / 4, node))
    node.clock.receive_at(SIGUSR1, 10.0, 10.0 + ONE_SIGNAL / 2)
    run(node, 2, recording)

    assert [10.0] == recording.times_of(CheckpointAsked)


@pytest.mark.parametrize(("notes", "reached"), [([], []), ([0], [0]), ([0, 1], [0, 1])])
def test_request_is_answered_with_the_ranks_that_were_asked(
    node: FakeNode, notes: list[int], reached: list[int]
) -> None:
    """Whoever has made it learns which ranks do not handle the signal."""
    node.processes.behaviours = {
        rank_id: Behaviour(exits=(100.0, OK), notes={SIGUSR1} if rank_id in notes else ()) for rank_id in (0, 1)
    }
    answers = []
    node.clock.at(10.0, lambda: answers.append(node.requests.ask_for_checkpoint()))
    run(node, 2)

    asked = answers[0].get_nowait()
    assert isinstance(asked, CheckpointAsked)
    assert (reached, {0, 1} - set(reached)) == (sorted(asked.reached), set(asked.unreached))


@pytest.mark.parametrize(("is_linked", "notified"), [(True, []), (False, [(0, SIGUSR1)])])
def test_refused_request_is_over_where_nodes_are_linked(
    node: FakeNode, notified: list[tuple[int, int]], *, is_linked: bool
) -> None:
    """A rank that handles the signal later is not asked, so that this node does not save while the others do not."""
    others: Any = SimpleNamespace(is_linked=is_linked)
    node.requests.others = others
    node.processes.behaviours = {0: exits(OK, 100.0)}
    node.clock.at(10.0, node.requests.ask_for_checkpoint)
    node.clock.at(20.0, lambda: node.processes.begin_to_note(0, SIGUSR1))
    run(node, 1)

    assert notified == node.processes.notified


def test_linked_rank_is_asked_late_before_the_time_limit(node: FakeNode) -> None:
    """Then all nodes are about to stop, and a rank that handles the signal late may still save."""
    others: Any = SimpleNamespace(is_linked=True)
    node.requests.others, node.requests.limit = others, 100.0
    node.clock.at(70.0, lambda: node.processes.begin_to_note(0, SIGUSR1))
    node.processes.behaviours = {0: exits(OK, 300.0)}
    run(node, 1, checkpoint_grace=60.0)

    assert [(0, SIGUSR1)] == node.processes.notified


def test_request_during_the_save_before_a_stop_is_answered(node: FakeNode) -> None:
    """No rank is asked again, and the answer names those that are saving."""
    node.processes.behaviours = {0: SAVER, 1: SAVER}
    node.clock.receive_at(SIGTERM, 1.0)
    answers = []
    node.clock.at(2.0, lambda: answers.append(node.requests.ask_for_checkpoint()))
    run(node, 2, checkpoint_grace=60.0)

    asked = answers[0].get_nowait()
    assert isinstance(asked, CheckpointAsked)
    assert {0, 1} == asked.reached
    assert [(0, SIGUSR1), (1, SIGUSR1)] == node.processes.notified


def test_request_that_comes_with_the_end_is_answered(node: FakeNode) -> None:
    """The ranks are stopped before they are asked, so the answer names none."""
    node.processes.behaviours = {0: exits(FAILED, 10.0), 1: SAVER}
    answers = []
    node.clock.at(10.0, lambda: answers.append(node.requests.ask_for_checkpoint()))
    run(node, 2)

    assert answers[0].get_nowait() is None
    assert [] == node.processes.notified


def test_request_that_no_rank_handles_names_all_of_them_at_its_end(node: FakeNode, recording: Recording) -> None:
    """The events then give the reason why there is no checkpoint."""
    node.processes.behaviours = {0: exits(OK, 1000.0), 1: exits(OK, 1000.0)}
    node.clock.receive_at(SIGUSR1, 10.0)
    run(node, 2, recording)

    assert ((0, 1), {}, ()) == (ended(recording).unasked, ended(recording).saved, ended(recording).missing)


@pytest.mark.parametrize("handlers", [(), (0,), (0, 1)])
def test_request_that_no_rank_will_answer_is_over_at_once(
    node: FakeNode, recording: Recording, handlers: tuple[int, ...]
) -> None:
    """Ranks that do not handle the signal, or never report what they save, run on, and so does the job."""
    node.processes.behaviours = {
        rank_id: Behaviour(exits=(1000.0, OK), notes={SIGUSR1} if rank_id in handlers else ()) for rank_id in (0, 1)
    }
    node.clock.receive_at(SIGUSR1, 10.0)
    run(node, 2, recording, checkpoint_grace=60.0)

    phases = timed_phases(recording)
    assert [(Phase.CHECKPOINTING, 10.0), (Phase.RUNNING, 10.0), (Phase.DONE, 1000.0)] == phases[2:]
    assert () == ended(recording).missing


@pytest.mark.parametrize("saves", [True, False])
def test_request_while_only_some_ranks_import(node: FakeNode, recording: Recording, *, saves: bool) -> None:
    """The others get it as soon as they handle it, whether or not those that were reached report; then they save."""
    node.processes.behaviours = {0: attrs.evolve(SAVER, exits=(100.0, OK)), 1: exits(OK, 100.0)}
    node.heartbeats.saving_ranks = {1}
    node.clock.receive_at(SIGUSR1, 10.0)
    node.clock.at(20.2, lambda: node.processes.begin_to_note(1, SIGUSR1))
    if saves:
        node.clock.at(30.0, lambda: node.heartbeats.save(1))
    run(node, 2, recording)

    assert [(0, SIGUSR1), (1, SIGUSR1)] == node.processes.notified
    requests = recording.of(CheckpointEnded)
    assert [[], [1]] == [sorted({*fact.saved, *fact.missing}) for fact in requests] if saves else [[], []]
    phases = timed_phases(recording)
    assert [(Phase.CHECKPOINTING, 20.5), (Phase.RUNNING, 30.0)][: 1 + saves] == phases[4 : 5 + saves]


def test_rank_that_imports_for_too_long_is_not_asked(node: FakeNode) -> None:
    """Whoever has made the request has stopped waiting for the checkpoint."""
    node.processes.behaviours = {0: exits(OK, 1000.0)}
    node.clock.receive_at(SIGUSR1, 10.0)
    node.clock.at(320.0, lambda: node.processes.begin_to_note(0, SIGUSR1))
    run(node, 1)

    assert [] == node.processes.notified


def test_rank_that_has_just_saved_is_not_asked_again(node: FakeNode) -> None:
    """It may save without having been reached, because another process of it was."""
    node.processes.behaviours = {0: attrs.evolve(SAVER, exits=(100.0, OK)), 1: exits(OK, 100.0)}
    node.heartbeats.saving_ranks = {0, 1}
    node.clock.receive_at(SIGUSR1, 10.0)
    node.clock.at(20.0, lambda: node.processes.begin_to_note(1, SIGUSR1))
    node.clock.at(20.0, lambda: node.heartbeats.save(1))
    run(node, 2)

    assert [(0, SIGUSR1)] == node.processes.notified


def test_request_needs_ranks(node: FakeNode, recording: Recording) -> None:
    """Before and after the ranks, and while they are stopped, requests for a checkpoint are refused."""
    node.processes.behaviours = {0: exits(FAILED, 10.0), 1: STUBBORN}
    seen = [(node.requests.is_running, node.requests.is_tearing_down)]
    for moment in (5.0, 15.0):
        node.clock.at(moment, lambda: seen.append((node.requests.is_running, node.requests.is_tearing_down)))
    node.clock.receive_at(SIGUSR1, 16.0)
    run(node, 2, recording)

    assert [(False, False), (True, False), (False, True)] == seen
    assert (False, False) == (node.requests.is_running, node.requests.is_tearing_down)
    assert [CheckpointRefused(SIGUSR1)] == recording.of(CheckpointRefused)


def test_rank_gets_the_signal_as_soon_as_it_handles_it(node: FakeNode, recording: Recording) -> None:
    """A rank that imports while a checkpoint is asked for is asked afterwards."""
    node.processes.behaviours = {0: exits(OK, 100.0)}
    node.clock.receive_at(SIGUSR1, 10.0)
    node.clock.at(20.2, lambda: node.processes.begin_to_note(0, SIGUSR1))
    run(node, 1, recording)

    assert [(0, SIGUSR1)] == node.processes.notified
    assert [(frozenset(), {0}), ({0}, frozenset())] == [
        (fact.reached, fact.unreached) for fact in recording.of(CheckpointAsked)
    ]
    assert [SignalsSent({0: SIGUSR1})] == recording.of(SignalsSent)


@pytest.mark.parametrize(("saved_at", "stopped_at"), [(5.0, 5.0), (None, 61.0)])
def test_stop_waits_for_the_checkpoint(
    node: FakeNode, recording: Recording, saved_at: float | None, stopped_at: float
) -> None:
    """SIGTERM asks for a checkpoint; the ranks are stopped when they have saved, or when the time is over."""
    node.processes.behaviours = {0: SAVER, 1: SAVER}
    node.clock.receive_at(SIGTERM, 1.0)
    node.clock.at(2.0, lambda: node.heartbeats.save(0))
    if saved_at:
        node.clock.at(saved_at, lambda: node.heartbeats.save(1))
    state = run(node, 2, recording, checkpoint_grace=60.0)

    assert SignalReceived(SIGTERM) == state.cause
    assert [(stopped_at, 0, SIGTERM), (stopped_at, 1, SIGTERM)] == node.processes.signalled
    assert (() if saved_at else (1,)) == ended(recording).missing
    assert ({} if saved_at else {1: 1001}) == node.evidence.looked_at
    assert node.evidence.looked_at_saving is not bool(saved_at)


def test_rank_that_fails_instead_of_saving_is_named(node: FakeNode, recording: Recording) -> None:
    """It can have been asked before a stop, of which no failure is the cause; one that had saved just ends."""
    node.processes.behaviours = dict.fromkeys((0, 1, 2), attrs.evolve(SAVER, exits=(3.0, FAILED)))
    node.heartbeats.saving_ranks = {0, 1}
    node.clock.receive_at(SIGTERM, 1.0)
    node.clock.at(2.0, lambda: node.heartbeats.save(1))
    state = run(node, 3, recording, checkpoint_grace=60.0)

    assert SignalReceived(SIGTERM) == state.cause
    found = ended(recording)
    assert ({0: FAILED}, {2: FAILED}, [1], ()) == (found.failed, found.failed_since, [*found.saved], found.missing)


@pytest.mark.parametrize("ending", [Ending(), Ending(128 + SIGUSR1), Ending(signum=SIGTERM)])
def test_end_of_a_rank_is_its_answer(node: FakeNode, recording: Recording, ending: Ending) -> None:
    """A rank that cannot report a checkpoint, and ends when it is asked for one, is neither missing nor failed."""
    node.processes.behaviours = dict.fromkeys((0, 1), attrs.evolve(SAVER, exits=(3.0, ending)))
    node.clock.receive_at(SIGTERM, 1.0)
    run(node, 2, recording, checkpoint_grace=60.0)

    assert ((), {}, {}) == (ended(recording).missing, ended(recording).failed, ended(recording).failed_since)


def test_second_signal_stops_and_third_one_kills(node: FakeNode) -> None:
    """A second SIGTERM ends the wait for the checkpoint, and a third one the grace."""
    node.processes.behaviours = {0: attrs.evolve(SAVER, dies_of={SIGKILL: 0.0})}
    node.clock.receive_at(SIGTERM, 1.0, 2.0, 3.0)
    state = run(node, 1, checkpoint_grace=60.0)

    assert SignalReceived(SIGTERM) == state.cause
    assert [(2.0, 0, SIGTERM), (3.0, 0, SIGKILL)] == node.processes.signalled


def test_stop_does_not_wait_if_no_rank_handles_the_signal(node: FakeNode) -> None:
    """Nothing would come of the wait, and a platform that stops the job has a limit of its own."""
    node.clock.receive_at(SIGTERM, 1.0)
    run(node, 2, checkpoint_grace=60.0)

    assert [(1.0, 0, SIGTERM), (1.0, 1, SIGTERM)] == node.processes.signalled


@pytest.mark.parametrize(
    ("saved_at", "extended_at", "stopped_at"),
    [(50.0, None, 50.0), (None, None, 100.0), (None, 30.0, 200.0)],
)
def test_checkpoint_before_the_limit(
    node: FakeNode, recording: Recording, saved_at: float | None, extended_at: float | None, stopped_at: float
) -> None:
    """The ranks are asked --checkpoint-grace before the limit, and later if the limit is extended before that."""
    node.processes.behaviours = {0: SAVER}
    node.requests.limit = 100.0
    if saved_at:
        node.clock.at(saved_at, lambda: node.heartbeats.save(0))
    if extended_at:
        node.clock.at(extended_at, lambda: node.requests.change_limit(100.0))
    state = run(node, 1, recording, checkpoint_grace=60.0)

    assert LimitReached(200.0 if extended_at else 100.0) == state.cause
    assert [(stopped_at, 0, SIGTERM)] == node.processes.signalled
    assert stopped_at - 60.0 == ended(recording).asked_at or saved_at
    assert [(0, SIGUSR1)] == node.processes.notified


def test_limit_is_final_once_the_ranks_were_asked(node: FakeNode) -> None:
    """A later one would be confirmed, and the job would end all the same when its ranks have saved."""

    def extend() -> None:
        with pytest.raises(ValueError, match="the job is already ending, so its time limit can no longer be changed"):
            node.requests.change_limit(100.0)

    node.processes.behaviours = {0: SAVER}
    node.requests.limit = 100.0
    node.clock.at(50.0, extend)
    node.clock.at(60.0, lambda: node.heartbeats.save(0))
    state = run(node, 1, checkpoint_grace=60.0)

    assert (LimitReached(100.0), 60.0) == (state.cause, node.clock.now())


@pytest.mark.parametrize(("max_restarts", "expected"), [(0, 100.0), (1, 200.0)])
def test_limit_during_a_teardown(node: FakeNode, max_restarts: int, expected: float) -> None:
    """It is refused instead of confirmed, unless another attempt may follow, for which it counts."""

    def extend() -> None:
        with nullcontext() if max_restarts else pytest.raises(ValueError, match="ending"):
            node.requests.change_limit(100.0)

    node.processes.behaviours = {0: exits(FAILED, 10.0), 1: Behaviour(dies_of={SIGTERM: 5.0})}
    node.requests.limit = 100.0
    node.clock.at(12.0, extend)
    run(node, 2, restarts=Policy(max_restarts=max_restarts))

    assert expected == node.requests.limit


@pytest.mark.parametrize(("action", "expected"), [(WatchAction.RESTART, 200.0), (WatchAction.STOP, 100.0)])
def test_limit_while_ranks_are_stopped_for_being_slow(node: FakeNode, action: WatchAction, expected: float) -> None:
    """It counts for the next attempt, but --perf-action stop allows none, whatever restarts are left."""

    def extend() -> None:
        with nullcontext() if action is WatchAction.RESTART else pytest.raises(ValueError, match="ending"):
            node.requests.change_limit(100.0)

    node.processes.behaviours = {0: Behaviour(dies_of={SIGTERM: 5.0})}
    node.requests.limit = 100.0
    node.clock.at(10.0, lambda: node.requests.pass_on(SLOW))
    node.clock.at(12.0, extend)
    run(node, 1, restarts=Policy(max_restarts=1), perf_action=action)

    assert expected == node.requests.limit


def test_limit_that_is_extended_in_time_ends_nothing(node: FakeNode) -> None:
    """Until a rank handles the signal, a request before the limit is no end."""
    node.processes.behaviours = {0: exits(OK, 150.0)}
    node.requests.limit = 100.0
    node.clock.at(90.0, lambda: node.requests.set_limit(None))

    assert run(node, 1, checkpoint_grace=60.0).cause is None


@pytest.mark.parametrize("limit", [None, 1000.0])
def test_limit_that_is_moved_before_any_rank_handles_the_signal(node: FakeNode, limit: float | None) -> None:
    """A rank that handles it later saves, and goes on."""
    node.requests.limit = 100.0
    node.clock.at(50.0, lambda: node.requests.set_limit(limit))
    node.clock.at(70.0, lambda: node.processes.begin_to_note(0, SIGUSR1))
    node.clock.at(75.0, lambda: node.heartbeats.save(0))
    node.processes.behaviours = {0: exits(OK, 300.0)}

    assert (None, 300.0) == (run(node, 1, checkpoint_grace=60.0).cause, node.clock.now())
    assert [(0, SIGUSR1)] == node.processes.notified


def test_rank_without_the_library_is_not_missed(node: FakeNode, recording: Recording) -> None:
    """Without a time for checkpoints nobody waits for the answer of a rank that cannot give one."""
    node.processes.behaviours = {0: attrs.evolve(SAVER, exits=(1000.0, OK)), 1: attrs.evolve(SAVER, exits=(1000.0, OK))}
    node.heartbeats.saving_ranks = {1}
    node.clock.receive_at(SIGUSR1, 10.0)
    run(node, 2, recording)

    assert ((1,), 300.0) == (ended(recording).missing, ended(recording).seconds)


def test_rank_that_fails_while_it_saves_is_the_cause(node: FakeNode, recording: Recording) -> None:
    """A checkpoint that nobody has asked for before a stop protects no rank from its own failure.

    It has failed to save; only the others have not reported.
    """
    node.processes.behaviours = {0: attrs.evolve(SAVER, exits=(20.0, FAILED)), 1: SAVER}
    node.heartbeats.saving_ranks = {0, 1}
    node.clock.receive_at(SIGUSR1, 10.0)
    state = run(node, 2, recording)

    assert Exited(0, FAILED) == state.cause
    assert [(20.0, 1, SIGTERM)] == node.processes.signalled
    assert ({0: FAILED}, (1,)) == (ended(recording).failed, ended(recording).missing)

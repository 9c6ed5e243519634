"""The laws of a job over its attempts, in every interleaving of 2 attempts of 2 ranks and in random histories of more.

`World` is an independent model of what can happen to a job: its ranks, and the stop signals that arrive. The machine
sees only events.
"""

from __future__ import annotations

from collections.abc import Iterator
from signal import SIGTERM

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascend_runner.supervision import job_machine
from ascend_runner.supervision.causes import Restart
from ascend_runner.supervision.job_machine import (
    EVENTS,
    TRANSITIONS,
    Action,
    AllStarted,
    AnyState,
    CheckpointBegun,
    CheckpointOver,
    DelayOver,
    Ended,
    Event,
    Expired,
    Failed,
    Job,
    JobState,
    Policy,
    Prepared,
    Released,
    RunnerFailed,
    StopRequested,
    TeardownBegun,
    Verdict,
)
from ascend_runner.supervision.state import Phase

RANKS = 2
STOPPED = 128 + SIGTERM
EXPIRED = 124


@attrs.frozen
class World:
    """The state of a job in the test: what the runner does, the ranks that live, and whether it was told to stop."""

    doing: Action | None = Action.PREPARE  # of the first attempt
    alive: int = 0
    to_start: int = 0
    has_failed: bool = False  # a rank of this attempt
    is_checkpointing: bool = False  # the ranks were asked for a checkpoint
    is_stopping: bool = False  # the ranks were asked to stop
    told: bool = False  # a stop signal has arrived
    is_expired: bool = False  # the time limit of the job is reached
    cause_is_signal: bool = False  # of the end of this attempt
    cause_is_limit: bool = False
    is_survived: bool = False  # a rank cannot be killed
    is_local: bool | None = True  # whether the cause of the end is on this node

    def possible(self) -> Iterator[tuple[World, tuple[Event, ...]]]:
        """Return everything that can happen next, with the world after it and the events that the runner makes of it.

        The runner notices a signal at once while nothing runs, and hands it to the machine at the end of an attempt
        otherwise.
        """
        if self.doing is Action.START:
            yield from self._in_an_attempt()
        elif self.doing is Action.PREPARE:
            yield attrs.evolve(self, doing=None), (Prepared(),)
            yield attrs.evolve(self, doing=None), (RunnerFailed(status=125),)
        elif self.doing is Action.WAIT:
            yield attrs.evolve(self, doing=None), (DelayOver(),)
        elif self.doing is Action.HOLD:
            yield attrs.evolve(self, doing=None), (Released(),)
        if self.doing in {Action.PREPARE, Action.WAIT, Action.HOLD}:
            yield attrs.evolve(self, doing=None, told=True), (StopRequested(signum=SIGTERM),)
        if self.doing in {Action.PREPARE, Action.WAIT}:
            yield attrs.evolve(self, doing=None, is_expired=True), (Expired(),)

    def _in_an_attempt(self) -> Iterator[tuple[World, tuple[Event, ...]]]:
        if not self.told:
            first = not self.has_failed
            stopping = attrs.evolve(
                self, told=True, to_start=0, is_stopping=True, cause_is_signal=first and not self.cause_is_limit
            )
            yield stopping, self._teardown()
        if not (self.is_expired or self.is_stopping):
            expired = attrs.evolve(self, is_expired=True, to_start=0, is_stopping=True, cause_is_limit=True)
            yield expired, self._teardown()
        if self.alive and not (self.to_start or self.is_stopping):
            event = CheckpointOver() if self.is_checkpointing else CheckpointBegun()
            yield attrs.evolve(self, is_checkpointing=not self.is_checkpointing), (event,)
        if self.to_start:
            started = attrs.evolve(self, to_start=self.to_start - 1, alive=self.alive + 1)
            yield started, () if started.to_start else (AllStarted(),)
            if not started.to_start:  # a checkpoint was asked for meanwhile
                yield attrs.evolve(started, is_checkpointing=True), (CheckpointBegun(),)
            failed = attrs.evolve(self, to_start=0, has_failed=True, is_stopping=True)
            yield failed, self._teardown()
        if self.alive:
            yield attrs.evolve(self, alive=self.alive - 1), ()
            if not self.is_stopping:
                failed = attrs.evolve(self, alive=self.alive - 1, to_start=0, has_failed=True, is_stopping=True)
                yield failed, self._teardown() if failed.alive else ()
        if not self.to_start and (not self.alive or self.is_stopping):
            yield from self._ends()

    def _teardown(self) -> tuple[Event, ...]:
        return () if self.is_stopping else (TeardownBegun(),)

    def _ends(self) -> Iterator[tuple[World, tuple[Event, ...]]]:
        """Return the ends of an attempt: of a failed one, for each class and progress."""
        over = attrs.evolve(self, doing=None, is_survived=self.alive > 0)
        if self.cause_is_signal:
            yield over, (Ended(status=STOPPED),)
        elif self.cause_is_limit:
            yield over, (Expired(),)
        elif not self.has_failed:
            yield over, (Ended(),)
        else:
            for restart in Restart:
                event = failed(restart, signum=SIGTERM if self.told else 0)
                for is_local in (True, False, None):
                    after = attrs.evolve(over, is_local=is_local)
                    yield after, (attrs.evolve(event, is_clear=not self.alive, is_local=is_local),)

    def told_to(self, actions: tuple[Action, ...]) -> World:
        """Return the world in which the runner does what it was asked."""
        if not actions:
            return self
        (action,) = actions
        assert self.doing is None, "one thing at a time"
        if action is Action.HOLD:
            assert self.has_failed, "law 5: a job is held that has not failed"
            assert self.is_local is not None, "law 5: a job is held where its cause may not be"
            assert not self.told, "law 5: a job is held after a stop signal"
            assert not self.is_expired, "law 5: a job is held after the time limit"
        if action is not Action.START:
            return attrs.evolve(self, doing=action)
        assert not self.alive, "law 1: an attempt starts while a rank of another one is alive"
        assert not self.told, "law 2: an attempt starts after a stop signal"
        assert not self.is_expired, "law 2: an attempt starts after the time limit"
        return World(doing=action, to_start=RANKS)


def failed(
    restart: Restart = Restart.TRANSIENT,
    *,
    status: int = 7,
    signum: int = 0,
    fingerprint: str = "ValueError at train.py:3",
    has_progressed: bool | None = False,
) -> Failed:
    """Return the end of an attempt that has failed."""
    return Failed(
        status=status,
        signum=signum,
        restart=restart,
        fingerprint=fingerprint,
        has_progressed=has_progressed,
    )


@pytest.mark.parametrize(("hold", "linger"), [(0.0, 0.0), (60.0, 0.0), (0.0, 30.0), (60.0, 30.0)])
def test_laws_in_every_interleaving(hold: float, linger: float) -> None:
    """Whatever happens to 2 attempts of 2 ranks, no law is broken, and the job comes to an end."""
    start = (Job(policy=Policy(max_restarts=1, hold=hold, linger=linger)), World())
    seen, to_do, ends = {start}, [start], set()
    while to_do:
        job, world = to_do.pop()
        nexts = list(world.possible())
        assert bool(nexts) is (not job.state.is_final), (job, world)
        for after, events in nexts:
            reached = follow(job, after, events)
            if reached not in seen:
                seen.add(reached)
                to_do.append(reached)
            if reached[0].state.is_final:
                ends.add((reached[0].state, reached[0].status, reached[0].attempt))

    assert {
        (JobState.SUCCEEDED, 0, 0),
        (JobState.SUCCEEDED, 0, 1),
        (JobState.FAILED, 7, 0),
        (JobState.FAILED, 7, 1),
        (JobState.FAILED, 125, 0),
        (JobState.FAILED, 125, 1),
        (JobState.STOPPED, STOPPED, 0),
        (JobState.STOPPED, STOPPED, 1),
        (JobState.EXPIRED, EXPIRED, 0),
        (JobState.EXPIRED, EXPIRED, 1),
    } == ends
    assert TRANSITIONS.keys() - {job.state for job, _world in seen} == (set() if hold or linger else {JobState.HOLDING})


def follow(job: Job, world: World, events: tuple[Event, ...]) -> tuple[Job, World]:
    """Pass events to the machine, and check what holds of every single transition."""
    for event in events:
        before = job
        job, actions = job_machine.transition(job, event)
        world = world.told_to(actions)
        assert (job.state is before.state) is (job == before), "a change of the state, and nothing but that, is told"
        assert before.attempt <= job.attempt <= before.policy.max_restarts
        assert (job.status is not None) is (job.state.is_final or job.state is JobState.HOLDING)
        if job.state is JobState.HOLDING:
            assert job.delay == (job.policy.hold if world.is_local else job.policy.linger) > 0.0, "law 5"
        if before.state is JobState.HOLDING:
            assert (JobState.FAILED, before.status, ()) == (job.state, job.status, actions), "law 5"
        if job.state is JobState.SUCCEEDED:
            assert not world.has_failed
        if world.told and job.state is JobState.FAILED and isinstance(event, Failed):
            assert job.verdict is not Verdict.RESTART
        if world.is_survived:
            assert job.status is not None, "law 1"
    return job, world


events = st.builds(
    failed,
    st.sampled_from(Restart),
    status=st.sampled_from((1, 7, 139)),
    fingerprint=st.sampled_from("ab"),
    has_progressed=st.sampled_from((True, False, None)),
)
policies = st.builds(
    Policy,
    max_restarts=st.integers(0, 8),
    always=st.sampled_from((frozenset(), frozenset({139}))),
    never=st.sampled_from((frozenset(), frozenset({1}))),
    delay=st.sampled_from((None, 0.0, 5.0)),
)


def play(policy: Policy, *ends: Failed) -> Job:
    """Let attempts end one after the other, until there are no more or the job is over."""
    job = Job(policy=policy)
    for end in ends:
        job, actions = job_machine.transition(job, Prepared())
        assert (Action.START,) == actions
        job, actions = job_machine.transition(job, end)
        if job.state.is_final:
            assert () == actions
            return job
        assert (Action.WAIT,) == actions
        job, actions = job_machine.transition(job, DelayOver())
        assert (Action.PREPARE,) == actions
    return job


@given(policies, st.lists(events, min_size=12, max_size=12))
def test_restarts_are_limited_in_random_histories(policy: Policy, ends: list[Failed]) -> None:
    """No history of failures has more restarts than its limits permit, counted here by hand."""
    job = play(policy, *ends)
    made = ends[: job.attempt + 1]
    in_a_row = 1
    for index, end in enumerate(made[:-1]):  # those that were followed by a restart
        restart = Restart.TRANSIENT if end.status in policy.always else end.restart
        limit = {Restart.CONFIRM: 1, Restart.TRANSIENT: job_machine.MOST_SAME_FAILURES}.get(restart, 0)
        is_same = index > 0 and end.fingerprint == made[index - 1].fingerprint
        if not is_same or end.has_progressed:
            in_a_row = 1
        elif end.has_progressed is False:
            in_a_row += 1
        assert in_a_row <= limit
        assert end.status not in policy.never

    assert JobState.FAILED is job.state
    assert job.attempt <= policy.max_restarts
    assert made[-1].status == job.status


@pytest.mark.parametrize(
    ("restart", "expected", "verdict"),
    [
        (Restart.NEVER, 0, Verdict.POINTLESS),
        (Restart.EXCLUDED, 0, Verdict.EXCLUDED),
        (Restart.CONFIRM, 1, Verdict.SAME_FAILURE),
        (Restart.TRANSIENT, 3, Verdict.SAME_FAILURE),
    ],
)
def test_restarts_after_the_same_failure(restart: Restart, expected: int, verdict: Verdict) -> None:
    """The class of a failure decides how often a job is restarted after it in a row."""
    job = play(Policy(max_restarts=9), *[failed(restart)] * 10)

    assert (expected, verdict) == (job.attempt, job.verdict)


def test_progress_begins_the_count_anew() -> None:
    """A job that fails the same way each time, but gets further, is restarted as often as it may be."""
    job = play(Policy(max_restarts=9), *[failed(Restart.CONFIRM, has_progressed=True)] * 10)

    assert (9, Verdict.USED_UP) == (job.attempt, job.verdict)


def test_unknown_progress_is_never_no_progress() -> None:
    """A failure of which it is unknown whether the training got further is not counted, nor does it end the count."""
    unknown, vain = failed(has_progressed=None), failed()
    job = play(Policy(max_restarts=9), vain, unknown, unknown, vain, unknown, vain, vain)

    assert (6, Verdict.SAME_FAILURE, 4) == (job.attempt, job.verdict, job.same_failures)


def test_other_failures_begin_the_count_anew() -> None:
    """Failures in turn are restarted as often as the job may be."""
    job = play(Policy(max_restarts=9), *[failed(fingerprint="a"), failed(fingerprint="b")] * 5)

    assert (9, Verdict.USED_UP) == (job.attempt, job.verdict)


@pytest.mark.parametrize(
    ("policy", "restart", "expected"),
    [
        (Policy(max_restarts=2, always=frozenset({7})), Restart.NEVER, 2),
        (Policy(max_restarts=2, never=frozenset({7})), Restart.TRANSIENT, 0),
        (Policy(max_restarts=2, always=frozenset({8}), never=frozenset({8})), Restart.TRANSIENT, 2),
    ],
)
def test_lists_of_statuses_overrule_the_class(policy: Policy, restart: Restart, expected: int) -> None:
    """--restart-on and --no-restart-on decide before the class does."""
    assert expected == play(policy, *[failed(restart)] * 3).attempt


@pytest.mark.parametrize(
    ("delay", "progress", "expected"),
    [
        (None, (False,) * 9, [0, 10, 20, 40, 80, 160, 300, 300]),
        (None, (False, False, True, False, False), [0, 10, 0, 10]),
        (2.5, (False, False, True), [2.5, 2.5]),
    ],
)
def test_delays(delay: float | None, progress: tuple[bool, ...], expected: list[float]) -> None:
    """The first restart is immediate, also after progress; each further one waits longer, up to a limit."""
    policy = Policy(max_restarts=20, delay=delay)
    job, delays = Job(policy=policy), []
    for number, has_progressed in enumerate(progress[:-1]):
        different = str(number)  # the same failure would not be retried as often
        for event in (Prepared(), failed(has_progressed=has_progressed, fingerprint=different)):
            job, _actions = job_machine.transition(job, event)
        delays.append(job.delay)
        job, _actions = job_machine.transition(job, DelayOver())

    assert expected == delays


def test_stop_signal_prevents_only_another_attempt() -> None:
    """A signal during the teardown after a failure stops a job that would be restarted; another one has failed."""
    policy = Policy(max_restarts=1)
    stopped = play(policy, failed(signum=SIGTERM))
    failure = play(policy, failed(Restart.NEVER, signum=SIGTERM))

    assert (JobState.STOPPED, STOPPED, Verdict.STOPPED) == (stopped.state, stopped.status, stopped.verdict)
    assert (JobState.FAILED, 7, Verdict.POINTLESS) == (failure.state, failure.status, failure.verdict)


@pytest.mark.parametrize(
    ("restart", "delay", "time_left", "expected"),
    [
        (Restart.TRANSIENT, 60.0, 60.0, (JobState.EXPIRED, EXPIRED, Verdict.NO_TIME)),
        (Restart.TRANSIENT, 0.0, -1.0, (JobState.EXPIRED, EXPIRED, Verdict.NO_TIME)),
        (Restart.TRANSIENT, 60.0, 60.5, (JobState.RESTARTING, None, Verdict.RESTART)),
        (Restart.TRANSIENT, 60.0, None, (JobState.RESTARTING, None, Verdict.RESTART)),
        (Restart.NEVER, 60.0, 10.0, (JobState.FAILED, 7, Verdict.POINTLESS)),
    ],
)
def test_restart_that_would_come_after_the_limit(
    restart: Restart, delay: float, time_left: float | None, expected: tuple[JobState, int | None, Verdict]
) -> None:
    """The limit ends a job at once if it comes before the next attempt; one that is not restarted has failed."""
    job = Job(policy=Policy(max_restarts=1, delay=delay))
    for event in (Prepared(), attrs.evolve(failed(restart), time_left=time_left)):
        job, _actions = job_machine.transition(job, event)

    assert expected == (job.state, job.status, job.verdict)


@pytest.mark.parametrize(
    ("policy", "ends", "expected"),
    [
        (Policy(), [failed(Restart.TRANSIENT)], 75),
        (Policy(), [failed(Restart.CONFIRM)], 75),
        (Policy(), [failed(Restart.NEVER)], 93),
        (Policy(), [failed(Restart.TRANSIENT, status=139)], 75),
        (Policy(always=frozenset({7})), [failed(Restart.NEVER)], 75),
        (Policy(never=frozenset({7})), [failed(Restart.TRANSIENT)], 93),
        (Policy(max_restarts=3), [failed(Restart.CONFIRM)] * 2, 93),
        (Policy(max_restarts=1), [failed(Restart.CONFIRM, has_progressed=True)] * 2, 75),
        (Policy(max_restarts=9), [failed(Restart.TRANSIENT)] * 4, 75),
        (Policy(max_restarts=9), [failed(Restart.TRANSIENT), failed(Restart.NEVER)], 93),
    ],
)
def test_exit_verdict(policy: Policy, ends: list[Failed], expected: int) -> None:
    """The last failure decides: only one that would come again, by its class or because it did, is hopeless."""
    job = play(attrs.evolve(policy, gives_verdict=True), *ends)

    assert (expected, ends[-1].status, len(ends) - 1) == (job.exit_verdict, job.status, job.attempt)
    assert play(policy, *ends).exit_verdict is None


@pytest.mark.parametrize("status", [124, 125, 126, 127])
def test_exit_statuses_of_the_runner_stay(status: int) -> None:
    """A hang, an error of the runner and a command that cannot be started have statuses of their own."""
    job = play(Policy(gives_verdict=True), failed(Restart.NEVER, status=status))

    assert (None, status) == (job.exit_verdict, job.status)


def test_stopped_job_has_no_exit_verdict() -> None:
    """A stop signal that prevents a restart gives the exit status."""
    job = play(Policy(max_restarts=1, gives_verdict=True), failed(signum=SIGTERM))

    assert (None, STOPPED) == (job.exit_verdict, job.status)


@pytest.mark.parametrize(
    ("decision", "max_restarts", "expected"),
    [
        (Verdict.RESTART, 1, (JobState.RESTARTING, Verdict.RESTART, 30.0)),
        (Verdict.RESTART, 0, (JobState.FAILED, Verdict.NOT_WANTED, 0.0)),
        (Verdict.NO_LINK, 1, (JobState.FAILED, Verdict.NO_LINK, 0.0)),
        (Verdict.POINTLESS, 1, (JobState.FAILED, Verdict.POINTLESS, 0.0)),
    ],
)
def test_decision_of_all_nodes_replaces_that_of_one(
    decision: Verdict, max_restarts: int, expected: tuple[JobState, Verdict, float]
) -> None:
    """What the nodes have decided counts, with its delay, but not beyond the limit of this node."""
    end = attrs.evolve(failed(Restart.TRANSIENT), decision=decision, delay=30.0)
    job, _actions = job_machine.transition(Job(policy=Policy(max_restarts=max_restarts)), Prepared())
    job, _actions = job_machine.transition(job, end)

    assert expected == (job.state, job.verdict, job.delay)


def test_nothing_starts_beside_a_survivor() -> None:
    """While a process of an attempt is alive, there is no other one."""
    job = play(Policy(max_restarts=1), attrs.evolve(failed(), is_clear=False))

    assert (JobState.FAILED, Verdict.NOT_CLEAR) == (job.state, job.verdict)


def test_job_is_held_after_its_last_attempt_only() -> None:
    """A failure that another attempt follows is not held; the one that nothing follows is, with its exit status."""
    job, attempts = Job(policy=Policy(max_restarts=1, hold=60.0)), []
    for event in (
        Prepared(),
        failed(),
        DelayOver(),
        Prepared(),
        failed(),
    ):
        job, actions = job_machine.transition(job, event)
        attempts += [(job.state, actions)] if isinstance(event, Failed) else []

    assert [(JobState.RESTARTING, (Action.WAIT,)), (JobState.HOLDING, (Action.HOLD,))] == attempts
    assert 7 == job.status


def test_every_state_has_a_row() -> None:
    """A job has its own states, and those phases of an attempt that people see."""
    phases = {Phase.STARTING, Phase.RUNNING, Phase.CHECKPOINTING, Phase.TERMINATING}

    assert {*JobState, *phases} == TRANSITIONS.keys()


ONE_OF_EACH: tuple[Event, ...] = (
    *(Prepared(), AllStarted(), CheckpointBegun(), CheckpointOver(), TeardownBegun(), Ended(1), failed()),
    *(DelayOver(), StopRequested(SIGTERM), Expired(), Released(), RunnerFailed()),
)


@pytest.mark.parametrize("state", TRANSITIONS)
def test_table_is_total(state: AnyState) -> None:
    """Every state has an entry for every kind of event, and none leads out of a final state."""
    assert {*EVENTS} == {*map(type, ONE_OF_EACH)} == TRANSITIONS[state].keys()

    if state.is_final:
        job = Job(policy=Policy(max_restarts=1), state=state, status=0)
        assert {(job, ())} == {job_machine.transition(job, event) for event in ONE_OF_EACH}

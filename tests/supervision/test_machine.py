"""The laws of supervision, checked in every interleaving for up to four ranks and in random histories beyond.

`World` is an independent model of what the kernel can do next. It knows who lives; the machine is only told.
"""

from __future__ import annotations

from signal import SIGCONT, SIGINT, SIGKILL, SIGSTOP, SIGTERM, SIGTSTP, SIGUSR1
from typing import TYPE_CHECKING, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ascend_runner.supervision import machine
from ascend_runner.supervision.actions import SetDeadline, SignalGroup, Spawn
from ascend_runner.supervision.events import (
    DeadlineReached,
    Emptied,
    Ending,
    Event,
    Exited,
    HangDetected,
    SignalReceived,
    Spawned,
    SpawnFailed,
)
from ascend_runner.supervision.machine import PHASES, TRANSITIONS, State
from ascend_runner.supervision.outcome import Cause, Hung, Interrupted, Outcome, RankFailed, RankNotStarted, RankOutcome

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ascend_runner.supervision.actions import Action

GRACE = 15.0
OK, FAILED, STOPPED = Ending(), Ending(exit_code=7), Ending(signum=SIGTERM)
MOST_SIGNALS = 2


class World(NamedTuple):
    """Who lives, whom a spawn is under way for, and the cause that an onlooker would name."""

    spawning: int | None = None
    leaders: frozenset[int] = frozenset()
    stragglers: frozenset[int] = frozenset()
    has_deadline: bool = False
    deadlines: int = 0  # that were reached; one is as good as many
    signals: int = 0
    is_hung: bool = False
    cause: Cause | None = None

    @property
    def alive(self) -> frozenset[int]:
        """The ranks of which anybody lives."""
        return self.leaders | self.stragglers

    def possible(self) -> Iterator[Event]:
        """Everything that can happen next."""
        if self.spawning is not None:
            yield Spawned(self.spawning)
            yield SpawnFailed(self.spawning, "no memory", 125)
        for rank_id in sorted(self.leaders):
            for ending in (OK, (FAILED, STOPPED)[rank_id % 2]):
                yield Exited(rank_id, ending)
                yield Exited(rank_id, ending, has_stragglers=True)
        for rank_id in sorted(self.stragglers):
            yield Emptied(rank_id)
        if self.has_deadline:
            yield DeadlineReached()
        if not self.is_hung:
            yield HangDetected(60.0)
        if self.signals < MOST_SIGNALS:
            yield SignalReceived(SIGTERM)

    def after(self, event: Event) -> World:
        """Give the world in which `event` has happened."""
        if isinstance(event, Spawned):
            return self._replace(spawning=None, leaders=self.leaders | {event.rank_id})
        if isinstance(event, SpawnFailed):
            cause = RankNotStarted(event.rank_id, event.reason, event.exit_status)
            return self._replace(spawning=None, cause=self.cause or cause)
        if isinstance(event, Exited):
            failure = None if event.ending == OK else RankFailed(event.rank_id, event.ending)
            return self._replace(
                leaders=self.leaders - {event.rank_id},
                stragglers=self.stragglers | ({event.rank_id} if event.has_stragglers else set()),
                cause=self.cause or failure,
            )
        if isinstance(event, Emptied):
            return self._replace(stragglers=self.stragglers - {event.rank_id})
        if isinstance(event, SignalReceived):
            stays = self.cause is not None and not is_echo(self.cause, event, deadlines=self.deadlines)
            return self._replace(signals=self.signals + 1, cause=self.cause if stays else Interrupted(event.signum))
        if isinstance(event, HangDetected):
            is_training = self.leaders or self.spawning is not None
            return self._replace(is_hung=True, cause=self.cause or (Hung(event.seconds) if is_training else None))
        return self._replace(has_deadline=False, deadlines=min(1, self.deadlines + 1))

    def told(self, actions: tuple[Action, ...]) -> World:
        """Give the world in which the actions are under way."""
        world = self
        for action in actions:
            if isinstance(action, Spawn):
                world = world._replace(spawning=action.rank_id)
            elif isinstance(action, SetDeadline):
                world = world._replace(has_deadline=True)
        return world


def is_echo(cause: Cause | None, event: Event, *, deadlines: int) -> bool:
    """Whether a rank has just died of the signal that the runner gets now."""
    is_stopped = isinstance(cause, RankFailed) and cause.ending == STOPPED
    return is_stopped and event == SignalReceived(SIGTERM) and not deadlines


def check_laws(before: State, event: Event, after: State, actions: tuple[Action, ...], world: World) -> None:
    """Check one transition; `world` is that after the event, before the actions."""
    signalled = [(action.rank_id, action.signum) for action in actions if isinstance(action, SignalGroup)]
    is_tearing_down = PHASES.index(after.phase) >= PHASES.index(machine.TERMINATING)
    everybody = sorted(world.alive)

    assert PHASES.index(before.phase) <= PHASES.index(after.phase), "phases go forward only"
    is_overwritten = before.cause not in {None, after.cause}
    is_allowed = is_echo(before.cause, event, deadlines=world.deadlines)
    assert is_overwritten == is_allowed, "the first cause is never overwritten, but for an echo"
    assert after.alive == world.alive, "the machine knows who lives"
    assert {rank_id for rank_id, _signum in signalled} <= world.alive, "nobody is signalled after it is gone"
    if is_tearing_down:
        assert not after.waiting, "nobody is started during a teardown"
        assert not any(isinstance(action, Spawn) for action in actions), "nobody is started during a teardown"
    if after.phase == machine.DONE:
        gave_up = before.phase == machine.KILLING and isinstance(event, DeadlineReached)
        assert gave_up or (not world.alive and world.spawning is None), "DONE means that nobody is alive"
        assert not gave_up or world.cause == after.cause
    else:
        assert world.alive or world.spawning is not None or after.waiting, "a job with nobody left is DONE"
        assert world.cause == after.cause, "the cause is what an onlooker would name"
    if after.phase == machine.TERMINATING and before.phase != machine.TERMINATING:
        assert [(rank_id, SIGTERM) for rank_id in everybody] == signalled, "SIGTERM to every living group"
        assert SetDeadline(GRACE / 15) in actions
    if before.phase == machine.TERMINATING and isinstance(event, DeadlineReached):
        signum = SIGTERM if after.phase == machine.TERMINATING else SIGKILL
        assert [(rank_id, signum) for rank_id in everybody] == signalled, "asked again at each step, then killed"
    if before.phase == machine.TERMINATING and event == SignalReceived(SIGTERM) and world.signals == MOST_SIGNALS:
        assert after.phase == machine.KILLING, "a second SIGTERM means SIGKILL now"
        assert [(rank_id, SIGKILL) for rank_id in everybody] == signalled


def explore(rank_ids: tuple[int, ...]) -> int:
    """Walk every interleaving, checking the laws at each step; the number of steps."""
    state, actions = machine.start(rank_ids, GRACE)
    to_visit = [(state, World().told(actions))]
    seen = set()
    steps = 0
    while to_visit:
        state, world = to_visit.pop()
        for event in world.possible():
            steps += 1
            next_state, actions = machine.transition(state, event)
            next_world = world.after(event)
            check_laws(state, event, next_state, actions, next_world)
            if next_state.phase == machine.DONE:
                continue
            # What a rank's status was is not looked at any more, so histories that differ in it only are one.
            key = (next_state._replace(endings=frozenset(next_state.endings)), next_world.told(actions))  # type: ignore[arg-type]  # a hashable stand-in
            if key not in seen:
                seen.add(key)
                to_visit.append((next_state, next_world.told(actions)))
    return steps


@pytest.mark.timeout(600)  # 10 s of pure computing for 4 ranks, which a busy machine may make many times longer
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_laws_hold_in_every_interleaving(ranks: int) -> None:
    """Whatever happens in whatever order to 1 to 4 ranks, the laws hold."""
    steps = explore(tuple(range(ranks)))

    assert steps > 10**ranks


def test_table_is_total() -> None:
    """Each phase answers each event, by a rule or by ignoring it."""
    events = {Spawned, SpawnFailed, Exited, Emptied, SignalReceived, HangDetected, DeadlineReached}

    assert dict.fromkeys(PHASES, events) == {phase: set(row) for phase, row in TRANSITIONS.items()}


@settings(max_examples=200)
@given(st.integers(1, 24), st.randoms(use_true_random=False))
def test_laws_hold_in_random_histories(ranks: int, random: object) -> None:
    """What holds for four ranks holds in random histories of up to 24."""
    state, actions = machine.start(tuple(range(ranks)), GRACE)
    world = World().told(actions)
    while state.phase != machine.DONE:
        event = random.choice(list(world.possible()))  # type: ignore[attr-defined]  # hypothesis' own Random
        before = state
        state, actions = machine.transition(state, event)
        world = world.after(event)
        check_laws(before, event, state, actions, world)
        world = world.told(actions)


def play(ranks: int, *events: Event) -> tuple[State, tuple[Action, ...]]:
    """Start `ranks` ranks, let the events happen, and give the last step."""
    state, actions = machine.start(tuple(range(ranks)), GRACE)
    for event in events:
        state, actions = machine.transition(state, event)
    return state, actions


def test_ranks_are_started_one_after_the_other() -> None:
    """The next rank is started when the one before runs, so that an event between two can stop the rest."""
    assert (Spawn(0),) == play(2)[1]
    assert (Spawn(1),) == play(2, Spawned(0))[1]
    assert machine.RUNNING == play(2, Spawned(0), Spawned(1))[0].phase


def test_signal_before_first_spawn_is_answered_starts_no_other() -> None:
    """A SIGTERM during the first spawn ends the job with 143; the rank under way is told, no other is started."""
    state, _ = play(2, SignalReceived(SIGTERM))
    state, actions = machine.transition(state, Spawned(0))

    assert (SignalGroup(0, SIGTERM),) == actions
    assert Interrupted(SIGTERM) == state.cause


def test_job_of_which_every_rank_exits_0_is_a_success() -> None:
    """No cause, status 0."""
    state, _ = play(2, Spawned(0), Spawned(1), Exited(1, OK), Exited(0, OK))

    expected = Outcome(None, (RankOutcome(0, OK), RankOutcome(1, OK)))
    assert expected == machine.outcome(state, (0, 1))
    assert machine.outcome(state, (0, 1)).status == 0


def test_first_failure_is_the_status_whatever_follows() -> None:
    """A rank that exits 1 while it is told to stop does not change the 7 of the first."""
    state, _ = play(2, Spawned(0), Spawned(1), Exited(1, FAILED), Exited(0, Ending(exit_code=1)))
    outcome = machine.outcome(state, (0, 1))

    assert RankFailed(1, FAILED) == outcome.cause
    assert outcome.status == 7
    assert (RankOutcome(0, Ending(exit_code=1), is_told_to_stop=True), RankOutcome(1, FAILED)) == outcome.ranks


@pytest.mark.parametrize(
    ("ending", "status"), [(Ending(exit_code=3), 3), (Ending(signum=11), 139), (Ending(signum=9), 137)]
)
def test_status_is_n_or_128_plus_signal(ending: Ending, status: int) -> None:
    """A rank that exits N ends the job with N, one that dies of signal S with 128 + S."""
    state, _ = play(1, Spawned(0), Exited(0, ending))

    assert status == machine.outcome(state, (0,)).status


def test_being_stopped_is_never_success() -> None:
    """Ranks that exit 0 after a SIGINT to the runner do not make it a success."""
    state, _ = play(1, Spawned(0), SignalReceived(SIGINT), Exited(0, OK))

    assert machine.outcome(state, (0,)).status == 130


def test_first_signal_after_a_failure_is_no_impatience() -> None:
    """The platform's SIGTERM that follows a failure leaves the ranks their grace; the next one does not."""
    state, actions = play(2, Spawned(0), Spawned(1), Exited(0, FAILED), SignalReceived(SIGTERM))
    assert (machine.TERMINATING, ()) == (state.phase, actions)

    state, actions = machine.transition(state, SignalReceived(SIGINT))
    assert (machine.KILLING, (SignalGroup(1, SIGKILL), SetDeadline(5.0))) == (state.phase, actions)
    assert RankFailed(0, FAILED) == state.cause


@pytest.mark.parametrize("others", [(), (Exited(1, STOPPED),), (SignalReceived(SIGINT), SignalReceived(SIGINT))])
def test_rank_that_dies_of_what_the_runner_is_sent_did_not_fail(others: tuple[Event, ...]) -> None:
    """Who signals each process of a job stops it, also where a rank is seen to die first."""
    state, _ = play(2, Spawned(0), Spawned(1), Exited(0, STOPPED), *others, SignalReceived(SIGTERM))

    assert Interrupted(SIGTERM) == state.cause


@pytest.mark.parametrize(
    ("ending", "events"),
    [
        (STOPPED, (SignalReceived(SIGINT),)),
        (STOPPED, (DeadlineReached(), SignalReceived(SIGTERM))),
        (Ending(exit_code=143), (SignalReceived(SIGTERM),)),
        (FAILED, (SignalReceived(SIGTERM),)),
    ],
    ids=["another-signal", "later", "exit-status", "failure"],
)
def test_any_other_death_stays_the_cause(ending: Ending, events: tuple[Event, ...]) -> None:
    """Whoever stops a job that is ending already changes nothing about why it ends."""
    assert RankFailed(0, ending) == play(2, Spawned(0), Spawned(1), Exited(0, ending), *events)[0].cause


def test_signal_after_all_is_done_changes_no_status() -> None:
    """It may tell why a rank died, but what was done stays done."""
    assert play(1, Spawned(0), Exited(0, OK), SignalReceived(SIGTERM))[0].cause is None
    assert RankFailed(0, FAILED) == play(1, Spawned(0), Exited(0, FAILED), SignalReceived(SIGTERM))[0].cause


def test_hang_ends_the_job_with_124() -> None:
    """A hang is a cause like a failure: all are told to stop, and the status is that of a time limit."""
    state, actions = play(1, Spawned(0), HangDetected(60.0))

    assert (SignalGroup(0, SIGTERM), SetDeadline(1.0)) == actions
    assert machine.outcome(state, (0,)).status == 124


def test_ctrl_z_stops_the_ranks_and_fg_continues_them() -> None:
    """Ranks have no terminal: what the runner is sent as SIGTSTP they get as SIGSTOP."""
    state, actions = play(1, Spawned(0), SignalReceived(SIGTSTP))
    assert (SignalGroup(0, SIGSTOP),) == actions

    assert (SignalGroup(0, SIGCONT),) == machine.transition(state, SignalReceived(SIGCONT))[1]


def test_user_signals_are_forwarded_and_change_nothing() -> None:
    """SIGUSR1 reaches every living group."""
    state, actions = play(2, Spawned(0), Spawned(1), SignalReceived(SIGUSR1))

    assert machine.RUNNING == state.phase
    assert (SignalGroup(0, SIGUSR1), SignalGroup(1, SIGUSR1)) == actions


def test_back_off_takes_the_grace() -> None:
    """SIGTERM at 0, 1, 3 and 7 s of a grace of 15 s, SIGKILL at 15 s."""
    state, actions = play(1, Spawned(0), SignalReceived(SIGTERM))
    deadlines = []
    while state.phase == machine.TERMINATING:
        deadlines += [action.seconds for action in actions if isinstance(action, SetDeadline)]
        state, actions = machine.transition(state, DeadlineReached())

    assert [1.0, 2.0, 4.0, 8.0] == deadlines


def test_straggler_keeps_the_grace_of_its_leader() -> None:
    """A wrapper that dies of SIGTERM at once does not cost the program below it its time to save."""
    state, _ = play(1, Spawned(0), SignalReceived(SIGTERM), Exited(0, Ending(signum=SIGTERM), has_stragglers=True))
    assert machine.TERMINATING == state.phase

    state, _ = machine.transition(state, Emptied(0))
    assert machine.DONE == state.phase


def test_straggler_of_a_successful_leader_is_asked_at_once() -> None:
    """While other ranks go on, what a finished rank left behind is told to stop, and the job stays a success."""
    state, actions = play(2, Spawned(0), Spawned(1), Exited(0, OK, has_stragglers=True))
    assert (SignalGroup(0, SIGTERM),) == actions

    state, actions = machine.transition(state, Exited(1, OK))
    assert (machine.TERMINATING, None) == (state.phase, state.cause)
    assert (SignalGroup(0, SIGTERM), SetDeadline(1.0)) == actions


def test_unkillable_rank_is_named_after_a_bounded_wait() -> None:
    """A rank that outlives SIGKILL for five seconds is given up, without an ending."""
    state, _ = play(1, Spawned(0), SignalReceived(SIGTERM), SignalReceived(SIGTERM), DeadlineReached())

    assert machine.DONE == state.phase
    assert (RankOutcome(0, None, is_told_to_stop=True),) == machine.outcome(state, (0,)).ranks

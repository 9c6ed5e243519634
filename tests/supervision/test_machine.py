"""The laws of supervision, checked in every interleaving for up to four ranks and in random histories beyond.

`World` is an independent model of what the kernel can do next. The model holds the true state of every process; the
machine sees only events.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from signal import SIGCONT, SIGHUP, SIGINT, SIGKILL, SIGSTOP, SIGTERM, SIGTSTP, SIGUSR1
from typing import Union, get_args

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ascend_runner.supervision import machine
from ascend_runner.supervision.causes import (
    Cause,
    Ending,
    Exited,
    HangDetected,
    LimitReached,
    NodeFinding,
    PeerFailed,
    Rule,
    SignalReceived,
    Slowdown,
    SpawnFailed,
)
from ascend_runner.supervision.events import (
    AskedProcessEnded,
    AskedToSave,
    CheckpointRequested,
    DeadlineReached,
    Emptied,
    Event,
    Saved,
    Spawned,
)
from ascend_runner.supervision.machine import TRANSITIONS
from ascend_runner.supervision.state import (
    Action,
    AskToSave,
    AskToStop,
    Notify,
    Phase,
    SetDeadline,
    SignalGroup,
    Spawn,
    State,
)

GRACE = 15.0
OK, FAILED, STOPPED = Ending(), Ending(exit_code=7), Ending(signum=SIGTERM)
SHARES = (1 / 15, 2 / 15, 4 / 15, 8 / 15)  # of the grace
KILL_WAIT = 5.0
PID = 4711
HOLD = 0.5
RECOVERY = 750.0
SAVE = 60.0  # seconds for a checkpoint before a stop
ANSWER_LIMIT = 300.0  # and where nothing else sets a time
LIMIT = LimitReached(3600.0)
PEER = PeerFailed(attempt=0, sentence="node 1 failed (rank 3: exit status 7)", exit_status=7)
PASSED_ON = SignalReceived(SIGTERM, node=1)
SLOW = Slowdown(rule=Rule.DROP, rank_id=0, own=2.0, reference=1.0)
UNHEALTHY = NodeFinding(subject="device 5", sentence="device 5 was gone", at=0.0, is_error=True)
PHASES = list(Phase)
SAME_IN_MERGED = attrgetter(
    *(field.name for field in attrs.fields(State) if field.name not in {"endings", "checkpoint"})
)
Watched = Union[HangDetected, Slowdown, LimitReached, NodeFinding, PeerFailed, SignalReceived]


@attrs.frozen
class World:
    """The living processes, the rank being spawned, and the cause that an observer would name.

    `save` is the time for a checkpoint before a stop, `is_asking` whether the ranks are being asked for one right now.
    Then ranks are `deaf`, or `saving` until they have answered; of these, some are `reporting`. As long as `is_open`,
    deaf ranks may yet be asked.
    """

    save: float = 0.0
    most_signals: int = 2
    may_request: bool = False
    request: CheckpointRequested | None = None  # that was made
    is_checkpointing: bool = False
    is_asking: bool = False
    deaf: frozenset[int] = frozenset()
    saving: frozenset[int] = frozenset()
    reporting: frozenset[int] = frozenset()
    is_open: bool = False
    spawning: int | None = None
    leaders: frozenset[int] = frozenset()
    stragglers: frozenset[int] = frozenset()
    has_deadline: bool = False
    is_holding: bool = False  # the deadline is that of law 8
    deadlines: int = 0  # that were reached; one is as good as many
    signals: int = 0
    watches: tuple[Watched, ...] = (HangDetected(60.0), LimitReached(60.0))  # what they may yet report
    cause: Cause | None = None

    @property
    def alive(self) -> frozenset[int]:
        """Return the ranks that have a living process."""
        return self.leaders | self.stragglers

    def possible(self) -> Iterator[Event]:
        """Return every event that can happen next."""
        if self.spawning is not None:
            yield Spawned(self.spawning, PID)
            yield SpawnFailed(self.spawning, "no memory", 125)
        for rank_id in sorted(self.leaders):
            for ending in (OK, (FAILED, STOPPED)[rank_id % 2]):
                yield Exited(rank_id, ending)
                yield Exited(rank_id, ending, has_stragglers=True)
        # One rank that may lose a peer is as good as many, and takes a third of the time.
        yield from (Exited(rank_id, FAILED, is_consequence=True) for rank_id in self.leaders & {0})
        for rank_id in sorted(self.stragglers):
            yield Emptied(rank_id)
        if self.has_deadline:
            yield DeadlineReached()
        if self.alive:
            yield AskedProcessEnded()
        yield from self.watches
        if self.signals < self.most_signals:
            yield SignalReceived(SIGTERM)
        yield from self._about_checkpoints()

    def _about_checkpoints(self) -> Iterator[Event]:
        if self.may_request and not self.request:
            yield CheckpointRequested()
            yield CheckpointRequested(LIMIT)
        if self.is_asking:
            yield AskedToSave(frozenset())
            yield AskedToSave(self.alive - {1})
            yield AskedToSave(self.alive - {1}, can_report=frozenset({0}))
        elif self.is_open and self.deaf & self.leaders:
            yield AskedToSave(self.deaf & self.leaders, can_report=frozenset({0}))
        for rank_id in sorted(self.saving | self.deaf if self.is_checkpointing else ()):
            yield Saved(rank_id)

    def after(self, event: Event) -> World:
        """Return the world after `event`."""
        if isinstance(event, (CheckpointRequested, AskedToSave, Saved)):
            return self._after_request(event)
        world = self._after(event)
        if isinstance(event, Exited):
            world = attrs.evolve(world, deaf=self.deaf - {event.rank_id}, saving=self.saving - {event.rank_id})
        return world

    def _after_request(self, event: CheckpointRequested | AskedToSave | Saved) -> World:
        if isinstance(event, CheckpointRequested):
            return attrs.evolve(self, request=event)
        if not (self.is_checkpointing or self.is_open):
            return self
        if isinstance(event, Saved):
            gone = {event.rank_id}
            return attrs.evolve(self, deaf=self.deaf - gone, saving=self.saving - gone, is_open=False)
        reached = event.reached & self.leaders
        asked = self.deaf | self.saving if self.is_checkpointing else self.leaders
        is_limit = self.request == CheckpointRequested(LIMIT) and bool(reached)
        return attrs.evolve(
            self,
            is_checkpointing=True,
            is_asking=False,
            deaf=self.deaf & asked - reached,
            saving=self.saving & asked | reached,
            reporting=self.reporting | event.can_report,
            cause=self.cause or (LIMIT if is_limit else None),
        )

    def _after(self, event: Event) -> World:
        if isinstance(event, Spawned):
            return attrs.evolve(self, spawning=None, leaders=self.leaders | {event.rank_id})
        if isinstance(event, SpawnFailed):
            return attrs.evolve(self, spawning=None, cause=self.cause or event)
        if isinstance(event, Exited):
            failure = None if event.ending == OK else event
            return attrs.evolve(
                self,
                leaders=self.leaders - {event.rank_id},
                stragglers=self.stragglers | ({event.rank_id} if event.has_stragglers else set()),
                cause=self.cause or failure,
            )
        if isinstance(event, Emptied):
            return attrs.evolve(self, stragglers=self.stragglers - {event.rank_id})
        if isinstance(event, SignalReceived):
            stays = self.cause is not None and not is_echo(self.cause, event, deadlines=self.deadlines)
            world = attrs.evolve(self, cause=self.cause if stays else event)
            if event.node is None:
                return attrs.evolve(world, signals=self.signals + 1)
            return attrs.evolve(world, watches=tuple(other for other in self.watches if other != event))
        if isinstance(event, (HangDetected, Slowdown, LimitReached, NodeFinding, PeerFailed)):
            return self._after_watch(event)
        if isinstance(event, AskedProcessEnded):
            return self
        if self.is_holding:
            return attrs.evolve(self, has_deadline=False, is_holding=False, is_open=False)
        return attrs.evolve(self, has_deadline=False, deadlines=min(1, self.deadlines + 1))

    def _after_watch(self, event: Watched) -> World:
        """Return the world after an event that ends the attempt, unless a cause has done that before."""
        is_training = self.leaders or self.spawning is not None
        watches = tuple(other for other in self.watches if other != event)
        return attrs.evolve(self, watches=watches, cause=self.cause or (event if is_training else None))

    def told(self, actions: tuple[Action, ...]) -> World:
        """Return the world in which the actions are in progress."""
        world = self
        for action in actions:
            if isinstance(action, Spawn):
                world = attrs.evolve(world, spawning=action.rank_id)
            elif isinstance(action, SetDeadline):
                is_other = action.seconds in {HOLD, RECOVERY, self.save, ANSWER_LIMIT}
                world = attrs.evolve(world, has_deadline=True, is_holding=is_other)
            elif isinstance(action, AskToSave):
                begun = not world.is_checkpointing
                if begun:
                    everybody, nobody = frozenset(action.rank_ids), frozenset[int]()
                    world = attrs.evolve(world, deaf=everybody, saving=nobody, reporting=nobody, is_open=True)
                world = attrs.evolve(world, is_checkpointing=True, is_asking=True)
        return world

    def told_of(self, state: State, actions: tuple[Action, ...]) -> World:
        """Return the world in which the actions are in progress; an end of the checkpointing was checked before."""
        world = self.told(actions)
        if state.phase is Phase.CHECKPOINTING:
            return world
        world = attrs.evolve(world, is_checkpointing=False, is_asking=False)
        if world.is_open and world.deaf & world.leaders and state.phase is Phase.RUNNING:
            return world
        nobody: frozenset[int] = frozenset()
        return attrs.evolve(world, deaf=nobody, saving=nobody, reporting=nobody, is_open=False)


def is_echo(cause: Cause | None, event: Event, *, deadlines: int) -> bool:
    """Whether a rank has just died of the signal that the runner now receives."""
    is_stopped = isinstance(cause, Exited) and cause.ending == STOPPED
    return is_stopped and event in {SignalReceived(SIGTERM), PASSED_ON} and not deadlines


@attrs.frozen(kw_only=True)
class Transition:
    """One transition, with the world after its event and before its actions."""

    before: State
    event: Event
    after: State
    actions: tuple[Action, ...]
    world: World

    @property
    def begins_teardown(self) -> bool:
        """Whether this is the moment at which all are asked to stop."""
        return self.after.phase is Phase.TERMINATING and self.before.phase is not Phase.TERMINATING

    @property
    def is_deadline_of_backoff(self) -> bool:
        """Whether a step of the back-off has ended."""
        return self.before.phase is Phase.TERMINATING and isinstance(self.event, DeadlineReached)

    @property
    def asks_for_checkpoint(self) -> bool:
        """Whether the ranks that have not saved are asked for a checkpoint: at each request, and before a stop."""
        before, is_started = self.before.phase, isinstance(self.event, Spawned) and not self.before.waiting
        is_first_signal = self.event == SignalReceived(SIGTERM) and self.world.signals == 1 and self.world.save > 0
        if before is Phase.STARTING:
            return is_started and self.world.request is not None
        if before is Phase.CHECKPOINTING and self.before.cause:
            return False
        may_save = isinstance(self.event, (NodeFinding, Slowdown)) and self.world.save > 0
        may_save |= self.event == PASSED_ON and self.world.save > 0
        is_asked = isinstance(self.event, CheckpointRequested) or is_first_signal or may_save
        return before in {Phase.RUNNING, Phase.CHECKPOINTING} and is_asked

    @property
    def reaches_late_ranks(self) -> bool:
        """Whether ranks were asked for a checkpoint that had not handled the signal when the others were asked."""
        return self.before.phase is Phase.RUNNING and isinstance(self.event, AskedToSave)

    @property
    def is_impatience(self) -> bool:
        """Whether the runner has received SIGTERM again during the teardown."""
        is_again = self.event == SignalReceived(SIGTERM) and self.world.signals > 1
        return self.before.phase is Phase.TERMINATING and is_again


def check_laws(step: Transition) -> None:
    """Check one transition."""
    check_phases(step)
    check_cause(step)
    check_checkpoint(step)
    assert expected_actions(step) == step.actions
    assert step.world.alive == step.after.alive, "the machine knows who is alive"


def check_phases(step: Transition) -> None:
    """Phases only advance, and a job is DONE exactly when no process is left or the wait after SIGKILL is over."""
    gave_up = step.before.phase is Phase.KILLING and isinstance(step.event, DeadlineReached)
    is_anybody_left = step.world.alive or step.world.spawning is not None or step.after.waiting

    is_back = (step.before.phase, step.after.phase) == (Phase.CHECKPOINTING, Phase.RUNNING)
    assert is_back or PHASES.index(step.before.phase) <= PHASES.index(step.after.phase)
    assert (step.after.phase is Phase.DONE) == (gave_up or not is_anybody_left)
    assert not (step.after.is_tearing_down and step.after.waiting), "nobody is started during a teardown"


def check_checkpoint(step: Transition) -> None:
    """A request ends when all that it has reached, and that report, have answered, or when its time is over.

    Before a stop, those that do not report are waited for as well.
    """
    world, event = step.world, step.event
    awaited = world.saving if world.cause else world.saving & world.reporting
    if step.before.phase is not Phase.CHECKPOINTING:
        is_late = step.reaches_late_ranks and bool(awaited)
        assert (step.asks_for_checkpoint or is_late) is (step.after.phase is Phase.CHECKPOINTING)
        return
    is_answered = not (awaited or world.is_asking)
    is_news = isinstance(event, (AskedToSave, Saved, Exited))
    is_over = (is_answered and is_news) or isinstance(event, (DeadlineReached, LimitReached)) or not world.leaders
    is_over |= event == SignalReceived(SIGTERM) and (world.signals > 1 or not world.save)
    is_over |= isinstance(event, PeerFailed) or (event == PASSED_ON and step.before.cause is None and not world.save)
    is_over |= isinstance(event, HangDetected) and step.before.cause is None
    is_over |= isinstance(event, (NodeFinding, Slowdown)) and step.before.cause is None and not world.save
    is_over |= isinstance(event, Exited) and event.ending != OK and step.before.cause is None

    assert is_over is (step.after.phase is not Phase.CHECKPOINTING)
    if step.before.cause is None and step.after.phase is Phase.RUNNING:
        assert world.cause is None, "nobody is stopped who was only asked to save"


def check_cause(step: Transition) -> None:
    """The first cause is the one that an observer would name, and only an echo replaces it."""
    is_overwritten = step.before.cause not in {None, step.after.cause}

    assert is_echo(step.before.cause, step.event, deadlines=step.world.deadlines) == is_overwritten
    assert step.world.cause == step.after.cause


def expected_actions(step: Transition) -> tuple[Action, ...]:  # noqa: C901  a line for each law
    """Return every action that the laws require at this transition; no other is allowed."""
    event, everybody = step.event, sorted(step.world.alive)
    if step.after.phase is Phase.DONE:
        return ()
    if step.asks_for_checkpoint:
        asked = step.world.deaf | step.world.saving
        ranks = asked if step.before.phase is Phase.CHECKPOINTING else step.world.leaders
        return (AskToSave(tuple(sorted(ranks))), SetDeadline(step.world.save or ANSWER_LIMIT))
    if step.is_impatience or (step.is_deadline_of_backoff and step.before.steps_taken == len(SHARES) - 1):
        return (*(SignalGroup(rank_id, SIGKILL) for rank_id in everybody), SetDeadline(KILL_WAIT))
    if step.begins_teardown or step.is_deadline_of_backoff:
        share = SHARES[0 if step.begins_teardown else step.before.steps_taken + 1]
        return (*(AskToStop(rank_id, SIGTERM) for rank_id in everybody), SetDeadline(GRACE * share))
    if step.reaches_late_ranks and step.after.phase is Phase.CHECKPOINTING:
        return (SetDeadline(step.world.save or ANSWER_LIMIT),)
    if step.after.phase is Phase.HOLDING:
        return () if step.before.phase is Phase.HOLDING else (SetDeadline(step.after.recovery or HOLD),)
    if isinstance(event, AskedProcessEnded) and step.after.phase is Phase.TERMINATING:
        return tuple(AskToStop(rank_id, SIGTERM) for rank_id in everybody)
    if isinstance(event, Spawned) and step.after.phase is Phase.STARTING:
        return (Spawn(step.before.waiting[0]),)
    if isinstance(event, Spawned) and step.after.is_tearing_down:
        is_killed = step.after.phase is Phase.KILLING
        return (SignalGroup(event.rank_id, SIGKILL) if is_killed else AskToStop(event.rank_id, SIGTERM),)
    is_left_alone = step.after.phase is Phase.KILLING or (step.after.phase is Phase.CHECKPOINTING and step.world.cause)
    if isinstance(event, Exited) and event.has_stragglers and not is_left_alone:
        return (AskToStop(event.rank_id, SIGTERM),)
    return ()


def explore(rank_ids: tuple[int, ...], world: World) -> int:
    """Walk through every interleaving, check the laws at each step, and return the number of steps."""
    state, actions = machine.start(rank_ids, GRACE, checkpoint_grace=world.save)
    to_visit = [(state, world.told(actions))]
    seen = set()
    steps = 0
    while to_visit:
        state, world = to_visit.pop()
        for event in world.possible():
            steps += 1
            next_state, actions = machine.transition(state, event)
            next_world = world.after(event)
            check_laws(Transition(before=state, event=event, after=next_state, actions=actions, world=next_world))
            if next_state.phase is Phase.DONE:
                continue
            next_world = next_world.told_of(next_state, actions)
            # A rank's status no longer matters here, nor does a request that is over: such histories are merged.
            is_asking = next_state.phase is Phase.CHECKPOINTING or next_state.late_ranks
            checkpoint = next_state.checkpoint if is_asking else None
            key = (SAME_IN_MERGED(next_state), frozenset(next_state.endings), checkpoint, next_world)
            if key not in seen:
                seen.add(key)
                to_visit.append((next_state, next_world))
    return steps


@pytest.mark.timeout(1800)  # 100 s of pure computing for 4 ranks, which a busy machine may make many times longer
@pytest.mark.parametrize("ranks", [1, 2, *(pytest.param(ranks, marks=pytest.mark.deep) for ranks in (3, 4))])
def test_laws_hold_in_every_interleaving(ranks: int) -> None:
    """The laws hold for 1 to 4 ranks in every order of events."""
    steps = explore(tuple(range(ranks)), World())

    assert steps > 10**ranks


@pytest.mark.timeout(600)
@pytest.mark.parametrize("save", [0.0, SAVE])
@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.deep)])
def test_laws_hold_with_requests_for_checkpoints(ranks: int, save: float) -> None:
    """The laws hold in every order of events if a checkpoint is asked for, too, before a stop or just so."""
    steps = explore(tuple(range(ranks)), World(save=save, most_signals=3, may_request=True))

    assert steps > 10**ranks


@pytest.mark.timeout(600)
@pytest.mark.parametrize("save", [0.0, SAVE])
@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.deep)])
def test_laws_hold_with_slow_training_and_unhealthy_nodes(ranks: int, save: float) -> None:
    """The first of slow training, a finding about the node and every other cause wins; ended attempts ignore both."""
    steps = explore(tuple(range(ranks)), World(save=save, may_request=save > 0, watches=(SLOW, UNHEALTHY)))

    assert steps > 10**ranks


@pytest.mark.timeout(600)
@pytest.mark.parametrize("save", [0.0, SAVE])
@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.deep)])
def test_laws_hold_with_failures_of_other_nodes(ranks: int, save: float) -> None:
    """Another node's failure stops the ranks whatever they wait for, and its stop signal is one to this node."""
    steps = explore(tuple(range(ranks)), World(save=save, may_request=save > 0, watches=(PEER, PASSED_ON)))

    assert steps > 10**ranks


@pytest.mark.deep
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "world",
    [World(watches=(SLOW, UNHEALTHY)), World(save=SAVE, most_signals=1, watches=(UNHEALTHY,))],
    ids=["at-once", "after-a-checkpoint"],
)
def test_laws_hold_with_3_ranks_on_unhealthy_nodes(world: World) -> None:
    """The same for 3 ranks; before a checkpoint, slow training is handled as a finding about the node is."""
    assert explore((0, 1, 2), world) > 80_000


def test_table_is_total() -> None:
    """Each phase handles or explicitly ignores each event."""
    assert {phase: {*get_args(Event)} for phase in PHASES} == {phase: set(row) for phase, row in TRANSITIONS.items()}


@settings(max_examples=200)
@given(st.integers(1, 24), st.randoms(use_true_random=False))
def test_laws_hold_in_random_histories(ranks: int, random: object) -> None:
    """The laws also hold in random histories of up to 24 ranks."""
    save, recovery = SAVE * (ranks % 2), RECOVERY * (ranks % 3 == 0)
    state, actions = machine.start(tuple(range(ranks)), GRACE, checkpoint_grace=save, recovery=recovery)
    watches = (HangDetected(60.0), SLOW, LimitReached(60.0), UNHEALTHY, PEER, PASSED_ON)
    world = World(save=save, most_signals=3, may_request=True, watches=watches).told(actions)
    while state.phase is not Phase.DONE:
        event = random.choice(list(world.possible()))  # type: ignore[attr-defined]  # hypothesis' own Random
        before = state
        state, actions = machine.transition(state, event)
        world = world.after(event)
        check_laws(Transition(before=before, event=event, after=state, actions=actions, world=world))
        world = world.told_of(state, actions)


@pytest.mark.parametrize(
    ("received", "asked"),
    [(SIGTERM, SIGINT), (SIGHUP, SIGINT), (SIGINT, SIGINT)],
)
def test_stop_signal_of_the_user(received: int, asked: int) -> None:
    """The signal that the user has chosen asks the ranks, whatever the runner has received."""
    state, _ = machine.start((0,), GRACE, SIGINT)
    state, _ = machine.transition(state, Spawned(0, 1))
    state, actions = machine.transition(state, SignalReceived(received))

    assert AskToStop(0, asked) == actions[0]
    assert SignalReceived(received) == state.cause


def status(state: State) -> int:
    """Return the exit status of a job."""
    return state.cause.exit_status if state.cause else 0


def play(ranks: int, *events: Event, recovery: float = 0.0, grace: float = GRACE) -> tuple[State, tuple[Action, ...]]:
    """Start `ranks` ranks, apply the events, and return the last step."""
    state, actions = machine.start(tuple(range(ranks)), grace, recovery=recovery)
    for event in events:
        state, actions = machine.transition(state, event)
    return state, actions


def test_ranks_are_started_one_after_the_other() -> None:
    """Each rank is started once the previous one runs, so that an event in between can prevent the rest."""
    assert (Spawn(0),) == play(2)[1]
    assert (Spawn(1),) == play(2, Spawned(0, PID))[1]
    assert play(2, Spawned(0, PID), Spawned(1, PID))[0].phase is Phase.RUNNING


def test_signal_before_first_spawn_is_answered_starts_no_other() -> None:
    """A SIGTERM during the first spawn ends the job with 143; that rank is signalled, and no other is started."""
    state, _ = play(2, SignalReceived(SIGTERM))
    state, actions = machine.transition(state, Spawned(0, PID))

    assert (AskToStop(0, SIGTERM),) == actions
    assert SignalReceived(SIGTERM) == state.cause


ALL_RUN = (Spawned(0, PID), Spawned(1, PID), Spawned(2, PID))
FIRST = Exited(1, FAILED)


@pytest.mark.parametrize(
    ("ends", "phase"),
    [
        ((), Phase.HOLDING),
        ((Exited(0, OK),), Phase.HOLDING),
        ((Exited(0, FAILED), Exited(2, OK)), Phase.DONE),
        ((Exited(0, OK, has_stragglers=True), Exited(2, OK)), Phase.TERMINATING),
    ],
)
def test_ranks_end_by_themselves_while_the_framework_recovers(ends: tuple[Event, ...], phase: Phase) -> None:
    """A failure stops no other rank where the framework recovers; what they do is no first cause (law 10)."""
    assert (SetDeadline(RECOVERY),) == play(3, *ALL_RUN, FIRST, recovery=RECOVERY)[1]

    state, actions = play(3, *ALL_RUN, FIRST, *ends, recovery=RECOVERY)
    assert (phase, FIRST) == (state.phase, state.cause)
    assert (phase is Phase.TERMINATING) is any(isinstance(action, AskToStop) for action in actions)


@pytest.mark.parametrize(
    "event", [DeadlineReached(), SignalReceived(SIGTERM), HangDetected(60.0), LIMIT, UNHEALTHY, SLOW]
)
def test_end_of_a_recovery(event: Event) -> None:
    """When its time is over, or for any other reason to stop, the ranks that are left are stopped (law 10)."""
    state, actions = play(3, *ALL_RUN, FIRST, Exited(0, OK), event, recovery=RECOVERY)

    assert (Phase.TERMINATING, FIRST) == (state.phase, state.cause)
    assert AskToStop(2, SIGTERM) == actions[0]


def test_nothing_recovers_while_ranks_are_started() -> None:
    """A failure before all ranks run stops the others at once."""
    state, _ = play(3, Spawned(0, PID), Exited(0, FAILED), recovery=RECOVERY)

    assert Phase.TERMINATING is state.phase


def test_job_of_which_every_rank_exits_0_is_a_success() -> None:
    """A job whose ranks all exit with 0 has no cause."""
    state, _ = play(2, Spawned(0, PID), Spawned(1, PID), Exited(1, OK), Exited(0, OK))

    assert (Phase.DONE, None) == (state.phase, state.cause)
    assert frozenset() == state.stopped


def test_first_failure_is_the_status_whatever_follows() -> None:
    """A rank that exits with 1 while being stopped does not replace the 7 of the first failure."""
    state, _ = play(2, Spawned(0, PID), Spawned(1, PID), Exited(1, FAILED), Exited(0, Ending(exit_code=1)))

    assert Exited(1, FAILED) == state.cause
    assert 7 == status(state)
    assert {0} == state.stopped


@pytest.mark.parametrize(
    ("ending", "expected"), [(Ending(exit_code=3), 3), (Ending(signum=11), 139), (Ending(signum=9), 137)]
)
def test_status_is_n_or_128_plus_signal(ending: Ending, expected: int) -> None:
    """A rank that exits with N ends the job with N; one killed by signal S ends it with 128 + S."""
    state, _ = play(1, Spawned(0, PID), Exited(0, ending))

    assert expected == status(state)


def test_being_stopped_is_never_success() -> None:
    """A job stopped by SIGINT is not a success, even if its ranks exit with 0."""
    state, _ = play(1, Spawned(0, PID), SignalReceived(SIGINT), Exited(0, OK))

    assert 130 == status(state)


def test_first_signal_after_a_failure_is_no_impatience() -> None:
    """The first SIGTERM after a failure does not shorten the grace; the second one ends it."""
    state, actions = play(2, Spawned(0, PID), Spawned(1, PID), Exited(0, FAILED), SignalReceived(SIGTERM))
    assert (Phase.TERMINATING, ()) == (state.phase, actions)

    state, actions = machine.transition(state, SignalReceived(SIGINT))
    assert (Phase.KILLING, (SignalGroup(1, SIGKILL), SetDeadline(5.0))) == (state.phase, actions)
    assert (Exited(0, FAILED), SIGINT) == (state.cause, state.killed_by)


@pytest.mark.parametrize("event", [SLOW, UNHEALTHY])
@pytest.mark.parametrize("answer", [Saved(0), DeadlineReached()])
def test_checkpoint_before_a_stop_for_speed_or_health(event: Event, answer: Event) -> None:
    """The ranks can save first if the user has given them the time; the event stays the cause."""
    state, _ = machine.start((0,), GRACE, checkpoint_grace=SAVE)
    state, _ = machine.transition(state, Spawned(0, PID))
    state, actions = machine.transition(state, event)
    assert (AskToSave((0,)), SetDeadline(SAVE)) == actions
    state, _ = machine.transition(state, AskedToSave(frozenset({0})))
    state, actions = machine.transition(state, answer)

    assert (Phase.TERMINATING, event, AskToStop(0, SIGTERM)) == (state.phase, state.cause, actions[0])
    assert Phase.TERMINATING is play(1, Spawned(0, PID), event)[0].phase  # without such a time


STEP = DeadlineReached()
HANG = HangDetected(60.0)


@pytest.mark.parametrize(
    ("events", "phase"),
    [
        ((Exited(0, FAILED), STEP, SignalReceived(SIGINT)), Phase.KILLING),
        ((HANG, STEP, SignalReceived(SIGINT)), Phase.KILLING),
        ((Exited(0, FAILED), SignalReceived(SIGINT)), Phase.TERMINATING),
        ((Exited(0, FAILED), STEP, SignalReceived(SIGTERM)), Phase.TERMINATING),
        ((Exited(0, FAILED), STEP, SignalReceived(SIGHUP)), Phase.TERMINATING),
        ((SignalReceived(SIGINT, node=1), STEP, SignalReceived(SIGINT)), Phase.TERMINATING),  # one Ctrl-C for all nodes
        ((SignalReceived(SIGINT, node=1), STEP, *[SignalReceived(SIGINT)] * 2), Phase.KILLING),
    ],
)
def test_ctrl_c_after_a_failure_kills(events: tuple[Event, ...], phase: Phase) -> None:
    """A person who reads that ranks are being stopped and presses Ctrl-C wants them killed; a platform does not."""
    state, _ = started(2, *events)

    assert (phase, events[0]) == (state.phase, state.cause)


def test_ctrl_c_while_only_stragglers_are_left() -> None:
    """Processes that successful ranks left behind are killed, and a job that a signal stops is no success."""
    state, _ = started(1, Exited(0, OK, has_stragglers=True), STEP, SignalReceived(SIGINT))

    assert (Phase.KILLING, SignalReceived(SIGINT)) == (state.phase, state.cause)


def test_end_of_the_grace_is_no_signal() -> None:
    """Whether a signal or the end of the grace has killed can be distinguished."""
    state, _ = started(1, SignalReceived(SIGTERM), STEP, STEP, STEP, STEP)

    assert (Phase.KILLING, 0) == (state.phase, state.killed_by)


@pytest.mark.parametrize("others", [(), (Exited(1, STOPPED),), (SignalReceived(SIGINT), SignalReceived(SIGINT))])
def test_rank_that_dies_of_what_the_runner_is_sent_did_not_fail(others: tuple[Event, ...]) -> None:
    """A signal sent to every process of a job is a stop, even if a rank is seen to die first."""
    state, _ = play(2, Spawned(0, PID), Spawned(1, PID), Exited(0, STOPPED), *others, SignalReceived(SIGTERM))

    assert SignalReceived(SIGTERM) == state.cause


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
    """A stop signal to a job that is already ending does not change its cause."""
    assert Exited(0, ending) == play(2, Spawned(0, PID), Spawned(1, PID), Exited(0, ending), *events)[0].cause


def test_signal_after_all_is_done_changes_no_status() -> None:
    """A late event may explain why a rank died, but does not undo what was done."""
    assert play(1, Spawned(0, PID), Exited(0, OK), SignalReceived(SIGTERM))[0].cause is None
    assert Exited(0, FAILED) == play(1, Spawned(0, PID), Exited(0, FAILED), SignalReceived(SIGTERM))[0].cause


def test_hang_ends_the_job_with_124() -> None:
    """A hang is a cause like a failure: all ranks are stopped, and the status is that of a time limit."""
    state, actions = play(1, Spawned(0, PID), HangDetected(60.0))

    assert (AskToStop(0, SIGTERM), SetDeadline(1.0)) == actions
    assert 124 == status(state)


def test_ctrl_z_stops_the_ranks_and_fg_continues_them() -> None:
    """Ranks have no terminal, so the runner's SIGTSTP reaches them as SIGSTOP."""
    state, actions = play(1, Spawned(0, PID), SignalReceived(SIGTSTP))
    assert (SignalGroup(0, SIGSTOP),) == actions

    assert (SignalGroup(0, SIGCONT),) == machine.transition(state, SignalReceived(SIGCONT))[1]


def test_user_signals_are_forwarded_and_change_nothing() -> None:
    """SIGUSR1 reaches every living group."""
    state, actions = play(2, Spawned(0, PID), Spawned(1, PID), SignalReceived(SIGUSR1))

    assert state.phase is Phase.RUNNING
    assert (Notify(0, SIGUSR1), Notify(1, SIGUSR1)) == actions


def test_user_signals_after_sigkill_are_not_forwarded() -> None:
    """A process that was sent SIGKILL is not signalled again."""
    state, _ = play(1, Spawned(0, PID), *[SignalReceived(SIGTERM)] * 2)

    assert (state, ()) == machine.transition(state, SignalReceived(SIGUSR1))


def test_back_off_takes_the_grace() -> None:
    """SIGTERM at 0, 1, 3 and 7 s of a grace of 15 s, SIGKILL at 15 s."""
    state, actions = play(1, Spawned(0, PID), SignalReceived(SIGTERM))
    deadlines = []
    while state.phase is Phase.TERMINATING:
        deadlines += [action.seconds for action in actions if isinstance(action, SetDeadline)]
        state, actions = machine.transition(state, DeadlineReached())

    assert [1.0, 2.0, 4.0, 8.0] == deadlines


def test_straggler_keeps_the_grace_of_its_leader() -> None:
    """A program keeps its full grace even if the wrapper above it dies of SIGTERM at once."""
    state, _ = play(1, Spawned(0, PID), SignalReceived(SIGTERM), Exited(0, Ending(signum=SIGTERM), has_stragglers=True))
    assert state.phase is Phase.TERMINATING

    state, _ = machine.transition(state, Emptied(0))
    assert state.phase is Phase.DONE


def test_straggler_of_a_successful_leader_is_asked_at_once() -> None:
    """Processes left behind by a finished rank are stopped while other ranks run, and the job still succeeds."""
    state, actions = play(2, Spawned(0, PID), Spawned(1, PID), Exited(0, OK, has_stragglers=True))
    assert (AskToStop(0, SIGTERM),) == actions

    state, actions = machine.transition(state, Exited(1, OK))
    assert (Phase.TERMINATING, None) == (state.phase, state.cause)
    assert (AskToStop(0, SIGTERM), SetDeadline(1.0)) == actions


def test_unkillable_rank_is_named_after_a_bounded_wait() -> None:
    """A rank that survives SIGKILL for five seconds is given up and is still alive in the end."""
    state, _ = play(1, Spawned(0, PID), SignalReceived(SIGTERM), SignalReceived(SIGTERM), DeadlineReached())

    assert state.phase is Phase.DONE
    assert {0} == state.alive == state.stopped


LOST_PEER = Exited(0, FAILED, is_consequence=True)


def started(ranks: int, *events: Event) -> tuple[State, tuple[Action, ...]]:
    """Start `ranks` ranks, all of them, apply the events, and return the last step."""
    return play(ranks, *(Spawned(rank_id, PID) for rank_id in range(ranks)), *events)


def test_consequence_gives_the_others_a_moment() -> None:
    """After a rank that only lost a peer, the others are asked to stop when the hold is over, not before."""
    held, actions = started(2, LOST_PEER)
    after, asked = machine.transition(held, DeadlineReached())

    assert (SetDeadline(HOLD),) == actions
    assert (LOST_PEER, (AskToStop(1, SIGTERM), SetDeadline(GRACE / 15))) == (after.cause, asked)


@pytest.mark.parametrize("event", [Exited(1, FAILED), Exited(1, OK), SignalReceived(SIGTERM)])
def test_news_ends_the_hold(event: Event) -> None:
    """A second end and a stop signal end the hold; the cause and its status stay the first rank's."""
    state, actions = started(3, LOST_PEER, event)

    assert (Phase.TERMINATING, LOST_PEER) == (state.phase, state.cause)
    assert AskToStop(2, SIGTERM) in actions


REPORTED = attrs.evolve(LOST_PEER, has_report=True)
ANOTHER = Exited(1, FAILED, is_consequence=True)


@pytest.mark.parametrize(("grace", "wait"), [(45.0, 30.0), (44.0, HOLD), (15.0, HOLD)])
def test_report_of_hccl_is_waited_for_within_the_grace(grace: float, wait: float) -> None:
    """Where HCCL reports the cause within 30 s, the ranks get these of a grace that is long enough (law 8)."""
    held, actions = play(3, *ALL_RUN, REPORTED, grace=grace)
    after, asked = machine.transition(held, DeadlineReached())

    assert (SetDeadline(wait),) == actions
    assert SetDeadline((grace - (wait if wait > HOLD else 0.0)) / 15) == asked[-1]
    assert REPORTED == after.cause


@pytest.mark.parametrize(
    ("event", "phase"),
    [(ANOTHER, Phase.HOLDING), (Exited(1, FAILED), Phase.TERMINATING), (SignalReceived(SIGTERM), Phase.TERMINATING)],
)
def test_other_consequences_do_not_end_the_wait_for_a_report(event: Event, phase: Phase) -> None:
    """Ranks that report only lost peers as well end one by one; any other end is news, as a stop signal is."""
    assert phase is play(3, *ALL_RUN, REPORTED, event, grace=60.0)[0].phase


def test_ctrl_c_during_the_hold_is_passed_on_as_ctrl_c() -> None:
    """Ranks are stopped with the signal that the user has sent, and the second one kills."""
    state, actions = started(2, LOST_PEER, SignalReceived(SIGINT))

    assert AskToStop(1, SIGINT) in actions
    assert Phase.KILLING is machine.transition(state, SignalReceived(SIGINT))[0].phase


def test_nobody_is_left_to_tell_the_cause() -> None:
    """A consequence of the last rank alive, or while ranks are being started, is acted on at once."""
    alone, _ = started(1, LOST_PEER)
    starting, _ = play(3, Spawned(0, PID), Spawned(1, PID), LOST_PEER)

    assert (Phase.DONE, Phase.TERMINATING) == (alone.phase, starting.phase)

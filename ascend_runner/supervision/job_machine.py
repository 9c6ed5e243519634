"""The life of a job over its attempts as a pure state machine: `transition(job, event) -> (job, actions)`.

An attempt is one start of all ranks; `supervision` has its rules. This machine decides what follows it.

The laws, which a test checks in every interleaving:
 1. An attempt starts only after the one before has ended, and nothing of it is alive.
 2. Nothing follows a success, a stop signal or the time limit: one that arrives after an attempt has failed, at any
    time before the next one starts, ends the job. If the limit comes before the delay is over, it does so at once.
 3. There are at most `max_restarts` restarts, and at most as many in a row after the same failure as its class permits,
    unless the training has progressed in between.
 4. The exit status comes from the last attempt, the stop signal or the limit that prevented another one, or of the
    runner if it has failed itself. With `gives_verdict`, the job also reports whether a retry by its platform may help.
 5. A job is held only after a failure that no attempt follows, and if no stop signal has arrived: for `hold` if its
    cause is on this node, for `linger` if that is on another one. Whatever ends the hold, the exit status stays that of
    the failure.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Final, Union, get_args

import attrs

from ascend_runner.errors import COMMAND_NOT_FOUND, RETRY_IS_VAIN, RETRY_MAY_HELP, RUNNER_FAILED, TIMED_OUT
from ascend_runner.supervision.causes import Restart
from ascend_runner.supervision.state import Phase, State

FIRST_DELAY: Final = 10.0  # seconds before the second restart without progress; doubled before each further one
LONGEST_DELAY: Final = 300.0  # seconds; both as in Kubernetes' CrashLoopBackOff
MOST_SAME_FAILURES: Final = 3  # restarts in a row after the same failure without progress
OWN_STATUSES: Final = range(TIMED_OUT, COMMAND_NOT_FOUND + 1)  # a limit, the runner, commands that do not start


class JobState(enum.Enum):
    """The state of a job while no attempt runs, or its result. During an attempt, its phase is the state."""

    PREPARING = "preparing"  # the rank table is awaited, the plan made, files are written
    RESTARTING = "restarting"  # an attempt has failed, and the next one is to come
    HOLDING = "holding"  # it has failed, and stays so that its node can be examined, or another can fail first
    SUCCEEDED = "succeeded"  # every rank has exited with 0
    FAILED = "failed"
    STOPPED = "stopped"  # by a signal to the runner
    EXPIRED = "expired"  # stopped at its time limit

    @property
    def is_final(self) -> bool:
        """Whether the job is over."""
        return self in {JobState.SUCCEEDED, JobState.FAILED, JobState.STOPPED, JobState.EXPIRED}


AnyState = Union[Phase, JobState]


class Verdict(enum.Enum):
    """The decision after a failed attempt, and its reason."""

    RESTART = "restart"
    NOT_WANTED = "not_wanted"  # --max-restarts is 0, or another runner has the place of this one
    USED_UP = "used_up"  # --max-restarts
    SAME_FAILURE = "same_failure"  # too often in a row
    POINTLESS = "pointless"  # by its class
    EXCLUDED = "excluded"  # by --no-restart-on, --hang-action, --perf-action or --inspect
    NOT_CLEAR = "not_clear"  # processes of the attempt are alive
    STOPPED = "stopped"  # by a signal that came before the next attempt
    NO_TIME = "no_time"  # the time limit comes before the next attempt
    NO_LINK = "no_link"  # not all nodes of the job could be reached


class Action(enum.Enum):
    """The next action of the runner; each is answered by an event."""

    PREPARE = "prepare"  # PREPARED
    START = "start"  # ALL_STARTED, TEARDOWN and ENDED
    WAIT = "wait"  # for `Job.delay` seconds: DELAY_OVER
    HOLD = "hold"  # for `Job.delay` seconds, or until a stop signal: RELEASED or STOP_REQUESTED


@attrs.frozen(kw_only=True)
class Policy:
    """When a job is restarted. `delay` is in seconds (None: it grows with each unsuccessful restart).

    `always` and `never` are exit statuses (128 + N for signal N) that overrule the class of a failure. With
    `gives_verdict`, a failed job says whether a retry by its platform may help. A job that has failed is held for
    `hold` seconds, or for `linger` seconds on a node that has only lost another one.
    """

    max_restarts: int = 0
    always: frozenset[int] = frozenset()
    never: frozenset[int] = frozenset()
    delay: float | None = None
    gives_verdict: bool = False
    hold: float = 0.0
    linger: float = 0.0


@attrs.frozen
class Prepared:
    """The plan is made, and the files that it needs are written."""


@attrs.frozen
class AllStarted:
    """The last rank was started."""


@attrs.frozen
class CheckpointBegun:
    """The ranks are asked for a checkpoint."""

    sentence: str = ""  # explains it to a reader, as in the events below


@attrs.frozen
class CheckpointOver:
    """The ranks go on."""


@attrs.frozen
class TeardownBegun:
    """The ranks are asked to stop."""

    sentence: str = ""


@attrs.frozen
class Ended:
    """The attempt is over, and no rank has failed: it has succeeded, or was stopped by a signal."""

    status: int = 0  # the exit status
    sentence: str = ""


@attrs.frozen(kw_only=True)
class Failed:
    """The attempt has failed, and is over."""

    status: int  # the exit status
    signum: int = 0  # the stop signal that has arrived
    restart: Restart  # the class of the failure
    fingerprint: str = ""  # equal failures share it
    has_progressed: bool | None = False  # whether the training got further than before the attempt; None: unknown
    is_clear: bool = True  # whether nothing of it is alive
    is_local: bool | None = True  # whether the cause is on this node; None: unknown
    time_left: float | None = None  # in seconds; None: there is no time limit
    decision: Verdict | None = None  # that the nodes of a job have made together; None: it is this node's own
    delay: float = 0.0  # before the next attempt, with such a decision
    sentence: str = ""


@attrs.frozen
class DelayOver:
    """The next attempt is due."""


@attrs.frozen
class StopRequested:
    """A stop signal has arrived while there is no rank to be stopped; if `is_orphaned`, as the launcher has ended."""

    signum: int
    is_orphaned: bool = False
    sentence: str = ""


@attrs.frozen
class Expired:
    """The time limit has ended the attempt, or comes while there is none."""

    sentence: str = ""


@attrs.frozen
class Released:
    """The time of the hold is over."""

    sentence: str = ""


@attrs.frozen
class RunnerFailed:
    """The runner itself has failed."""

    status: int = RUNNER_FAILED
    sentence: str = ""


Begun = Union[Prepared, AllStarted, CheckpointBegun, CheckpointOver, TeardownBegun]
Event = Union[Begun, Ended, Failed, DelayOver, StopRequested, Expired, Released, RunnerFailed]
EVENTS: Final[tuple[type[Event], ...]] = get_args(Event)


@attrs.frozen(kw_only=True)
class Job:
    """Everything that the rules depend on. `attempt` counts from 0; `status` is the exit status once there is one.

    `same_failures` counts the failures in a row that have this `fingerprint`, and `vain` all of them, both since the
    last progress. `delay` is in seconds, until the next attempt or the end of a hold. `exit_verdict` is the exit status
    of the runner if that is not `status`, but says whether a retry may help.
    """

    policy: Policy
    state: AnyState = JobState.PREPARING
    attempt: int = 0
    status: int | None = None
    fingerprint: str = ""
    same_failures: int = 0
    vain: int = 0
    delay: float = 0.0
    verdict: Verdict | None = None  # on the last attempt that has failed
    exit_verdict: int | None = None


Step = tuple[Job, tuple[Action, ...]]
Handler = Callable[..., Step]  # takes the job and an event of its column's type


def transition(job: Job, event: Event) -> Step:
    """Return the job after `event`, and the actions to perform."""
    return TRANSITIONS[job.state][type(event)](job, event)


# --- The cells of the table -------------------------------------------------------------------------------------------


def _ignore(job: Job, _event: Event) -> Step:
    return job, ()


def _go_to(state: AnyState, *actions: Action) -> Handler:
    """Return a handler for an event that changes nothing but the state."""
    return lambda job, _event: (attrs.evolve(job, state=state), actions)


def _end(job: Job, event: Ended) -> Step:
    state = JobState.STOPPED if event.status else JobState.SUCCEEDED
    return attrs.evolve(job, state=state, status=event.status, verdict=None), ()


def _end_failed(job: Job, event: Failed) -> Step:
    job = _counted(job, event)
    verdict = _agreed(job, event.decision) if event.decision else _verdict(job, event)
    if verdict is Verdict.RESTART and event.signum:
        return _stop(attrs.evolve(job, verdict=Verdict.STOPPED), event)
    if verdict is Verdict.RESTART:
        delay = event.delay if event.decision else _delay(job)
        job = attrs.evolve(job, state=JobState.RESTARTING, verdict=verdict, delay=delay)
        is_in_time = event.time_left is None or event.time_left > job.delay
        return (job, (Action.WAIT,)) if is_in_time else _expire(attrs.evolve(job, verdict=Verdict.NO_TIME), event)
    exit_verdict = _exit_verdict(job.policy, event, verdict)
    job = attrs.evolve(job, state=JobState.FAILED, status=event.status, verdict=verdict, exit_verdict=exit_verdict)
    hold = {True: job.policy.hold, False: job.policy.linger, None: 0.0}[event.is_local]
    if hold and not event.signum:
        return attrs.evolve(job, state=JobState.HOLDING, delay=hold), (Action.HOLD,)
    return job, ()


def _prepare(job: Job, _event: Event) -> Step:
    job = attrs.evolve(job, state=JobState.PREPARING, attempt=job.attempt + 1, delay=0.0, verdict=None)
    return job, (Action.PREPARE,)


def _stop(job: Job, event: StopRequested | Failed) -> Step:
    return attrs.evolve(job, state=JobState.STOPPED, status=128 + event.signum), ()


def _expire(job: Job, _event: Event) -> Step:
    return attrs.evolve(job, state=JobState.EXPIRED, status=TIMED_OUT), ()


def _fail(job: Job, event: RunnerFailed) -> Step:
    return attrs.evolve(job, state=JobState.FAILED, status=event.status or RUNNER_FAILED), ()


_IGNORED: Final[Mapping[type[Event], Handler]] = dict.fromkeys(EVENTS, _ignore)
_BETWEEN: Final[Mapping[type[Event], Handler]] = {**_IGNORED, StopRequested: _stop, Expired: _expire}
_OVER: Final[Mapping[type[Event], Handler]] = {
    **_IGNORED,
    Ended: _end,
    Failed: _end_failed,
    Expired: _expire,
    RunnerFailed: _fail,
}
_start: Final = _go_to(Phase.STARTING, Action.START)
_run: Final = _go_to(Phase.RUNNING)
_save: Final = _go_to(Phase.CHECKPOINTING)
_tear_down: Final = _go_to(Phase.TERMINATING)
_release: Final = _go_to(JobState.FAILED)
TRANSITIONS: Final[Mapping[AnyState, Mapping[type[Event], Handler]]] = {
    JobState.PREPARING: {**_BETWEEN, Prepared: _start, RunnerFailed: _fail},
    Phase.STARTING: {**_OVER, AllStarted: _run, TeardownBegun: _tear_down, CheckpointBegun: _save},
    Phase.RUNNING: {**_OVER, TeardownBegun: _tear_down, CheckpointBegun: _save},
    Phase.CHECKPOINTING: {**_OVER, TeardownBegun: _tear_down, CheckpointOver: _run},
    Phase.TERMINATING: _OVER,
    JobState.RESTARTING: {**_BETWEEN, DelayOver: _prepare},
    JobState.HOLDING: {**_IGNORED, Released: _release, StopRequested: _release, RunnerFailed: _fail},
    **{state: _IGNORED for state in JobState if state.is_final},
}
OF_AN_ATTEMPT: Final = frozenset(state for state in TRANSITIONS if isinstance(state, Phase))


# --- What follows a failure -------------------------------------------------------------------------------------------


def _counted(job: Job, event: Failed) -> Job:
    """Count a failure. Unknown progress neither adds to the same failures nor resets them."""
    same = 1
    if event.fingerprint == job.fingerprint and not event.has_progressed:
        same = job.same_failures + (event.has_progressed is False)
    vain = 1 if event.has_progressed else job.vain + 1
    return attrs.evolve(job, fingerprint=event.fingerprint, same_failures=same, vain=vain)


def _verdict(job: Job, event: Failed) -> Verdict:
    policy, restart = job.policy, _class(job.policy, event)
    if not policy.max_restarts:
        return Verdict.NOT_WANTED
    if restart is Restart.NEVER:
        return Verdict.POINTLESS
    if restart is Restart.EXCLUDED:
        return Verdict.EXCLUDED
    if not event.is_clear:
        return Verdict.NOT_CLEAR
    if job.attempt >= policy.max_restarts:
        return Verdict.USED_UP
    limit = 1 if restart is Restart.CONFIRM else MOST_SAME_FAILURES
    return Verdict.SAME_FAILURE if job.same_failures > limit else Verdict.RESTART


def _agreed(job: Job, decision: Verdict) -> Verdict:
    """Return the decision of all nodes, within the limit of this one."""
    if not job.policy.max_restarts:
        return Verdict.NOT_WANTED
    is_used_up = decision is Verdict.RESTART and job.attempt >= job.policy.max_restarts
    return Verdict.USED_UP if is_used_up else decision


def _class(policy: Policy, event: Failed) -> Restart:
    """Return the class of a failure. The user's lists of exit statuses take precedence over the diagnosis."""
    if event.status in policy.never:
        return Restart.EXCLUDED
    return Restart.TRANSIENT if event.status in policy.always else event.restart


def _exit_verdict(policy: Policy, event: Failed, verdict: Verdict) -> int | None:
    """Return the exit status that says whether a retry may help, in place of that of a rank.

    A failure of the class `confirm` may be one of this machine, and the platform limits its retries: a wrong "no" would
    cost more than a futile retry. It is "no" only if the failure came again after a restart.
    """
    if not policy.gives_verdict or event.status in OWN_STATUSES:
        return None
    restart = _class(policy, event)
    is_confirmed = restart is Restart.CONFIRM and verdict is Verdict.SAME_FAILURE
    is_vain = restart in {Restart.NEVER, Restart.EXCLUDED} or is_confirmed
    return RETRY_IS_VAIN if is_vain else RETRY_MAY_HELP


def _delay(job: Job) -> float:
    """Return the seconds until the next attempt: none before the first one and after progress, then more and more."""
    if job.policy.delay is not None:
        return job.policy.delay
    return 0.0 if job.vain == 1 else min(LONGEST_DELAY, FIRST_DELAY * 2.0 ** min(job.vain - 2, 10))


def is_last(state: State, policy: Policy, attempt: int) -> bool:
    """Whether the job ends with this attempt, counted from 0, as far as `state` shows it.

    From then on the time limit of the job decides nothing. Ranks that were asked for a checkpoint before the limit are
    stopped. Whether a failure permits a restart is known only when everything of the attempt has ended: until then, an
    attempt that has failed may be followed by another.
    """
    is_limit_near = state.checkpoint.is_being_sent and state.checkpoint.before_limit is not None
    if is_limit_near or state.is_interrupted or (state.cause and not state.cause.may_restart):
        return True
    if state.cause is None:
        return state.is_tearing_down  # every rank has succeeded
    return attempt >= policy.max_restarts

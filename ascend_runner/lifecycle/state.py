"""The state of a job over its attempts, the events that change it, and the actions of the runner that follow."""

from __future__ import annotations

import enum

import attrs


class JobState(enum.Enum):
    """The state of a job, or its result."""

    PREPARING = "preparing"  # the rank table is awaited, the plan made, files are written
    STARTING = "starting"  # ranks are started one after the other
    RUNNING = "running"  # every rank was started
    CHECKPOINTING = "checkpointing"  # the ranks were asked for a checkpoint
    STOPPING = "stopping"  # every rank was asked to stop
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


class Kind(enum.Enum):
    """An event of a job."""

    PREPARED = "prepared"  # the plan is made, and the files that it needs are written
    ALL_STARTED = "all_started"  # the last rank was started
    CHECKPOINT = "checkpoint"  # the ranks are asked for a checkpoint
    CHECKPOINT_OVER = "checkpoint_over"  # the ranks go on
    TEARDOWN = "teardown"  # the ranks are asked to stop
    ENDED = "ended"  # the attempt is over
    DELAY_OVER = "delay_over"
    STOP_REQUESTED = "stop_requested"  # a stop signal, while there is no rank to be stopped
    LIMIT_REACHED = "limit_reached"  # the time limit has ended the attempt, or comes while there is none
    RELEASED = "released"  # the time of the hold is over, or it was ended by request
    RUNNER_FAILED = "runner_failed"


class Restart(enum.Enum):
    """Whether a restart makes sense after a failure."""

    NEVER = "never"  # it would fail again
    CONFIRM = "confirm"  # it would probably fail again: one restart shows it
    TRANSIENT = "transient"  # it may not fail again
    EXCLUDED = "excluded"  # the user wants none


class Verdict(enum.Enum):
    """The decision after a failed attempt, and its reason."""

    RESTART = "restart"
    NOT_WANTED = "not_wanted"  # --max-restarts is 0
    USED_UP = "used_up"  # --max-restarts
    SAME_FAILURE = "same_failure"  # too often in a row
    POINTLESS = "pointless"  # by its class
    EXCLUDED = "excluded"  # by --no-restart-on, --hang-action, --perf-action or --inspect
    NOT_CLEAR = "not_clear"  # processes of the attempt are alive
    STOPPED = "stopped"  # by a signal that came before the next attempt
    NO_TIME = "no_time"  # the time limit comes before the next attempt


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
    max_same_failures: int = 3
    always: frozenset[int] = frozenset()
    never: frozenset[int] = frozenset()
    delay: float | None = None
    gives_verdict: bool = False
    hold: float = 0.0
    linger: float = 0.0


@attrs.frozen(kw_only=True)
class Event:
    """Something that has happened.

    Of an attempt that has ENDED, `status` is the exit status; a failure has a class, `restart`, and a `fingerprint`,
    which equal failures share. `has_progressed` is whether the training got further than before the attempt (None:
    unknown), `is_clear` whether nothing of it is alive, and `is_local` whether the cause is on this node (None:
    unknown). `signum` is the stop signal that has arrived, or 0; `is_orphaned`: because the job's launcher has ended.
    `time_left` is in seconds, None without a time limit. `sentence` explains a failure, and `checkpoint` describes the
    result of a request for one.
    """

    kind: Kind
    status: int = 0
    signum: int = 0
    restart: Restart | None = None
    fingerprint: str = ""
    has_progressed: bool | None = False
    is_clear: bool = True
    is_local: bool | None = True
    time_left: float | None = None
    is_orphaned: bool = False
    sentence: str = ""
    checkpoint: str = ""


@attrs.frozen(kw_only=True)
class Job:
    """Everything that the rules depend on. `attempt` counts from 0; `status` is the exit status once there is one.

    `same_failures` counts the failures in a row that have this `fingerprint`, and `vain` all of them, both since the
    last progress. `delay` is in seconds, until the next attempt or the end of a hold. `exit_verdict` is the exit status
    of the runner if that is not `status`, but says whether a retry may help.
    """

    policy: Policy
    state: JobState = JobState.PREPARING
    attempt: int = 0
    status: int | None = None
    fingerprint: str = ""
    same_failures: int = 0
    vain: int = 0
    delay: float = 0.0
    verdict: Verdict | None = None  # on the last attempt that has failed
    exit_verdict: int | None = None

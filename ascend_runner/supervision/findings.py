"""Findings about the node, before a job and while it runs, and the actions that they may lead to."""

from __future__ import annotations

import enum
from typing import ClassVar

import attrs

from ascend_runner.errors import TIMED_OUT


class WatchAction(enum.Enum):
    """The action after a hang or when the training is slow."""

    WARN = "warn"
    RESTART = "restart"
    STOP = "stop"  # end the job, without a restart


class InspectAction(enum.Enum):
    """The action after an error that the inspection finds; warnings are only reported."""

    OFF = "off"  # there is no inspection
    WARN = "warn"
    CHECKPOINT = "checkpoint"  # the ranks are asked for a checkpoint
    STOP = "stop"


class FindingKind(enum.Enum):
    """The kind of a finding about this node."""

    UNHEALTHY = "unhealthy"  # a defect has appeared
    RECOVERED = "unhealthy-over"  # it has disappeared
    NOTICE = "notice"  # about the inspection itself
    PRECHECK = "precheck"  # a problem that was found before the start


@attrs.frozen(kw_only=True)
class NodeFinding:
    """A finding about this node. One with `is_error` ends a job with `--inspect stop`.

    `subject` identifies what was found, such as "device 5: 80E01801": of two findings on the same subject, the later
    one replaces the other. `sentence` describes it in the past tense; `at` is in seconds since the epoch.
    """

    exit_status: ClassVar[int] = TIMED_OUT
    subject: str
    sentence: str
    at: float
    kind: FindingKind = FindingKind.UNHEALTHY
    is_error: bool = False

    def __str__(self) -> str:
        return f"{self.sentence} (--inspect stop)"

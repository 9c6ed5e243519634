"""The events of an attempt: the manager observes them, the state machine answers them. The others are in `causes`."""

from __future__ import annotations

from typing import Union

import attrs

from ascend_runner.supervision.causes import AnyCause, LimitReached


@attrs.frozen
class Spawned:
    """The leader of the rank is running."""

    rank_id: int
    pid: int


@attrs.frozen
class Emptied:
    """The last straggler of a rank has ended."""

    rank_id: int


@attrs.frozen
class AskedProcessEnded:
    """A process that was asked to stop has ended: the processes that it took care of are on their own now."""


@attrs.frozen
class CheckpointRequested:
    """The ranks are to save a checkpoint; with `limit`, because the time limit of the job is near."""

    limit: LimitReached | None = None


@attrs.frozen
class AskedToSave:
    """Ranks were asked for a checkpoint; `reached` are the ranks with a process that handles the signal.

    With `is_limit_moved`, the time limit that they were asked for is no longer near. Ranks that `can_report` have
    announced that they report each checkpoint.
    """

    reached: frozenset[int]
    is_limit_moved: bool = False
    can_report: frozenset[int] = frozenset()


@attrs.frozen
class Saved:
    """The rank has reported that it has saved its part of a checkpoint since it was asked."""

    rank_id: int


@attrs.frozen
class DeadlineReached:
    """The time set by the last `SetDeadline` has passed, or there is nothing left to wait for."""


Event = Union[Spawned, Emptied, AskedProcessEnded, CheckpointRequested, AskedToSave, Saved, DeadlineReached, AnyCause]

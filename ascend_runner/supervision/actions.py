"""What the state machine wants done. The manager performs these, in the order given."""

from __future__ import annotations

from ascend_runner.annotations import NamedTuple, Union


class Spawn(NamedTuple):
    """Start the rank; answered by `Spawned` or `SpawnFailed`."""

    rank_id: int


class SignalGroup(NamedTuple):
    """Send the signal to every process of the rank's group."""

    rank_id: int
    signum: int


class SetDeadline(NamedTuple):
    """Wake the machine with `DeadlineReached` after `seconds`; replaces the deadline set before."""

    seconds: float


Action = Union[Spawn, SignalGroup, SetDeadline]

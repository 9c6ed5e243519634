"""The actions that the state machine requests. The manager performs them in the order given."""

from __future__ import annotations

from typing import Union

import attrs


@attrs.frozen
class Spawn:
    """Start the rank; answered by `Spawned` or `SpawnFailed`."""

    rank_id: int


@attrs.frozen
class AskToStop:
    """Ask the processes of the rank to stop that were not asked before and that no process above takes care of.

    `signal_targets.to_stop` has the rules. Asking again is harmless: it reaches only those that are new or left alone.
    """

    rank_id: int
    signum: int


@attrs.frozen
class Notify:
    """Send a signal of the user's to the processes of the rank that handle it, see `signal_targets.to_notify`."""

    rank_id: int
    signum: int


@attrs.frozen
class SignalGroup:
    """Send SIGKILL, SIGSTOP or SIGCONT to every process of the rank."""

    rank_id: int
    signum: int


@attrs.frozen
class SetDeadline:
    """Send `DeadlineReached` after `seconds`; replaces the deadline set before."""

    seconds: float


Action = Union[Spawn, AskToStop, Notify, SignalGroup, SetDeadline]

"""What is known of a job of several nodes, by the reports of its nodes, and the verdict on it.

Times are in seconds since the epoch by the clock of the node that has written them, unless stated otherwise. Ranks,
servers and devices are those of the rank table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional

import attrs

from ascend_runner.diagnosis.finding import Certainty, Peer
from ascend_runner.diagnosis.first_cause import Place, Suspicion


@attrs.frozen(kw_only=True)
class Clock:
    """The clock of a node at the end of its part of the job.

    `max_error` bounds its distance from true time (None: it is not synchronised). By `step` seconds it was set forward
    since the start of the job. The clock of the disk with the logs was ahead by `disk_offset` seconds, which were
    measured within `round_trip` (None: unknown).
    """

    max_error: Optional[float] = None
    step: float = 0.0
    disk_offset: Optional[float] = None
    round_trip: float = 0.0


@attrs.frozen(kw_only=True)
class Failure:
    """Why the part of a job on a node failed, and when.

    `rank_id` is the rank that caused it, None if that was no rank. With `is_certain`, no other rank of the node did.
    """

    suspicion: Suspicion
    sentence: str
    rank_id: Optional[int] = None
    at: Optional[float] = None
    is_certain: bool = False


@attrs.frozen(kw_only=True)
class Complaint:
    """A message of a rank that names a peer. `code` is that of the message, "" without one."""

    rank_id: int
    peer: Peer
    code: str = ""
    at: Optional[float] = None


@attrs.frozen(kw_only=True)
class Stack:
    """Ranks of a node that hung in the same place, innermost frame first."""

    rank_ids: tuple[int, ...]
    frames: tuple[str, ...]


@attrs.frozen(kw_only=True)
class Node:
    """A node of a job, by its number. `host` is its pod or server, "" if unknown.

    `problem` says why there is no report of its end ("" if there is one); what only a report has is then missing.
    `state` is that of the job on this node. `failure` is None if it did not fail by itself: it succeeded, or was
    stopped. Unless it `is_current`, the report may be of an earlier run. `steps` has the times at which steps of the
    training were logged. `log_end` is when the last of its ranks wrote, by the clock of the disk with the logs (None:
    unknown).
    """

    number: int
    host: str = ""
    rank_ids: tuple[int, ...] = ()
    problem: str = ""
    state: str = ""
    began: Optional[float] = None
    ended: Optional[float] = None
    failure: Optional[Failure] = None
    complaints: tuple[Complaint, ...] = ()
    hang: tuple[Stack, ...] = ()
    clock: Clock = Clock()
    steps: Mapping[int, float] = {}
    log_end: Optional[float] = None
    is_current: bool = True

    @property
    def title(self) -> str:
        """Its number, and what it is called elsewhere: "node 21 (worker-21)"."""
        return f"node {self.number}" + (f" ({self.host})" if self.host else "")

    @property
    def has_report(self) -> bool:
        """Whether it has reported its end."""
        return not self.problem


@attrs.frozen(kw_only=True)
class Job:
    """A job of several nodes. `places` are those of its ranks, `addresses` the ranks of network addresses."""

    nodes: tuple[Node, ...]
    places: Mapping[int, Place] = {}
    addresses: Mapping[str, int] = {}


@attrs.frozen(kw_only=True)
class Suspect:
    """A node that may have caused the failure, and the rank, if it is known.

    `sentence` says what is known of it. `alike` are the nodes that have failed in the same way.
    """

    node: Node
    rank_id: Optional[int] = None
    sentence: str = ""
    alike: tuple[Node, ...] = ()


@attrs.frozen(kw_only=True)
class Verdict:
    """The cause of a failure: one suspect, or if it is open, at most three; none if nothing has failed.

    `reasons` say why, and why it is not more certain.
    """

    certainty: Certainty
    suspects: tuple[Suspect, ...] = ()
    reasons: tuple[str, ...] = ()

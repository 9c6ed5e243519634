"""The known facts about a job of several nodes, taken from the reports of its nodes, and the verdict on it.

Times are in seconds since the epoch by the clock of the node that wrote them, unless stated otherwise. Ranks,
servers and devices are those of the rank table.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from ascend_runner.diagnosis.finding import Certainty, Peer
from ascend_runner.diagnosis.root_cause import Place, Suspicion


@attrs.frozen(kw_only=True)
class Clock:
    """The clock of a node at the end of its part of the job.

    `max_error` bounds its distance from true time (None: it is not synchronized). Since the start of the job, it
    was set forward by `step` seconds. The clock of the disk with the logs was ahead by `disk_offset` seconds (None:
    unknown), a measurement that took `round_trip` seconds.
    """

    max_error: float | None = None
    step: float = 0.0
    disk_offset: float | None = None
    round_trip: float = 0.0


@attrs.frozen(kw_only=True)
class Failure:
    """Why the part of a job on a node failed, and when.

    `rank_id` is the rank that caused it, or None if no rank did. If `is_certain`, no other rank of the node can be.
    """

    suspicion: Suspicion
    sentence: str
    rank_id: int | None
    at: float | None
    is_certain: bool


@attrs.frozen(kw_only=True)
class Complaint:
    """A message of a rank that names a peer. `code` is the error code in the message, or ""."""

    rank_id: int
    peer: Peer
    code: str
    at: float | None


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
    stopped. Unless `is_current` is set, the report may be from an earlier run. `steps` maps steps of the training to
    the times at which they were logged. `log_end` is when the last of its ranks wrote, by the clock of the disk with
    the logs (None: unknown).
    """

    number: int
    host: str = ""
    rank_ids: tuple[int, ...] = ()
    problem: str = ""
    state: str = ""
    ended: float | None = None
    failure: Failure | None = None
    complaints: tuple[Complaint, ...] = ()
    hang: tuple[Stack, ...] = ()
    clock: Clock = Clock()
    steps: Mapping[int, float] = {}
    log_end: float | None = None
    is_current: bool = True

    @property
    def title(self) -> str:
        """Its number, with its host if known: "node 21 (worker-21)"."""
        return f"node {self.number}" + (f" ({self.host})" if self.host else "")

    @property
    def has_report(self) -> bool:
        """Whether the node has reported its end."""
        return not self.problem


@attrs.frozen(kw_only=True)
class Job:
    """A job of several nodes. `places` maps ranks to devices, and `addresses` network addresses to ranks."""

    nodes: tuple[Node, ...]
    places: Mapping[int, Place] = {}
    addresses: Mapping[str, int] = {}


@attrs.frozen(kw_only=True)
class Suspect:
    """A node that may have caused the failure, and the rank, if known.

    `sentence` describes its failure. `alike` are the other nodes that failed in the same way.
    """

    node: Node
    rank_id: int | None
    sentence: str
    alike: tuple[Node, ...] = ()


@attrs.frozen(kw_only=True)
class Verdict:
    """The cause of a failure: one suspect, or up to three if the cause is open, or none if nothing has failed.

    `reasons` justify the verdict and its certainty.
    """

    certainty: Certainty
    suspects: tuple[Suspect, ...] = ()
    reasons: tuple[str, ...] = ()

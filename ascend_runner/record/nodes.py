"""The nodes of a job, and its verdict, as the link between their runners knows them. Pure.

Members of the report, of messages between nodes, and of answers of the control socket alike. Sizes are in bytes,
durations in seconds.
"""

from __future__ import annotations

from typing import Any

import attrs

from ascend_runner.members import Count, Members, plain


@attrs.frozen(kw_only=True)
class NodeRecord:
    """A node of a job of several nodes, as node 0 last heard of it."""

    node: Count = 0  # its rank among the nodes
    pod: str = ""
    address: str = ""
    host: str = ""
    state: str = ""  # as in the node's report, such as "running"; "" before it has joined
    is_unreachable: bool = False
    attempt: Count = 0
    ranks: Count = 0
    alive: Count = 0  # ranks with a living first process
    step: Count | None = None
    heard: float | None = None  # how long ago it was last heard of
    round_trip: float | None = None
    clock_offset: str = ""  # its clock minus that of node 0, with a sign, such as "+1.25 s"; "" below a second
    differs: str = ""  # software and settings in which it differs from most nodes, such as "CANN 8.0.RC2"
    sentence: str = ""  # its own cause, if it has failed

    def encode(self) -> dict[str, Any]:
        """Return it as an object."""
        members: dict[str, Any] = plain(self)
        return members

    @classmethod
    def decode(cls, members: Members) -> NodeRecord:
        """Return what `encode` has returned."""
        return cls(**members.fields(cls))


@attrs.frozen(kw_only=True)
class JobVerdict:
    """The one cause of a failed attempt of all nodes."""

    attempt: Count = 0
    node: Count | None = None  # where the cause is; None: unknown
    rank_id: Count | None = None
    sentence: str = ""
    kind: str = ""  # "own", "unknown" or "peer": an error of a rank's own, an unknown one, or only a lost peer
    certainty: str = ""  # "certain", "likely" or "open"
    status: Count = 0  # the exit status of every runner
    lines: tuple[str, ...] = ()  # the end of the rank's output, masked
    log: str = ""  # the path of its log on that node
    means: str = ""  # what the error means, and what to do about it
    next: str = ""
    pod: str = ""
    address: str = ""
    tied: tuple[int, ...] = ()  # other nodes, whose cause may have been the first as well
    failed_too: tuple[int, ...] = ()  # other nodes, whose failures are not the cause
    missing: tuple[int, ...] = ()  # nodes that were not heard of before it was made
    is_stopped: bool = False  # every other rank was stopped by its runner; false if unknown
    restarts: bool = False  # whether another attempt follows
    delay: float = 0.0  # seconds before it
    replaces: bool = False  # whether a node has to be replaced before it
    decision: str = ""  # the value of the `job_machine.Verdict` on the restart
    is_alone: bool = False  # made by this node alone, as node 0 has not made one in time

    def encode(self) -> dict[str, Any]:
        """Return it as an object."""
        members: dict[str, Any] = plain(self)
        return members

    def __str__(self) -> str:
        """Describe it with its node: "rank 26 on node 3 failed: exit status 1"."""
        rank = f"rank {self.rank_id} "
        if self.node is None or not self.sentence:
            return self.sentence
        if self.sentence.startswith(rank):
            return f"{rank}on node {self.node} {self.sentence[len(rank) :]}"
        place = f"node {self.node}"
        return self.sentence if place in self.sentence else f"{place}: {self.sentence}"

    @classmethod
    def decode(cls, members: Members) -> JobVerdict | None:
        """Return what `encode` has returned, None if that was nothing."""
        return cls(**members.fields(cls)) if members.members else None

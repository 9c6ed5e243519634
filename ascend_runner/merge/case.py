"""A job and which of its nodes name which: the properties of nodes that the rules of a verdict query."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs

from ascend_runner.diagnosis.root_cause import Suspicion
from ascend_runner.merge import clocks
from ascend_runner.merge.mentions import Mentions
from ascend_runner.merge.model import Job, Node

# Seconds of output that are lost with a machine: the kernel writes them to the disk within that time
# (vm.dirty_expire_centisecs and vm.dirty_writeback_centisecs, 30 and 5 s).
UNWRITTEN: Final = 35.0


@attrs.frozen(kw_only=True, eq=False)
class Case:
    """A job, and the mentions of its nodes by others."""

    job: Job
    mentions: Mentions

    def failed(self, *suspicions: Suspicion) -> list[Node]:
        """Return the nodes whose failures are of these kinds."""
        return [node for node in self.job.nodes if node.failure and node.failure.suspicion in suspicions]

    @property
    def missing(self) -> list[Node]:
        """The nodes without a report."""
        return [node for node in self.job.nodes if not node.has_report]

    @property
    def lost(self) -> list[Node]:
        """The nodes without a report that others name."""
        return [node for node in self.missing if self.is_named(node)]

    def is_named(self, node: Node) -> bool:
        """Return whether another node names a node."""
        return bool(self.mentions.of(node))

    def was_silent_before_complaints(self, node: Node) -> bool:
        """Return whether the output of a node ended long before every complaint about it."""
        complaints = self.mentions.of(node)
        return bool(complaints) and all(
            clocks.fell_silent_before(node, one.by, one.complaint.at, UNWRITTEN) for one in complaints
        )

    def was_silent_before_failures(self, node: Node, failed: Sequence[Node]) -> bool:
        """Return whether the output of a node ended long before others failed."""
        return all(clocks.fell_silent_before(node, one, _failed_at(one), UNWRITTEN) for one in failed)

    def unexplained(self, suspect: Node) -> list[Node]:
        """Return the nodes without a report that may have failed before a suspect: none is known to have run longer.

        A report that may be from an earlier run does not count.
        """
        others = [node for node in self.job.nodes if node is not suspect and not (node.has_report and node.is_current)]
        return [node for node in others if not self._has_outlived(node, suspect)]

    def _has_outlived(self, node: Node, suspect: Node) -> bool:
        if self.is_named(node) or node.log_end is None:
            return False
        if suspect.has_report:
            return clocks.was_active_after(node, suspect, _failed_at(suspect))
        return suspect.log_end is not None and node.log_end > suspect.log_end + UNWRITTEN

    def best(self, nodes: Sequence[Node]) -> Node | None:
        """Return the only node, the only one that others name, or the one that certainly failed first, or None."""
        return self.first([node for node in nodes if self.is_named(node)] or nodes)

    def first(self, nodes: Sequence[Node]) -> Node | None:
        """Return the node that certainly failed before all others, or None if that is unknown."""
        return next((node for node in nodes if all(_is_first(node, one) for one in nodes if one is not node)), None)


def _is_first(node: Node, other: Node) -> bool:
    return clocks.is_before(node, _failed_at(node), other, _failed_at(other))


def _failed_at(node: Node) -> float | None:
    return node.failure.at if node.failure else None

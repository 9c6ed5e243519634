"""A job with its accusations: the properties of nodes that the rules query, and the verdicts that they return."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Optional

import attrs

from ascend_runner.diagnosis.finding import Certainty
from ascend_runner.diagnosis.first_cause import Suspicion
from ascend_runner.merge import clocks
from ascend_runner.merge.accusations import Accusations
from ascend_runner.merge.model import Job, Node, Suspect, Verdict
from ascend_runner.text import counted

MOST_SUSPECTS: Final = 3  # named if the cause is open
MOST_CODES: Final = 3  # in a sentence
# Seconds of output that are lost with a machine: the kernel writes them to the disk within that time
# (vm.dirty_expire_centisecs and vm.dirty_writeback_centisecs, 30 and 5 s).
UNWRITTEN: Final = 35.0


@attrs.frozen(kw_only=True, eq=False)
class Case:
    """A job with its accusations."""

    job: Job
    accusations: Accusations

    # --- Questions ----------------------------------------------------------------------------------------------------

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
        return [node for node in self.missing if self.is_accused(node)]

    def is_accused(self, node: Node) -> bool:
        """Return whether another node names a node."""
        return bool(self.accusations.of(node))

    def was_silent_before_complaints(self, node: Node) -> bool:
        """Return whether the output of a node ended long before every complaint about it."""
        complaints = self.accusations.of(node)
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
        if self.is_accused(node) or node.log_end is None:
            return False
        if suspect.has_report:
            return clocks.was_active_after(node, suspect, _failed_at(suspect))
        return suspect.log_end is not None and node.log_end > suspect.log_end + UNWRITTEN

    def best(self, nodes: Sequence[Node]) -> Optional[Node]:
        """Return the only node, the only one that others name, or the one that certainly failed first, or None."""
        return self.first([node for node in nodes if self.is_accused(node)] or nodes)

    def first(self, nodes: Sequence[Node]) -> Optional[Node]:
        """Return the node that certainly failed before all others, or None if that is unknown."""
        return next((node for node in nodes if all(_is_first(node, one) for one in nodes if one is not node)), None)

    # --- Verdicts -----------------------------------------------------------------------------------------------------

    def certain(self, suspect: Suspect, *reasons: str) -> Verdict:
        """Return the verdict that a node is the cause."""
        return self._verdict(Certainty.CERTAIN, suspect, reasons)

    def likely(self, suspect: Suspect, *reasons: str) -> Verdict:
        """Return the verdict that a node is probably the cause."""
        return self._verdict(Certainty.LIKELY, suspect, reasons)

    def _verdict(self, certainty: Certainty, suspect: Suspect, reasons: Iterable[str]) -> Verdict:
        return Verdict(certainty=certainty, suspects=(suspect,), reasons=(*self._who_names(suspect.node), *reasons))

    def open_between(self, nodes: Iterable[Node], reason: str) -> Verdict:
        """Return an open verdict on some of the nodes: those that most others name, then the lowest numbers."""
        ordered = sorted(nodes, key=lambda node: (-len(self.accusations.accusers(node)), node.number))
        suspects = tuple(map(self.suspect, ordered[:MOST_SUSPECTS]))
        return Verdict(certainty=Certainty.OPEN, suspects=suspects, reasons=(reason,))

    def first_of(self, nodes: Sequence[Node], why_open: str) -> Verdict:
        """Return the verdict on nodes that may each be the cause: the best one is likely, else the cause is open."""
        node = self.best(nodes)
        if node is None:
            return self.open_between(nodes, why_open)
        return self.likely(self.suspect(node), *self.doubts(node))

    def suspect(self, node: Node) -> Suspect:
        """Return a node as a suspect, with the rank that it or others name."""
        if node.failure:
            return Suspect(node=node, rank_id=node.failure.rank_id, sentence=node.failure.sentence)
        return Suspect(node=node, rank_id=self.accusations.rank_of(node), sentence=node.problem or node.state)

    def doubts(self, node: Node) -> Iterator[str]:
        """Yield the reasons why the failure of a node may be a consequence after all."""
        named = self.accusations.ends()
        if named and node not in self.accusations.targets():
            yield f"other nodes name {titles(named)} instead"
        unexplained = self.unexplained(node)
        if unexplained:
            yield f"no final report from {titles(unexplained)}"
        if not node.is_current:
            yield "its report may be from an earlier run"

    def _who_names(self, node: Node) -> Iterator[str]:
        """Yield a reason that counts the ranks that name a node: "58 ranks on 31 nodes name it (EI0006, EI0002)"."""
        found = self.accusations.of(node)
        if found:
            ranks = {one.complaint.rank_id for one in found}
            codes = list(dict.fromkeys(one.complaint.code for one in found if one.complaint.code))[:MOST_CODES]
            nodes = counted(len(self.accusations.accusers(node)), "node")
            verb = "names" if len(ranks) == 1 else "name"
            yield f"{counted(len(ranks), 'rank')} on {nodes} {verb} it" + (f" ({', '.join(codes)})" if codes else "")


def alike(nodes: Iterable[Node]) -> list[list[Node]]:
    """Group nodes whose failures differ at most in numbers."""
    groups: dict[str, list[Node]] = {}
    for node in nodes:
        sentence = node.failure.sentence if node.failure else ""
        groups.setdefault(re.sub(r"\d+", "0", sentence), []).append(node)
    return list(groups.values())


def titles(nodes: Sequence[Node]) -> str:
    """Name nodes: "node 3, node 5, node 7 and 28 more"."""
    shown = [node.title for node in nodes[:MOST_SUSPECTS]]
    more = len(nodes) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _is_first(node: Node, other: Node) -> bool:
    return clocks.is_before(node, _failed_at(node), other, _failed_at(other))


def _failed_at(node: Node) -> Optional[float]:
    return node.failure.at if node.failure else None

"""The sentences about a job of several nodes on a screen and a page: the ends of its nodes, and their clocks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

import attrs

from ascend_runner.merge import clocks
from ascend_runner.merge.clocks import Difference
from ascend_runner.merge.model import Job, Node, Suspect, Verdict
from ascend_runner.text import counted, format_numbers

MOST_WRONG: Final = 3  # clocks that are named
# A job has the first of these states that any of its nodes has.
STATES: Final = ("failed", "expired", "stopped", "holding", "succeeded")


@attrs.frozen
class Group:
    """Nodes that one sentence describes, in the order of their numbers."""

    nodes: tuple[Node, ...]
    sentence: str


def state_of(job: Job) -> str:
    """Derive the state of a job from those of its nodes."""
    states = {node.state for node in job.nodes if node.has_report}
    return next((state for state in STATES if state in states), "unknown")


def others(job: Job, verdict: Verdict) -> list[Group]:
    """Group the nodes that are not named as a cause by how they ended; those without a report come first."""
    named = {node.number for one in verdict.suspects for node in (one.node, *one.alike)}
    groups: dict[str, list[Node]] = {}
    for node in job.nodes:
        if node.number not in named:
            groups.setdefault(kind_of(node), []).append(node)
    found = [Group(tuple(nodes), sentence_of(nodes[0])) for nodes in groups.values()]
    return sorted(found, key=lambda group: (group.nodes[0].has_report, -len(group.nodes), group.nodes[0].number))


def sentence_of(node: Node) -> str:
    """Describe the end of a node."""
    if node.failure:
        return node.failure.sentence or "failed"
    words = {"stopped": "stopped by a signal", "expired": "stopped at the time limit"}
    return node.problem or words.get(node.state, node.state)


def kind_of(node: Node) -> str:
    """Return a key that nodes that ended alike share: their sentences differ at most in numbers."""
    return re.sub(r"\d+", "0", sentence_of(node))


def _reference(job: Job) -> Node | None:
    """Return the node whose clock is known best, by which the others are corrected, or None if none is known."""
    known = [node for node in job.nodes if node.has_report]

    def quality(node: Node) -> tuple[bool, bool, bool]:
        return node.clock.max_error is None, node.clock.disk_offset is None, not node.steps

    best = min(known, key=quality, default=None)
    return best if best and not all(quality(best)) else None


def corrections(job: Job) -> dict[int, Difference]:
    """Return how far the clock of each node is ahead of the reference, for the nodes where that is known."""
    first = _reference(job)
    if first is None:
        return {}
    found = {node.number: clocks.difference(node, first) for node in job.nodes if node.has_report}
    return {number: one for number, one in found.items() if one.is_known}


def _deviating(job: Job) -> list[tuple[Node, Difference]]:
    """Return the nodes whose clocks are certainly wrong, with how far they are ahead, the worst first."""
    found = corrections(job)
    wrong = [(node, found[node.number]) for node in job.nodes if node.number in found]
    wrong = [(node, one) for node, one in wrong if one.low > 0 or one.high < 0]
    return sorted(wrong, key=lambda pair: -abs(pair[1].middle))


def _agreement(nodes: Sequence[Node]) -> float | None:
    """Return by how many seconds the clocks of synchronized nodes may differ, or None if fewer than two are."""
    errors = sorted((node.clock.max_error for node in nodes if node.clock.max_error is not None), reverse=True)
    return errors[0] + errors[1] if len(errors) > 1 else None


def clock_sentences(job: Job) -> Iterator[str]:
    """Yield sentences on how well the clocks agree: "124 nodes synchronized to within 0.8 s"."""
    nodes = [node for node in job.nodes if node.has_report]
    synchronized = [node for node in nodes if node.clock.max_error is not None]
    bound = _agreement(synchronized)
    if bound is not None:
        yield f"{counted(len(synchronized), 'node')} synchronized to within {_seconds(bound)}"
    known = corrections(job)
    unknown = [node for node in nodes if node.number not in known]
    wrong = _deviating(job)
    for node, ahead in wrong[:MOST_WRONG]:
        direction = "ahead" if ahead.middle > 0 else "behind"
        yield (
            f"{node.title} is {_seconds(abs(ahead.middle))} {direction} ({ahead.source}, +-{_seconds(ahead.margin)})"
        )
    if len(wrong) > MOST_WRONG:
        yield f"{counted(len(wrong) - MOST_WRONG, 'more clock')} known to be wrong"
    first = _reference(job)
    for node in nodes:
        source = clocks.contradiction(node, first) if first else ""
        if source:
            yield f"{node.title}: the difference {source} contradicts this"
    if unknown and len(unknown) == len(nodes):
        yield "the differences are unknown, so times are not used as evidence"
    elif unknown:
        yield f"unknown for {nodes_named(unknown)}"


def place(suspect: Suspect, job: Job) -> str:
    """Return the name of a suspect: "rank 170 on node 21 (worker-21), device 2"."""
    if suspect.rank_id is None:
        return suspect.node.title
    found = job.places.get(suspect.rank_id)
    device = f", device {found.device_id}" if found else ""
    return f"rank {suspect.rank_id} on {suspect.node.title}{device}"


def nodes_named(nodes: Sequence[Node]) -> str:
    """List nodes: "node 3 (worker-3)", "nodes 3, 7, 9-36"."""
    if len(nodes) == 1:
        return nodes[0].title
    return f"nodes {format_numbers([node.number for node in nodes])}"


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 0.1 else f"{seconds * 1000:.0f} ms"  # noqa: PLR2004  below that, tenths are too coarse


def rank_of(suspect: Suspect) -> int:
    """Return the rank whose log to show, or -1 if none is known."""
    if suspect.rank_id is not None:
        return suspect.rank_id
    return next(iter(suspect.node.rank_ids), -1)

"""Decides which node caused the failure of a job.

What nodes report about themselves and each other takes precedence over times: in a synchronous job every rank fails
within seconds, and the first to complain is often a victim. Times count only if the clocks are known to be close
enough. A cause is certain only if all other nodes are accounted for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import attrs

from ascend_runner.diagnosis.finding import Certainty
from ascend_runner.diagnosis.root_cause import Suspicion
from ascend_runner.merge import mentions, summary
from ascend_runner.merge.case import UNWRITTEN, Case
from ascend_runner.merge.model import Job, Node, Suspect, Verdict
from ascend_runner.text import abbreviated, counted

MOST_SUSPECTS: Final = 3  # named if the cause is open
MOST_CODES: Final = 3  # codes in a sentence
FEWEST_THAT_NAME: Final = 2  # nodes; a single one may itself be the cause
RARE: Final = 4  # if at most a quarter of the ranks hang in a place, they have kept the others waiting
NOTHING: Final = Verdict(certainty=Certainty.CERTAIN)


def judge(job: Job) -> Verdict:
    """Decide which node caused the failure of a job; the verdict has no suspect if none failed."""
    case = Case(job=job, mentions=mentions.find(job))
    return next(filter(None, (rule(case) for rule in RULES)), NOTHING)


def _failed_by_itself(case: Case) -> Verdict | None:
    own = case.failed(Suspicion.FAILED_BY_ITSELF)
    if not own:
        return None
    earlier = [node for node in case.missing if case.was_silent_before_failures(node, own)]
    if len(earlier) == 1:
        return _likely(case, _suspect(case, earlier[0]), "its output ends long before the first failure")
    kinds = _alike(own)
    contradicting = _named_instead(case, own)
    if contradicting:
        return _open_between(
            case, [*(kind[0] for kind in kinds), *contradicting], f"other nodes name {_titles(contradicting)}"
        )
    if len(kinds) == 1:
        return _failed_alike(case, own)
    first = case.first(own)
    named = [node for node in own if case.is_named(node)]
    if first and named and first not in named:
        return _open_between(
            case, [first, *named], f"{_titles([first])} failed first, but other nodes name {_titles(named)}"
        )
    return _first_of(case, own, "several nodes failed independently")


def _named_instead(case: Case, own: Sequence[Node]) -> list[Node]:
    """Return the nodes that others name and that may have failed before those that failed by themselves."""
    if case.lost:
        return case.lost
    others = [node for node in case.mentions.ends() if node.failure and node not in own]
    return [] if any(map(case.is_named, own)) else others


def _failed_alike(case: Case, own: Sequence[Node]) -> Verdict:
    """Judge failures that are alike: that kind of failure is the cause, whichever node failed first."""
    node = case.best(own) or own[0]
    suspect = attrs.evolve(_suspect(case, node), alike=tuple(one for one in own if one is not node))
    if len(own) == len(case.job.nodes):
        return _certain(case, suspect, "all nodes failed in the same way")
    reasons = ["no other node has an error of its own"]
    if len(own) > 1:
        reasons.append(f"{counted(len(own), 'node')} failed in the same way")
    doubts = list(_doubts(case, node))
    is_certain = len(own) == 1 and not doubts and bool(node.failure and node.failure.is_certain)
    return _certain(case, suspect, *reasons) if is_certain else _likely(case, suspect, *reasons, *doubts)


def _lost(case: Case) -> Verdict | None:
    """Judge the nodes that others name and that have not reported an end."""
    lost = case.lost
    if not lost:
        return None
    silent = _first_to_fall_silent(case)
    if silent and (silent not in lost or len(lost) > 1):
        return _likely(
            case, _suspect(case, silent), "its output ends long before that of the other nodes without a report"
        )
    if len(lost) > 1:
        return _open_between(case, lost, "other nodes name several nodes without a final report")
    return _lost_or_a_rival(case, lost[0]) or _only_lost(case, lost[0])


def _lost_or_a_rival(case: Case, node: Node) -> Verdict | None:
    """Return an open verdict if failures of other nodes may be the cause as well as a lost node, or None."""
    killed = [one for one in case.failed(Suspicion.ENDED_FROM_OUTSIDE) if case.is_named(one)]
    if killed:
        return _open_between(case, [node, *killed], "ranks of another node were killed")
    ends = case.failed(Suspicion.ITSELF_OR_A_PEER)
    if all(one in ends for one in case.mentions.that_name(node)):
        return _open_between(case, [node, *ends], "the error may be at either end of the connection")
    return None


def _only_lost(case: Case, node: Node) -> Verdict:
    others = [one for one in case.mentions.ends() if one is not node]
    is_unanimous = not others and len(case.mentions.that_name(node)) >= min(FEWEST_THAT_NAME, len(case.job.nodes) - 1)
    rivals = [*case.failed(Suspicion.ENDED_FROM_OUTSIDE, Suspicion.ENDED_SILENTLY), *case.unexplained(node)]
    if is_unanimous and not rivals and case.was_silent_before_complaints(node):
        return _certain(case, _suspect(case, node), f"its output ends more than {UNWRITTEN:g} s before any complaint")
    reasons = [f"other nodes also name {_titles(others)}"] if others else []
    return _likely(case, _suspect(case, node), *reasons)


def _first_to_fall_silent(case: Case) -> Node | None:
    """Return the node without a report whose output ends long before that of the others."""
    ends = sorted((node.log_end, node.number, node) for node in case.missing if node.log_end is not None)
    is_known = len(ends) == len(case.missing) > 1
    return ends[0][2] if is_known and ends[1][0] > ends[0][0] + UNWRITTEN else None


def _one_of(suspicion: Suspicion) -> Callable[[Case], Verdict | None]:
    """Return the rule for failures of a kind that may be a consequence: they are never certain."""

    def rule(case: Case) -> Verdict | None:
        found = case.failed(suspicion)
        if not found:
            return None
        named = [node for node in case.mentions.ends() if node not in found]
        if named and not any(map(case.is_named, found)):
            return _open_between(case, [*found, *named], "the nodes that failed are not those that other nodes name")
        return _first_of(case, found, "several nodes failed, possibly as a consequence")

    return rule


def _hung_apart(case: Case) -> Verdict | None:
    """Judge a hang: ranks in a place that few ranks are in have kept the others waiting."""
    places: dict[tuple[str, ...], list[tuple[Node, int]]] = {}
    for node in case.job.nodes:
        for stack in node.hang:
            places.setdefault(stack.frames, []).extend((node, rank_id) for rank_id in stack.rank_ids)
    total = sum(map(len, places.values()))
    rare = [found for found in sorted(places.values(), key=len) if len(found) * RARE <= total]
    ranks: dict[int, tuple[Node, int]] = {}  # the first of each node
    for node, rank_id in (one for found in rare for one in found):
        ranks.setdefault(node.number, (node, rank_id))
    if not 0 < len(ranks) <= MOST_SUSPECTS:
        return None
    sentence = "hung in a different place than most ranks"
    suspects = [Suspect(node=node, rank_id=rank_id, sentence=sentence) for node, rank_id in ranks.values()]
    reason = f"judged by the stacks of {counted(total, 'rank')}"
    if len(suspects) == 1 and not case.missing:
        return _likely(case, suspects[0], reason)
    return Verdict(certainty=Certainty.OPEN, suspects=tuple(suspects), reasons=(reason,))


def _named(case: Case) -> Verdict | None:
    """Judge the nodes that others name and that report no failure of their own."""
    named = case.mentions.ends() or case.mentions.named()
    if not named:
        return None
    if len(named) == 1 and not case.missing:
        return _likely(case, _suspect(case, named[0]), "no node has an error of its own")
    return _open_between(case, [*named, *case.missing], "no node has an error of its own")


def _left(case: Case) -> Verdict | None:
    """Judge the nodes without a report, or else those that report a lost peer without naming it."""
    failed = [node for node in case.job.nodes if node.failure]
    if not failed:
        return None
    reason = "no node has an error of its own"
    if len(case.missing) == 1:
        return _likely(case, _suspect(case, case.missing[0]), reason)
    return _open_between(case, case.missing or failed, reason)


# The strongest evidence first.
RULES: Final = (
    _failed_by_itself,
    _lost,
    _one_of(Suspicion.ENDED_FROM_OUTSIDE),
    _hung_apart,
    _one_of(Suspicion.ENDED_SILENTLY),
    _one_of(Suspicion.ITSELF_OR_A_PEER),
    _named,
    _left,
)


# --- Verdicts ---------------------------------------------------------------------------------------------------------


def _certain(case: Case, suspect: Suspect, *reasons: str) -> Verdict:
    """Return the verdict that a node is the cause."""
    return _on(case, Certainty.CERTAIN, suspect, reasons)


def _likely(case: Case, suspect: Suspect, *reasons: str) -> Verdict:
    """Return the verdict that a node is probably the cause."""
    return _on(case, Certainty.LIKELY, suspect, reasons)


def _on(case: Case, certainty: Certainty, suspect: Suspect, reasons: Iterable[str]) -> Verdict:
    return Verdict(certainty=certainty, suspects=(suspect,), reasons=(*_who_names(case, suspect.node), *reasons))


def _open_between(case: Case, nodes: Iterable[Node], reason: str) -> Verdict:
    """Return an open verdict on some of the nodes: those that most others name, then the lowest numbers."""
    ordered = sorted(nodes, key=lambda node: (-len(case.mentions.that_name(node)), node.number))
    suspects = tuple(_suspect(case, node) for node in ordered[:MOST_SUSPECTS])
    return Verdict(certainty=Certainty.OPEN, suspects=suspects, reasons=(reason,))


def _first_of(case: Case, nodes: Sequence[Node], why_open: str) -> Verdict:
    """Return the verdict on nodes that may each be the cause: the best one is likely, else the cause is open."""
    node = case.best(nodes)
    if node is None:
        return _open_between(case, nodes, why_open)
    return _likely(case, _suspect(case, node), *_doubts(case, node))


def _suspect(case: Case, node: Node) -> Suspect:
    """Return a node as a suspect, with the rank that it or others name."""
    if node.failure:
        return Suspect(node=node, rank_id=node.failure.rank_id, sentence=node.failure.sentence)
    return Suspect(node=node, rank_id=case.mentions.rank_of(node), sentence=node.problem or node.state)


def _doubts(case: Case, node: Node) -> Iterator[str]:
    """Yield the reasons why the failure of a node may be a consequence after all."""
    named = case.mentions.ends()
    if named and node not in case.mentions.named():
        yield f"other nodes name {_titles(named)} instead"
    unexplained = case.unexplained(node)
    if unexplained:
        yield f"no final report from {_titles(unexplained)}"
    if not node.is_current:
        yield "its report may be from an earlier run"


def _who_names(case: Case, node: Node) -> Iterator[str]:
    """Yield a reason that counts the ranks that name a node: "58 ranks on 31 nodes name it (EI0006, EI0002)"."""
    found = case.mentions.of(node)
    if found:
        ranks = {one.complaint.rank_id for one in found}
        codes = list(dict.fromkeys(one.complaint.code for one in found if one.complaint.code))[:MOST_CODES]
        nodes = counted(len(case.mentions.that_name(node)), "node")
        verb = "names" if len(ranks) == 1 else "name"
        yield f"{counted(len(ranks), 'rank')} on {nodes} {verb} it" + (f" ({', '.join(codes)})" if codes else "")


def _alike(nodes: Iterable[Node]) -> list[list[Node]]:
    """Group nodes whose failures differ at most in numbers."""
    groups: dict[str, list[Node]] = {}
    for node in nodes:
        groups.setdefault(summary.kind_of(node), []).append(node)
    return list(groups.values())


def _titles(nodes: Sequence[Node]) -> str:
    return abbreviated([node.title for node in nodes], MOST_SUSPECTS)

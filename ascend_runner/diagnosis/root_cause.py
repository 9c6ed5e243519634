"""Decides which rank caused the failure of a job, and how certain that is.

The first rank to end is not always the first to fail: a rank that fails closes its connections while it still cleans
up, and a peer that notices ends earlier. So the rank with the strongest evidence is named, also where the runner
stopped it, and the first to end where nothing is stronger.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from ascend_runner.diagnosis.codes import Kind
from ascend_runner.diagnosis.finding import Certainty, Peer, RootCause
from ascend_runner.diagnosis.first_cause import Death, Suspicion, suspicion

CANDIDATES: Final = 3  # ranks named where the cause is open


def find(deaths: Sequence[Death], first_exit: int, suspected: Peer | None) -> RootCause:
    """Find the root cause among `deaths`, which are in the order of their ends and contain `first_exit`."""
    first = next(death for death in deaths if death.rank_id == first_exit)
    root = min(deaths, key=lambda death: (_weight(death), death is not first, death.is_stopped))
    alike = [death for death in deaths if _is_alike(death, root)]
    certainty = _certainty(root, first, [death for death in deaths if death not in alike])
    candidates = [] if suspected is None or suspected.rank_id is None else [suspected.rank_id]
    candidates += _outliers(deaths) if certainty is Certainty.OPEN else []
    candidates += [death.rank_id for death in deaths if suspicion(death) is suspicion(root)]
    if certainty is Certainty.LIKELY:
        candidates = [rank_id for rank_id in candidates if rank_id not in {death.rank_id for death in alike}]

    return RootCause(
        rank_id=root.rank_id,
        summary=root.summary,
        certainty=certainty,
        first_summary=first.summary,
        is_first_a_consequence=suspicion(first) is Suspicion.REPORTS_A_PEER,
        may_be_a_peer=suspicion(root) >= Suspicion.ITSELF_OR_A_PEER,
        is_a_consequence=suspicion(root) is Suspicion.REPORTS_A_PEER,
        alike=tuple(sorted(death.rank_id for death in alike)),
        candidates=tuple(dict.fromkeys(candidates))[:CANDIDATES] if certainty is not Certainty.CERTAIN else (),
    )


def is_open(failed: Death, living: Iterable[Death]) -> bool:
    """Whether a rank reports what may be a lost peer, and no living rank has reported a failure of its own.

    `living` is read only as far as necessary: to search the output of all ranks can take longer than to stop them.
    """
    if suspicion(failed) not in {Suspicion.ITSELF_OR_A_PEER, Suspicion.REPORTS_A_PEER}:
        return False
    return all(suspicion(death) is not Suspicion.FAILED_BY_ITSELF for death in living)


def _weight(death: Death) -> int:
    """Order ranks by the strength of their evidence, the strongest first.

    A rank that was stopped may have printed an error that it survived, so that it yields to one that somebody killed.
    """
    found = suspicion(death)
    is_weaker = death.is_stopped and found is Suspicion.FAILED_BY_ITSELF
    return 2 * found + (3 if is_weaker else 0)


def _certainty(root: Death, first: Death, others: Sequence[Death]) -> Certainty:
    found = suspicion(root)
    rivals = [death for death in others if suspicion(death) is found]
    if found is Suspicion.REPORTS_A_PEER or (found is Suspicion.ITSELF_OR_A_PEER and rivals):
        return Certainty.OPEN
    if root.evidence.is_connection and any(death.is_stopped for death in others):
        return Certainty.OPEN  # the peer may have been stopped while it still cleaned up after its failure
    if found is not Suspicion.FAILED_BY_ITSELF or rivals:
        return Certainty.LIKELY
    if root is first or (root.evidence.kind is Kind.ROOT and not (root.is_stopped and root.ending.signum)):
        return Certainty.CERTAIN
    return Certainty.LIKELY


def _outliers(deaths: Sequence[Death]) -> list[int]:
    """Return the few stopped ranks whose last line differs, apart from numbers, from that of all others.

    The only rank that writes is usually the one that logs the steps, unless its line has no number.
    """
    by_line: dict[str, list[int]] = {}
    for death in deaths:
        if suspicion(death) is Suspicion.STOPPED:
            by_line.setdefault(re.sub(r"\d+", "0", "".join(death.evidence.last_lines[-1:])), []).append(death.rank_id)
    if len(by_line) != 2:  # noqa: PLR2004  a group, and what differs from it
        return []
    (line, few), (usual, most) = sorted(by_line.items(), key=lambda group: len(group[1]))
    is_outlier = len(few) < min(len(most), CANDIDATES) and bool(line) and bool(usual or "0" not in line)
    return few if is_outlier else []


def _is_alike(death: Death, root: Death) -> bool:
    """Whether two ranks failed for the same reason: errors of their own that differ at most in numbers."""
    if death is root or suspicion(root) is not Suspicion.FAILED_BY_ITSELF:
        return death is root
    is_same = re.sub(r"\d+", "0", death.summary) == re.sub(r"\d+", "0", root.summary)
    return is_same and suspicion(death) is suspicion(root)

"""Which of several nodes' failures was the first, and how sure that is. Pure.

The clocks of two machines say nothing of each other. A node says how old its failure is, so the failure is no later
than the arrival less this age, and no earlier than that less the time that the message can have been on the way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs

from ascend_runner.link.messages import MOST_NAMED, Diagnosed, Failure, FailureClass, Identity
from ascend_runner.record.nodes import JobVerdict
from ascend_runner.text import signal_name

ORDER: Final = tuple(FailureClass)  # a class is more of a cause than those after it
LIKELY: Final = "likely"
CERTAINTIES: Final = ("open", LIKELY, "certain")
MOST_STATUS: Final = 255


@attrs.frozen(kw_only=True)
class Candidate:
    """The failure of a node in an attempt."""

    identity: Identity
    failure: Failure
    diagnosed: Diagnosed | None = None
    earliest: float  # on the hub's clock
    latest: float

    @property
    def kind(self) -> FailureClass:
        """How much of a cause it is, as far as that is known."""
        return self.diagnosed.kind if self.diagnosed else self.failure.kind


def first_of(candidates: Sequence[Candidate]) -> tuple[Candidate, tuple[Candidate, ...]]:
    """Return the first cause, and the others that may have been the first as well."""
    best = min(ORDER.index(candidate.kind) for candidate in candidates)
    same = sorted(
        (candidate for candidate in candidates if ORDER.index(candidate.kind) == best),
        key=lambda candidate: (candidate.latest, candidate.identity.node),
    )
    return same[0], tuple(other for other in same[1:] if other.earliest <= same[0].latest)


def verdict_on(attempt: int, candidates: Sequence[Candidate], missing: tuple[int, ...]) -> JobVerdict:
    """Return the verdict on an attempt that has failed; `missing` are nodes that were not heard."""
    first, tied = first_of(candidates)
    others = [candidate for candidate in candidates if candidate not in (first, *tied)]
    found = first.diagnosed or _undiagnosed(first)
    most = "certain" if first.kind is FailureClass.OWN and not (tied or missing) else LIKELY
    if first.kind is FailureClass.PEER or tied:
        most = CERTAINTIES[0]
    said = found.certainty if found.certainty in CERTAINTIES else CERTAINTIES[0]
    return JobVerdict(
        attempt=attempt,
        node=first.identity.node,
        rank_id=first.failure.rank_id if found.rank_id is None else found.rank_id,
        sentence=found.sentence,
        kind=first.kind.value,
        certainty=min(said, most, key=CERTAINTIES.index),
        status=exit_status(found.status),
        lines=found.lines,
        log=found.log,
        means=found.means,
        next=found.next,
        pod=first.identity.pod,
        address=first.identity.address,
        tied=tuple(sorted(other.identity.node for other in tied)),
        failed_too=tuple(sorted(other.identity.node for other in others))[:MOST_NAMED],
        missing=missing,
    )


def stopped_by(attempt: int, node: int, signum: int, *, is_sure: bool) -> JobVerdict:
    """Return the verdict on an attempt that a stop signal to a node has ended."""
    return JobVerdict(
        attempt=attempt,
        node=node,
        sentence=f"stopped by {signal_name(signum)} on node {node}",
        certainty="certain" if is_sure else LIKELY,
        status=128 + signum,
    )


def exit_status(status: int) -> int:
    """Return an exit status that no failure turns into a success, whatever a message says."""
    return status if 0 < status <= MOST_STATUS else 1


def _undiagnosed(candidate: Candidate) -> Diagnosed:
    failure = candidate.failure
    return Diagnosed(rank_id=failure.rank_id, sentence=failure.ending, certainty=LIKELY, status=failure.status)

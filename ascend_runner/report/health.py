"""The findings about this node, as members of the report and as lines after a failure. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ascend_runner.observations.rank_record import Outcome
from ascend_runner.report.document import iso
from ascend_runner.supervision.causes import FindingKind, NodeFinding
from ascend_runner.text import counted, duration

MOST_SHOWN: Final = 3  # after a failure; the report has all
CURRENT: Final = frozenset({FindingKind.UNHEALTHY, FindingKind.PRECHECK})


def member(finding: NodeFinding) -> dict[str, object]:
    """Return a finding for the report."""
    return {
        "subject": finding.subject,
        "kind": finding.kind.value,
        "sentence": finding.sentence,
        "is_error": finding.is_error,
        "at": iso(finding.at),
    }


def conditions(findings: Iterable[NodeFinding]) -> list[dict[str, object]]:
    """Return the present problems of the node, for the conditions of the job."""
    return [
        {
            "condition": finding.kind.value,
            "sentence": finding.sentence,
            "is_error": finding.is_error,
            "since": iso(finding.at),
        }
        for finding in findings
        if finding.kind is FindingKind.UNHEALTHY
    ]


def before_failure(outcome: Outcome) -> list[str]:
    """Return lines on the problems of this node before a rank failed or the job hung, errors first."""
    if not (outcome.cause and outcome.cause.may_be_the_node):
        return []
    failed = outcome.failed
    ends = [rank.started_after + rank.seconds for rank in ([failed] if failed else outcome.ranks)]
    failed_at = outcome.started_at + min(ends, default=0.0)
    relevant = [one for one in outcome.findings if one.kind in CURRENT and one.at <= failed_at]
    relevant.sort(key=lambda finding: (not finding.is_error, -finding.at))
    lines = [f"{finding.sentence}, {duration(failed_at - finding.at)} before" for finding in relevant[:MOST_SHOWN]]
    if relevant[MOST_SHOWN:]:
        lines.append(f"{counted(len(relevant) - MOST_SHOWN, 'further finding')} in the report")
    return [f"  {'     ' if number else 'node '}  {line}" for number, line in enumerate(lines)]

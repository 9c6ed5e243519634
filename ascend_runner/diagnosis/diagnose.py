"""Turns the evidence about failed ranks into findings: one for each rank, and the peer that all of them suspect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Optional

import attrs

from ascend_runner.diagnosis import endings
from ascend_runner.diagnosis.endings import Circumstances
from ascend_runner.diagnosis.finding import Finding, SuspectedPeer
from ascend_runner.diagnosis.first_cause import Death, Place, located, suspected_peer


@attrs.frozen(kw_only=True)
class Diagnosis:
    """Why ranks failed: a finding for each rank id, and the peer that all of them report, if any."""

    findings: Mapping[int, Finding] = attrs.field(factory=dict)
    suspected_peer: Optional[SuspectedPeer] = None


def diagnose(deaths: Sequence[Death], circumstances: Circumstances, places: Mapping[int, Place]) -> Diagnosis:
    """Explain why ranks failed; `places` holds the known server and device of each rank of the whole job."""
    return Diagnosis(
        findings={death.rank_id: _finding(death, circumstances, places) for death in deaths},
        suspected_peer=suspected_peer(deaths, places),
    )


def _finding(death: Death, circumstances: Circumstances, places: Mapping[int, Place]) -> Finding:
    evidence, code = death.evidence, death.evidence.code
    return Finding(
        meaning=endings.meaning(death.ending, circumstances),
        exception=evidence.exception,
        place=evidence.place,
        origin=evidence.origin,
        origin_place=evidence.origin_place,
        traceback=evidence.traceback,
        last_lines=evidence.last_lines,
        code=code.name if code else "",
        code_meaning=code.meaning if code else "",
        code_kind=code.kind.value if code else "",
        code_line=evidence.code_line,
        points_at=tuple(located(peer, places) for peer in evidence.peers),
        plog_path=evidence.plog_path,
        plog_error=evidence.plog_error,
    )

"""Turns the evidence about failed ranks into findings: one for each rank, and the peer that all of them suspect."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from signal import SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV
from typing import Final

import attrs

from ascend_runner.diagnosis import endings, root_cause
from ascend_runner.diagnosis.codes import Kind
from ascend_runner.diagnosis.endings import Circumstances
from ascend_runner.diagnosis.finding import Finding, Peer, RootCause
from ascend_runner.diagnosis.first_cause import Death, Place, Suspicion, located, suspected_peer, suspicion
from ascend_runner.supervision.events import Ending


@attrs.frozen(kw_only=True)
class Diagnosis:
    """Why ranks failed: a finding for each rank id, the rank that caused it, and the peer that all report, if any.

    `root` is None where no rank has ended by itself first.
    """

    findings: Mapping[int, Finding]
    suspected_peer: Peer | None
    root: RootCause | None


def diagnose(
    deaths: Sequence[Death],
    circumstances: Circumstances,
    places: Mapping[int, Place],
    first_exit: int | None = None,
) -> Diagnosis:
    """Explain why ranks failed.

    `deaths` are in the order of their ends, `places` holds the known server and device of each rank of the whole job,
    and `first_exit` is the rank that ended first by itself, if any did.
    """
    suspected = suspected_peer(deaths, places)
    return Diagnosis(
        findings={
            death.rank_id: _finding(death, circumstances, places)
            for death in deaths
            if suspicion(death) is not Suspicion.STOPPED
        },
        suspected_peer=suspected,
        root=None if first_exit is None else root_cause.find(deaths, first_exit, suspected),
    )


def _finding(death: Death, circumstances: Circumstances, places: Mapping[int, Place]) -> Finding:
    evidence = death.evidence
    return attrs.evolve(
        evidence,
        meaning=_meaning(death, circumstances),
        code_meaning=_code_meaning(evidence, circumstances),
        points_at=tuple(located(peer, places) for peer in evidence.points_at),
    )


def _code_meaning(evidence: Finding, circumstances: Circumstances) -> str:
    package = _PACKAGE.search(evidence.code_line) if evidence.code == "No module named" else None
    meaning = f"{evidence.code_meaning}: {package[1]}" if package else evidence.code_meaning
    return "; ".join(filter(None, (meaning, endings.beside(evidence.code, circumstances))))


_PACKAGE: Final = re.compile(r"No module named '?([\w.]+)", re.IGNORECASE)


def _meaning(death: Death, circumstances: Circumstances) -> str:
    """Explain how a rank ended.

    That of one that was stopped, or that has an exit status, is the crash that it reports, which may be its child's.
    """
    evidence, ending = death.evidence, death.ending
    if not endings.signal_behind(ending) or (death.is_stopped and ending.signum not in endings.CRASHES):
        ending = Ending(signum=next((signum for form, signum in _CRASHES if form.match(evidence.exception)), 0))
    is_consequence = evidence.kind is Kind.SECONDARY
    return endings.meaning(
        ending,
        circumstances,
        evidence.exception,
        has_stack=evidence.has_native_stack,
        is_consequence=is_consequence,
    )


_CRASHES: Final = tuple(
    (re.compile(pattern), signum)
    for pattern, signum in (
        (r"(?:Fatal Python error|Signal): Segmentation fault|SIGSEGV|Caught signal 11\b|Segfault", SIGSEGV),
        (r"(?:Fatal Python error|Signal): Bus error|SIGBUS|Caught signal 7\b", SIGBUS),
        (r"(?:Fatal Python error|Signal): Aborted|SIGABRT|(?:std|c10)::\w+", SIGABRT),
        (r"\w+\(\): |(?:\S+:\d+\] )?Check failed|double free|corrupted (?:size|double)", SIGABRT),
        (r"terminate called|pure virtual", SIGABRT),
        (r"(?:Fatal Python error|Signal): Illegal instruction|SIGILL", SIGILL),
        (r"(?:Fatal Python error|Signal): Floating point exception|SIGFPE", SIGFPE),
        (r"Fatal Python error: ", SIGABRT),
    )
)

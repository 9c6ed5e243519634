"""Turns what the probes find in each round into findings: one when a defect appears, and one when it is gone. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs

from ascend_runner.supervision.findings import FindingKind, NodeFinding

# Seconds for which a defect that often disappears by itself has to last. It is less than a minute, so that with the
# default interval the second inspection reports it.
CONFIRM_AFTER: Final = 55.0


@attrs.frozen(kw_only=True)
class Defect:
    """A defect of this node. `subject` identifies it; `sentence` describes it in the past tense."""

    subject: str
    sentence: str
    is_error: bool = False
    may_pass: bool = False


@attrs.define
class _Seen:
    defect: Defect
    since: float
    is_reported: bool = False


@attrs.define
class Watchlist:
    """The present defects by probe. `at` is in seconds since the epoch."""

    _seen: dict[str, dict[str, _Seen]] = attrs.field(init=False, factory=dict)
    _hangs: dict[str, int] = attrs.field(init=False, factory=dict)  # hangs in a row, by probe

    def note(self, probe: str, defects: Sequence[Defect], at: float) -> list[NodeFinding]:
        """Record the defects that a probe has found in this round; return findings on those that are new or gone."""
        self._hangs[probe] = 0
        before, now = self._seen.get(probe, {}), {}
        findings = []
        for defect in defects:
            seen = before.get(defect.subject) or _Seen(defect, at)
            now[defect.subject] = seen
            is_due = not defect.may_pass or at - seen.since >= CONFIRM_AFTER
            is_worse = defect.is_error and not seen.defect.is_error
            if is_due and (is_worse or not seen.is_reported):
                seen.defect, seen.is_reported = defect, True
                findings.append(
                    NodeFinding(
                        subject=defect.subject, sentence=defect.sentence, at=seen.since, is_error=defect.is_error
                    )
                )
        self._seen[probe] = now
        gone = [seen for subject, seen in before.items() if seen.is_reported and subject not in now]
        return findings + [_recovered(seen.defect, at) for seen in gone]

    def note_hang(self, probe: str, seconds: float, at: float) -> list[NodeFinding]:
        """Record that a probe has not returned in time: a notice the first time, a defect the second time in a row."""
        hangs = self._hangs.get(probe, 0) + 1
        sentence = f"{probe} did not respond within {seconds:g} s"
        if hangs == 1:
            findings = [notice(probe, sentence, at)]
        else:
            before = tuple(seen.defect for seen in self._seen.get(probe, {}).values())
            hung = Defect(subject=f"{probe}: hang", sentence=f"{sentence} twice in a row", is_error=True)
            findings = self.note(probe, (*before, hung), at)
        self._hangs[probe] = hangs
        return findings


def notice(subject: str, sentence: str, at: float) -> NodeFinding:
    """Return a finding about the inspection itself."""
    return NodeFinding(subject=subject, sentence=sentence, at=at, kind=FindingKind.NOTICE)


def _recovered(defect: Defect, at: float) -> NodeFinding:
    sentence = f"resolved: {defect.sentence}"
    return NodeFinding(subject=defect.subject, sentence=sentence, at=at, kind=FindingKind.RECOVERED)

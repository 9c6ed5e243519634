"""Detects that no line of a job has what --perf-* needs, which the user would not notice otherwise."""

from __future__ import annotations

from typing import Final

from ascend_runner.plan.job import JobSpec
from ascend_runner.services.matching import Match, Matcher
from ascend_runner.supervision.performance import Performance
from ascend_runner.supervision.slowdown import Rule

OPTIONS: Final = {Rule.RATIO: "--perf-threshold", Rule.DROP: "--perf-drop"}
NEEDED: Final = {
    Rule.RATIO: "reports hardware and end-to-end times",
    Rule.DROP: "reports a step",
}


class Unmatched:
    """The patterns and figures that no line of an attempt has matched so far."""

    def __init__(self, job: JobSpec, matcher: Matcher, performance: Performance) -> None:
        """Patterns that `matcher` has given up are left out: there was a warning about them."""
        self._matcher, self._performance = matcher, performance
        self._has_match = not job.perf_patterns
        # Most software prints its steps on the first or the last rank, so lines on other nodes need not match.
        ranks = {rank.rank_id for rank in job.ranks}
        self._is_expected = job.has_all_ranks or bool(ranks & {0, job.rank_size - 1})
        self._lines = "line of output" if job.has_all_ranks else "line of output on this node"

    def note(self, match: Match | None) -> None:
        """Record what was found in a line."""
        self._has_match = self._has_match or match is not None

    def sentence(self) -> str:
        """Name the patterns that no line has matched, and the options without effect; "" without any."""
        patterns = () if self._has_match else self._matcher.patterns
        rules = self._performance.not_applied
        if not (self._is_expected and (patterns or rules)):
            return ""
        options = " and ".join(OPTIONS[rule] for rule in rules)
        verb = "have" if len(rules) > 1 else "has"
        if patterns:
            names = " or ".join(f"'{pattern.text}'" for pattern in patterns)
            effect = f", so {options} {verb} no effect" if options else ""
            return f"no {self._lines} has matched --perf-pattern {names}{effect}"
        needed = " or ".join(NEEDED[rule] for rule in rules)
        return f"{options} {verb} no effect: no {self._lines} {needed} in a known format (--perf-pattern adds one)"

"""The content of a page: the verdict, its evidence and the ranks, worded for the page. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final

import attrs

from ascend_runner.html_report import evidence, likeness, ranks, timeline, topology
from ascend_runner.html_report.evidence import Evidence
from ascend_runner.html_report.likeness import Group
from ascend_runner.html_report.ranks import Rank, Row
from ascend_runner.html_report.sources import Sources
from ascend_runner.html_report.timeline import Timeline
from ascend_runner.html_report.topology import Topology
from ascend_runner.html_report.verdict import GOOD, Verdict, attempt_seconds, verdict_of
from ascend_runner.lifecycle import event_text
from ascend_runner.members import Members
from ascend_runner.observations import cause_text
from ascend_runner.supervision import outliers
from ascend_runner.text import clock, counted, duration, rank_list

# Bytes for the ends of all logs, and for the findings of the ranks: with these, a page of 8, 64 and 1,024 ranks stays
# below 50 KB, 200 KB and 2 MB.
LOG_ENDS: Final = (4_500, 800)  # for all, and for each rank in addition
FINDINGS: Final = (4_000, 200)
MOST_EVENTS: Final = 50
LONGEST_EVENT: Final = 200  # characters
MOST_COLUMNS: Final = 2  # columns of variables that differ by rank: the one that failed and another


@attrs.frozen(kw_only=True)
class Variables:
    """The variables set or changed by the runner: those that all ranks share, and those that differ."""

    shared: tuple[tuple[str, str], ...]
    columns: tuple[str, ...]
    differing: tuple[tuple[str, tuple[str, ...]], ...]
    left_out: str


@attrs.frozen(kw_only=True)
class Content:
    """Everything on a page. The members are its sections."""

    job: str
    verdict: Verdict
    evidence: Evidence | None
    findings: tuple[Group, ...]
    timeline: Timeline | None
    topology: Topology | None
    ranks: tuple[Row, ...]
    states: tuple[tuple[str, str], ...]
    stacks: tuple[Members, ...]
    log_ends: tuple[Group, ...]
    logs_left_out: str
    attempts: tuple[tuple[str, ...], ...]
    events: tuple[tuple[str, str, str], ...]
    variables: Variables
    masked: str
    made_at: str
    versions: tuple[tuple[str, str], ...]
    warnings: tuple[str, ...]
    links_logs: bool
    is_public: bool


def content_of(sources: Sources) -> Content:
    """Return the content of a page."""
    report, marks = sources.report, ranks.marks_of(sources.report.child("cause")) or _marks_of_quiet(sources)
    found = ranks.ranks_of([report], marks)
    count = len(found)
    culprit = _rank(found, report.child("cause").whole("rank_id"))
    first = _rank(found, report.child("cause").whole("first_exit"))
    log_ends, left_out = _log_ends(sources, [culprit.rank_id] if culprit else [*marks][:1], count)
    findings, _rest = likeness.within(list(_findings(report, culprit)), FINDINGS[0] + FINDINGS[1] * count)
    return Content(
        job=report.text("job_id"),
        verdict=verdict_of(sources),
        evidence=evidence.of_rank(report, culprit),
        findings=tuple(findings),
        timeline=timeline.draw(found, attempt_seconds(sources), first or culprit),
        topology=topology.draw(sources.table, found, marks, "ranks of other nodes"),
        ranks=tuple(ranks.rows(found)),
        states=tuple(ranks.states(found)),
        stacks=report.children("hang"),
        log_ends=tuple(log_ends),
        logs_left_out=rank_list(left_out),
        attempts=tuple(_attempts(report)),
        events=tuple(_events(sources)),
        variables=_variables(report, found),
        masked=_masked(sources),
        made_at=clock(sources.made_at),
        versions=_versions(report),
        warnings=report.texts("warnings"),
        links_logs=sources.links_logs and not sources.is_public,
        is_public=sources.is_public,
    )


def _versions(report: Members) -> tuple[tuple[str, str], ...]:
    schema = report.whole("schema_version")
    return ("ascend-runner", report.text("runner_version")), ("report format", str(schema))


def _masked(sources: Sources) -> str:
    """Count the secrets masked by the runner and for this page: "3 secrets", or "" if there are none."""
    count = (sources.report.whole("secrets_masked") or 0) + sources.masked
    return counted(count, "secret") if count > 0 and not sources.is_public else ""


def _log_ends(sources: Sources, first: Sequence[int], count: int) -> tuple[list[Group], tuple[int, ...]]:
    """Return the ends of the logs, that of the rank that stands out first, and the ranks whose logs are omitted."""
    ends = likeness.group(sources.log_ends, first)
    return likeness.within(ends, LOG_ENDS[0] + LOG_ENDS[1] * count)


def _marks_of_quiet(sources: Sources) -> dict[int, str]:
    quiet = outliers.quiet(*ranks.silences(sources.report, sources.made_at))
    return dict.fromkeys(sorted(quiet), ranks.QUIET)


def _rank(found: Sequence[Rank], rank_id: int | None) -> Rank | None:
    return next((rank for rank in found if rank.rank_id == rank_id), None)


def _findings(report: Members, culprit: Rank | None) -> Iterator[Group]:
    """Yield the reports of the other ranks that failed, equal ones once."""
    lines: dict[int, Sequence[str]] = {}
    for rank in report.children("ranks"):
        finding = rank.child("finding")
        line = finding.text("exception") or finding.text("code_line") or finding.text("meaning")
        if line and not (culprit and rank.whole("rank_id") == culprit.rank_id):
            lines[rank.whole("rank_id") or 0] = (line,)
    yield from likeness.group(lines)


def _attempts(report: Members) -> Iterator[tuple[str, ...]]:
    for one in report.children("attempts"):
        seconds = one.number("seconds")
        yield (
            str((one.whole("attempt") or 0) + 1),
            clock(one.moment("started_at")),
            "" if seconds is None else duration(seconds),
            cause_text.of_attempt(one) or GOOD,
            event_text.decision(one.members),
        )


def _events(sources: Sources) -> Iterator[tuple[str, str, str]]:
    for event in sources.events[-MOST_EVENTS:]:
        with suppress(AttributeError, KeyError, TypeError):
            at, state, text = event_text.described(event.members)
            yield at, state[:LONGEST_EVENT], text[:LONGEST_EVENT]


def _variables(report: Members, found: Sequence[Rank]) -> Variables:
    of_rank = {rank.whole("rank_id"): rank.child("variables") for rank in report.children("ranks")}
    names = sorted({name for variables in of_rank.values() for name in variables.members})
    values = {name: {variables.text(name) for variables in of_rank.values()} for name in names}
    shown = found[:MOST_COLUMNS]
    left_out = len(found) - len(shown)
    return Variables(
        shared=tuple((name, next(iter(values[name]))) for name in names if len(values[name]) == 1),
        columns=tuple(rank.title for rank in shown),
        differing=tuple(
            (name, tuple(of_rank[rank.rank_id].text(name) for rank in shown)) for name in names if len(values[name]) > 1
        ),
        left_out=counted(left_out, "further rank") if left_out else "",
    )

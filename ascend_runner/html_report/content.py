"""The content of a page: the verdict, its evidence and the ranks, worded for the page. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final, Optional

import attrs

from ascend_runner.html_report import likeness, ranks, timeline
from ascend_runner.html_report.likeness import Group
from ascend_runner.html_report.ranks import Rank, Row
from ascend_runner.html_report.sources import Sources
from ascend_runner.html_report.timeline import Timeline
from ascend_runner.html_report.verdict import GOOD, Verdict, clock, seconds_of, verdict_of
from ascend_runner.lifecycle import event_text
from ascend_runner.members import Members
from ascend_runner.rank_table import picture
from ascend_runner.text import counted, duration, rank_list

# Bytes for the ends of all logs, and for the findings of the ranks: with these, a page of 8, 64 and 1,024 ranks stays
# below 50 KB, 200 KB and 2 MB.
LOG_ENDS: Final = (6_000, 800)  # for all, and for each rank in addition
FINDINGS: Final = (4_000, 200)
EVIDENCE: Final = 8_000
MOST_TILES: Final = 1024  # servers of the topology
KINDS: Final = frozenset({"failed", "stopped", "succeeded", "running"})
MOST_EVENTS: Final = 50
LONGEST_EVENT: Final = 200  # characters
MOST_COLUMNS: Final = 2  # columns of variables that differ by rank: the one that failed and another


@attrs.frozen(kw_only=True)
class Evidence:
    """Why a rank failed: its traceback or last lines, their source and their meaning."""

    rank: Optional[Rank]
    lines: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]


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
    evidence: Optional[Evidence]
    findings: tuple[Group, ...]
    timeline: Optional[Timeline]
    topology: str  # SVG
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
    report, found = sources.report, ranks.ranks_of(sources.report)
    count = len(found)
    culprit = _rank(found, report.child("cause").whole("rank_id"))
    first = _rank(found, report.child("cause").whole("first_exit"))
    ends = likeness.group(sources.log_ends, first=[culprit.rank_id] if culprit else [])
    log_ends, left_out = likeness.within(ends, LOG_ENDS[0] + LOG_ENDS[1] * count)
    findings, _rest = likeness.within(list(_findings(report, culprit)), FINDINGS[0] + FINDINGS[1] * count)
    return Content(
        job=report.text("job_id"),
        verdict=verdict_of(sources, _members_of(report, culprit)),
        evidence=_evidence(report, culprit),
        findings=tuple(findings),
        timeline=timeline.draw(found, seconds_of(sources), first or culprit),
        topology=_topology(sources, found),
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
        versions=(("ascend-runner", report.text("runner_version")), ("report", str(report.whole("schema_version")))),
        warnings=report.texts("warnings"),
        links_logs=sources.links_logs and not sources.is_public,
        is_public=sources.is_public,
    )


def _masked(sources: Sources) -> str:
    """Count the secrets masked by the runner and for this page: "3 secrets", or "" if there are none."""
    count = (sources.report.whole("secrets_masked") or 0) + sources.masked
    return counted(count, "secret") if count > 0 and not sources.is_public else ""


def _topology(sources: Sources, found: Sequence[Rank]) -> str:
    """Return the picture of the rank table, with its texts escaped, or "" if there is none."""
    kinds = {rank.rank_id: rank.kind if rank.kind in KINDS else "other" for rank in found if rank.rank_id >= 0}
    is_small = sources.table and sources.table.server_count <= MOST_TILES
    return picture.draw(sources.table, "Rank table", kinds) if sources.table and is_small and kinds else ""


def _rank(found: Sequence[Rank], rank_id: Optional[int]) -> Optional[Rank]:
    return next((rank for rank in found if rank.rank_id == rank_id), None)


def _members_of(report: Members, rank: Optional[Rank]) -> Members:
    return next((members for members in report.children("ranks") if _is(members, rank)), Members())


def _is(members: Members, rank: Optional[Rank]) -> bool:
    return rank is not None and members.whole("rank_id") == rank.rank_id


def _evidence(report: Members, culprit: Optional[Rank]) -> Optional[Evidence]:
    found = _members_of(report, culprit)
    finding = found.child("finding")
    lines = finding.texts("excerpt") or finding.texts("last_lines")
    shown, _rest = likeness.within(likeness.group({0: lines}), EVIDENCE)
    facts = tuple((label, text) for label, text in _meanings(report, found) if text)
    return Evidence(rank=culprit, lines=shown[0].lines if shown else (), facts=facts) if lines or facts else None


def _meanings(report: Members, rank: Members) -> Iterator[tuple[str, str]]:
    finding, cause = rank.child("finding"), report.child("cause")
    place, code = finding.text("origin_place"), finding.text("code")
    yield "Origin", finding.text("origin") + (f" ({place})" if place and finding.text("origin") else "")
    yield "Meaning", finding.text("meaning")
    yield "Code", f"{code} ({finding.text('code_kind')}): {finding.text('code_meaning')}" if code else ""
    yield "Points at", ", ".join(filter(None, map(peer, finding.children("points_at"))))
    yield "Check first", peer(cause.child("suspected_peer"))
    first, culprit = cause.whole("first_exit"), cause.whole("rank_id")
    yield "Ended first", f"rank {first}" if first not in {None, culprit} else ""
    candidates = [rank_id for rank_id in cause.wholes("candidates") if rank_id != culprit]
    yield "Also possible", rank_list(candidates)
    yield "Plog", finding.text("plog_path")
    yield "First error", finding.text("plog_error")


def peer(members: Members) -> str:
    """Describe a peer by all that is known about it: "rank 3, device 3, server 10.0.0.5"."""
    rank_id, device = members.whole("rank_id"), members.whole("device_id")
    parts = (
        "" if rank_id is None else f"rank {rank_id}",
        "" if device is None else f"device {device}",
        f"server {members.text('server_id')}" if members.text("server_id") else "",
        f"address {members.text('device_ip')}" if members.text("device_ip") else "",
    )
    return ", ".join(filter(None, parts))


def _findings(report: Members, culprit: Optional[Rank]) -> Iterator[Group]:
    """Yield the reports of the other ranks that failed, equal ones once."""
    said: dict[int, Sequence[str]] = {}
    for rank in report.children("ranks"):
        finding = rank.child("finding")
        line = finding.text("exception") or finding.text("code_line") or finding.text("meaning")
        if line and not _is(rank, culprit):
            said[rank.whole("rank_id") or 0] = (line,)
    yield from likeness.group(said)


def _attempts(report: Members) -> Iterator[tuple[str, ...]]:
    for one in report.children("attempts"):
        seconds, delay = one.number("seconds"), one.number("delay")
        verdict = one.text("verdict").replace("_", " ")
        yield (
            str((one.whole("attempt") or 0) + 1),
            clock(one.moment("started_at")),
            "" if seconds is None else duration(seconds),
            one.child("cause").text("sentence") or GOOD,
            f"{verdict} in {duration(delay)}" if verdict == "restart" and delay else verdict,
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

"""The page about a job of several nodes: the verdict, the nodes and their clocks, and the ranks of all of them.

Times are those of the nodes' own clocks, shown with the known differences of these. Nothing is sorted by time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import attrs

from ascend_runner.diagnosis.finding import Certainty
from ascend_runner.members import Members
from ascend_runner.merge import summary
from ascend_runner.merge.clocks import Difference
from ascend_runner.merge.model import Job, Node, Suspect, Verdict
from ascend_runner.observations.job_record import CERTAINTY, JobRecord
from ascend_runner.rank_table.model import RankTable
from ascend_runner.text import clock, counted, format_numbers
from ascend_runner.views import page, page_ranks, topology
from ascend_runner.views.page_content import FINAL
from ascend_runner.views.page_ranks import Excerpt, Row, Timeline
from ascend_runner.views.topology import Topology

TEMPLATE: Final = "merged.html"
LONGEST: Final = 300  # characters of a sentence in a table
MOST_NODES: Final = 1024  # nodes that have a row


@attrs.frozen(kw_only=True)
class JobReports:
    """The reports of one job, by the numbers of their nodes, and what can be concluded from them.

    `path` is the directory that they were read from, or "" if several were named. `logs` are the paths of the ranks'
    logs, by rank. `left_out` are sentences about files that were left out.
    """

    path: str
    job_id: str
    reports: Mapping[int, Members]
    job: Job
    logs: Mapping[int, str]
    table: RankTable | None
    left_out: tuple[str, ...]


@attrs.frozen(kw_only=True)
class MergedSources:
    """The input of the page: what was found, the verdict, and the log of the first suspect with its last lines.

    It was gathered at `made_at`, in seconds since the epoch. `log` is "" if it is unknown. With `is_public`, whatever
    could identify people, machines or data is omitted.
    """

    found: JobReports
    verdict: Verdict
    log: str
    log_end: Sequence[str]
    made_at: float
    is_public: bool = False


@attrs.frozen(kw_only=True)
class NodeRow:
    """A row of the table of nodes. `mark` is how the node is involved in the cause, or "" if it is not."""

    mark: str
    number: int
    host: str
    ranks: str
    end: str
    failed_at: str
    clock: str


@attrs.frozen(kw_only=True)
class MergedContent:
    """Everything on the page."""

    job: str
    state: str
    mood: str
    remarks: tuple[str, ...]
    sentence: str
    suspects: tuple[str, ...]
    reasons: tuple[str, ...]
    excerpt: Excerpt | None
    nodes: tuple[NodeRow, ...]
    more_nodes: int
    sources: str
    clocks: tuple[str, ...]
    timeline: Timeline | None
    topology: Topology | None
    ranks: tuple[Row, ...]
    states: tuple[tuple[str, str], ...]
    left_out: tuple[str, ...]
    made_at: str
    is_public: bool


def render(sources: MergedSources) -> bytes:
    """Return the page, in UTF-8."""
    return page.filled(TEMPLATE, content_of(_reduced(sources) if sources.is_public else sources))


def content_of(sources: MergedSources) -> MergedContent:
    """Return the content of the page."""
    reports, job, verdict = sources.found, sources.found.job, sources.verdict
    state = summary.state_of(job)
    marks = _marks(verdict)
    records = map(JobRecord.decode, reports.reports.values())
    found = page_ranks.in_order((rank for record in records for rank in record.ranks), marks)
    error = verdict.suspects[0].sentence if verdict.suspects else ""
    rows = list(_rows(sources))
    return MergedContent(
        job=reports.job_id,
        state=state,
        mood=FINAL.get(state, "open"),
        remarks=tuple(filter(None, _remarks(job, verdict))),
        sentence=_sentence(job, verdict),
        suspects=tuple(f"{summary.place(one, job)}: {one.sentence}"[:LONGEST] for one in verdict.suspects),
        reasons=verdict.reasons,
        excerpt=page_ranks.excerpt("Last lines of", sources.log, sources.log_end, error),
        nodes=tuple(rows[:MOST_NODES]),
        more_nodes=max(0, len(rows) - MOST_NODES),
        sources=f"{sum(node.has_report for node in job.nodes)} of {counted(len(job.nodes), 'node')}",
        clocks=tuple(summary.clock_sentences(job)),
        timeline=page_ranks.draw(found, marks, max((rank.ended_after for rank in found), default=0.0)),
        topology=topology.draw(reports.table, found, marks),
        ranks=tuple(page_ranks.rows(found, marks)),
        states=tuple(page_ranks.states(found, marks)),
        left_out=reports.left_out,
        made_at=clock(sources.made_at),
        is_public=sources.is_public,
    )


def _remarks(job: Job, verdict: Verdict) -> Iterator[str]:
    missing = sum(not node.has_report for node in job.nodes)
    yield counted(len(job.nodes), "node")
    yield f"{missing} without a final report" if missing else ""
    words = {Certainty.CERTAIN: "the cause is certain", Certainty.OPEN: CERTAINTY["open"]}  # the sentence says "likely"
    yield words.get(verdict.certainty, "") if verdict.suspects else ""


def _sentence(job: Job, verdict: Verdict) -> str:
    if not verdict.suspects:
        return "No node reported a failure"
    suspect, number = verdict.suspects[0], len(verdict.suspects)
    place = summary.place(suspect, job)
    note = " (likely)" if verdict.certainty is Certainty.LIKELY else ""
    sentence = f"{place} caused the failure{note}: {suspect.sentence}"[:LONGEST]
    if verdict.certainty is Certainty.OPEN:
        sentence = f"{f'one of {number} nodes' if number > 1 else place} may have caused the failure"
    return sentence[0].upper() + sentence[1:]


def _marks(verdict: Verdict) -> dict[int, str]:
    """Return how ranks are involved in the cause. Of a node without a report and a known rank, each may be."""
    word, marks = _word(verdict), {}
    for suspect in verdict.suspects:
        node = suspect.node
        unknown = () if node.has_report else node.rank_ids
        marks.update(dict.fromkeys(unknown if suspect.rank_id is None else (suspect.rank_id,), word))
        failures = [one.failure for one in suspect.alike if one.failure]
        marks.update({one.rank_id: page_ranks.ALIKE for one in failures if one.rank_id is not None})
    return marks


def _word(verdict: Verdict) -> str:
    return page_ranks.MARKS.get(verdict.certainty.value, page_ranks.CERTAIN)


def _rows(sources: MergedSources) -> Iterator[NodeRow]:
    verdict, corrections = sources.verdict, summary.corrections(sources.found.job)
    marks = {node.number: page_ranks.ALIKE for one in verdict.suspects for node in one.alike}
    marks |= {one.node.number: _word(verdict) for one in verdict.suspects}
    for node in sorted(sources.found.job.nodes, key=lambda node: (node.number not in marks, node.number)):
        yield NodeRow(
            mark=marks.get(node.number, ""),
            number=node.number,
            host=node.host,
            ranks=format_numbers(node.rank_ids),
            end=summary.sentence_of(node)[:LONGEST],
            failed_at=_failed_at(node),
            clock=_ahead(node, corrections.get(node.number)),
        )


def _failed_at(node: Node) -> str:
    return clock(node.failure.at) if node.failure else ""


def _ahead(node: Node, ahead: Difference | None) -> str:
    """Describe how far the clock of a node is ahead of the others."""
    if not node.has_report:
        return ""
    if ahead is None:
        return "unknown"
    return f"{ahead.middle:+.1f} s ± {ahead.margin:.1f} s, {ahead.source}" if ahead.source else "reference"


def _reduced(sources: MergedSources) -> MergedSources:
    """Return the sources of a page for publication."""
    nodes = {node.number: _without_names(node) for node in sources.found.job.nodes}

    def reduced(suspect: Suspect) -> Suspect:
        node = nodes[suspect.node.number]
        return Suspect(node=node, rank_id=suspect.rank_id, sentence=summary.sentence_of(node))

    verdict = attrs.evolve(sources.verdict, suspects=tuple(map(reduced, sources.verdict.suspects)), reasons=())
    job = attrs.evolve(sources.found.job, nodes=tuple(nodes.values()))
    found = attrs.evolve(sources.found, job_id="job", job=job, table=None, left_out=())
    return attrs.evolve(sources, found=found, verdict=verdict, log="", log_end=())


def _without_names(node: Node) -> Node:
    """Return a node without its name, and with the type of an exception instead of its message."""
    failure = node.failure
    if failure:
        kind = re.match(r"[A-Za-z_][\w.]*(?=:|$)|E[A-Z0-9][0-9]{4}\b", failure.sentence)
        failure = attrs.evolve(failure, sentence=kind[0] if kind else "failed")
    return attrs.evolve(node, host="", failure=failure)

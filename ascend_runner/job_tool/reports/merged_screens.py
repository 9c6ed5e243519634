"""Formats the verdict on a job of several nodes, as text and as JSON. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from datetime import datetime
from typing import Final

from ascend_runner.diagnosis.finding import Certainty
from ascend_runner.html_report.merged import MergedSources
from ascend_runner.merge import summary
from ascend_runner.merge.clocks import Difference
from ascend_runner.merge.model import Node
from ascend_runner.text import counted, shown

WIDTH: Final = 80
LABEL: Final = 8
MOST_LINES: Final = 3  # lines of the log of the first suspect
MOST_GROUPS: Final = 6  # groups of nodes that have a line
LONGEST: Final = 300  # characters of a sentence


def screen(sources: MergedSources, width: int | None = None) -> str:
    """Describe a job: its state, the cause with its certainty, the ends of the other nodes, and the clocks."""
    job = sources.found.job
    reported = sum(node.has_report for node in job.nodes)
    whole = counted(len(job.nodes), "node")
    lines = [f"{sources.found.job_id}: {summary.state_of(job)}; final reports from {reported} of {whole}"]
    for label, text in _lines(sources):
        lines += _wrapped(label, text, width or WIDTH)
    return "".join(f"{shown(line)}\n" for line in lines)


def _lines(sources: MergedSources) -> Iterator[tuple[str, str]]:
    """Yield labels and texts. A text that begins with "|" is quoted from a log, and is not wrapped."""
    found, job, verdict = sources.found, sources.found.job, sources.verdict
    corrections = summary.corrections(job)
    label = "cause" if verdict.certainty is not Certainty.OPEN else "causes"
    for suspect in verdict.suspects:
        yield label, f"{summary.place(suspect, job)}: {suspect.sentence[:LONGEST]}"
        label = ""
        if suspect.alike:
            yield "", f"{summary.nodes_named(suspect.alike)} failed in the same way"
        yield "", _ended(suspect.node, corrections.get(suspect.node.number))
    if verdict.suspects:
        words = {Certainty.OPEN: "unclear"}.get(verdict.certainty, verdict.certainty.value)
        yield "", f"{words}: {'; '.join(verdict.reasons)}" if verdict.reasons else words
        yield "log", sources.log
        yield from (("", f"| {line}") for line in sources.log_end[-MOST_LINES:])
    label = "others" if verdict.suspects else "nodes"
    groups = summary.others(job, verdict)
    for group in groups[:MOST_GROUPS]:
        yield label, f"{summary.nodes_named(group.nodes)}: {group.sentence[:LONGEST]}"
        label = ""
    if len(groups) > MOST_GROUPS:
        yield "", f"and {counted(sum(len(group.nodes) for group in groups[MOST_GROUPS:]), 'other node')}"
    yield "clocks", "; ".join(summary.clock_sentences(job))
    for sentence in found.left_out:
        yield "note", sentence


def _ended(node: Node, ahead: Difference | None) -> str:
    """Return when a node failed, by its own clock, and the correction if that clock is known to be wrong."""
    at = node.failure.at if node.failure else None
    if at is None:
        return ""
    correction = f" ({-ahead.middle:+.1f} s)" if ahead and (ahead.low > 0 or ahead.high < 0) else ""
    return f"failed at {datetime.fromtimestamp(at):%H:%M:%S}.{int(at * 10) % 10} by its clock{correction}"  # noqa: DTZ006  local time, as in all messages


def document(sources: MergedSources) -> dict[str, object]:
    """Return the JSON of a job (`--json`)."""
    found, verdict = sources.found, sources.verdict
    corrections = summary.corrections(found.job)
    return {
        "job_id": found.job_id,
        "state": summary.state_of(found.job),
        "certainty": verdict.certainty.value if verdict.suspects else None,
        "suspects": [
            {
                "node": suspect.node.number,
                "host": suspect.node.host,
                "rank_id": suspect.rank_id,
                "sentence": suspect.sentence,
                "alike": [node.number for node in suspect.alike],
            }
            for suspect in verdict.suspects
        ],
        "reasons": verdict.reasons,
        "nodes": [_node(node, corrections.get(node.number)) for node in found.job.nodes],
        "left_out": found.left_out,
    }


def _node(node: Node, ahead: Difference | None) -> dict[str, object]:
    return {
        "node": node.number,
        "host": node.host,
        "rank_ids": node.rank_ids,
        "state": node.state if node.has_report else None,
        "sentence": summary.sentence_of(node),
        "failed_at": node.failure.at if node.failure else None,
        "clock_ahead": None if ahead is None else {"seconds": ahead.middle, "margin": ahead.margin, "by": ahead.source},
    }


def _wrapped(label: str, text: str, width: int) -> list[str]:
    """Return the lines of a text beside its label, none of an empty text."""
    start, rest = f"  {label:{LABEL}}", " " * (LABEL + 2)
    if text.startswith("|"):
        return [f"{start}{text}"[:width]]
    return textwrap.wrap(
        text, width, initial_indent=start, subsequent_indent=rest, break_on_hyphens=False, break_long_words=False
    )

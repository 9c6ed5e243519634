"""The evidence on a page: why a rank failed, in the words of its log and of the runner. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import attrs

from ascend_runner.html_report import likeness
from ascend_runner.html_report.likeness import Group
from ascend_runner.html_report.ranks import Rank
from ascend_runner.members import Members
from ascend_runner.observations import cause_text
from ascend_runner.text import rank_list

LARGEST: Final = 8_000  # bytes of a log


@attrs.frozen
class Excerpt:
    """Lines of a log, and which these are. The line at the index `key` names the error, None if none does."""

    title: str
    lines: tuple[str, ...]
    key: int | None


@attrs.frozen(kw_only=True)
class Evidence:
    """Why a rank failed: lines of its log, and their meaning."""

    rank: Rank | None
    excerpt: Excerpt | None
    facts: tuple[tuple[str, str], ...]


def of_rank(report: Members, culprit: Rank | None) -> Evidence | None:
    """Return why a rank failed, or None if nothing is known about that."""
    found = report.child_with("ranks", "rank_id", culprit.rank_id if culprit else None)
    finding = found.child("finding")
    lines = finding.texts("excerpt")
    shown = excerpt(
        "From" if lines else "Last lines of",
        culprit.log if culprit else "",
        lines or finding.texts("last_lines"),
        finding.text("exception") or finding.text("code_line"),
    )
    facts = tuple((label, text) for label, text in _meanings(report, found) if text)
    return Evidence(rank=culprit, excerpt=shown, facts=facts) if shown or facts else None


def excerpt(words: str, log: str, lines: Sequence[str], error: str) -> Excerpt | None:
    """Return an excerpt of a log whose `key` is the last line that contains the first line of the error.

    Return None without lines.
    """
    shown, _rest = likeness.within([Group(rank_ids=(0,), lines=tuple(lines))], LARGEST)
    if not shown:
        return None
    kept, wanted = shown[0].lines, error.strip().partition("\n")[0]
    key = next((index for index in reversed(range(len(kept))) if wanted and wanted in kept[index]), None)
    return Excerpt(title=f"{words} {log}" if log else "", lines=kept, key=key)


def _meanings(report: Members, rank: Members) -> Iterator[tuple[str, str]]:
    finding, cause = rank.child("finding"), report.child("cause")
    place, code = finding.text("origin_place"), finding.text("code")
    yield "Origin", finding.text("origin") + (f" ({place})" if place and finding.text("origin") else "")
    yield "Meaning", finding.text("meaning")
    label, text = cause_text.explained(code, finding.text("code_kind"), finding.text("code_meaning"))
    yield "Code" if label == "code" else "Meaning", text
    yield "Blames", ", ".join(filter(None, map(peer, finding.children("points_at"))))
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

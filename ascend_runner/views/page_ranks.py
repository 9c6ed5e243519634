"""The ranks on a page: their table, the evidence why one failed, and the timeline. Pure.

Ranks with equal texts, states or times share a row, a text or a strip, so that the page stays small however many
there are. Lengths of the timeline are in thousandths of its width.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import sqrt
from signal import SIGINT, SIGKILL, SIGTERM
from typing import Final, TypeVar

import attrs

from ascend_runner.record.job_record import CauseRecord
from ascend_runner.record.rank_record import RankRecord, RankState
from ascend_runner.text import duration, printable, rank_list, size
from ascend_runner.views import facts
from ascend_runner.views.facts import Fact

_NUMBER: Final = re.compile(r"0x[0-9a-fA-F]+|[0-9]+(?:\.[0-9]+)?")
ESCAPED: Final = re.compile(r"[&<>\"']")  # each becomes about five characters in HTML

_MARKS: Final = re.compile(r"[\s|]*[~^][\s~^]*")  # marks below a line of a traceback
MARKS_SIZE: Final = 40  # bytes of the element around them
MOST_GROUPS: Final = 64


@attrs.frozen(kw_only=True)
class Group:
    """Ranks with lines that are identical except for numbers; `lines` are from the first one."""

    rank_ids: tuple[int, ...]
    lines: tuple[str, ...]


def group(texts: Mapping[int, Sequence[str]], first: Iterable[int] = ()) -> list[Group]:
    """Group the ranks; each of `first` comes first and has a group of its own."""
    alone = [rank_id for rank_id in dict.fromkeys(first) if texts.get(rank_id)]
    alike: dict[tuple[str, ...], list[int]] = {}
    for rank_id, lines in texts.items():
        if rank_id not in alone and lines:
            alike.setdefault(tuple(_NUMBER.sub("#", line) for line in lines), []).append(rank_id)
    return [
        *(Group(rank_ids=(rank_id,), lines=tuple(texts[rank_id])) for rank_id in alone),
        *(Group(rank_ids=tuple(rank_ids), lines=tuple(texts[rank_ids[0]])) for rank_ids in alike.values()),
    ]


def within(groups: Sequence[Group], limit: int) -> tuple[list[Group], tuple[int, ...]]:
    """Keep at most MOST_GROUPS groups that take at most `limit` bytes; return them and the ranks of the others.

    A group that is too long for the rest loses its first lines.
    """
    kept: list[Group] = []
    for index, one in enumerate(groups):
        lines: list[str] = []
        for line in reversed(one.lines):
            limit -= shown_length(line)
            if limit < 0:
                break
            lines.insert(0, line)
        if lines:
            kept.append(attrs.evolve(one, lines=tuple(lines)))
        if limit < 0 or len(kept) == MOST_GROUPS:
            left = groups[index + bool(lines) :]
            return kept, tuple(sorted(rank_id for more in left for rank_id in more.rank_ids))
    return kept, ()


def shown_length(line: str) -> int:
    """Return about how many bytes a line takes in the file, or a little more."""
    clean = printable(line)
    element = MARKS_SIZE if is_marks(line) else 0
    return len(clean.encode(errors="backslashreplace")) + 4 * len(ESCAPED.findall(clean)) + element + 1


def is_marks(line: str) -> bool:
    """Return whether a line marks a part of the line above it, as in the tracebacks of Python: "    ~~^~~"."""
    return _MARKS.fullmatch(line) is not None


CAUSE: Final = "cause"  # how ranks are drawn that caused the failure, or may have
KINDS: Final = {
    **{state: state.value for state in (RankState.FAILED, RankState.STOPPED, RankState.SUCCEEDED, RankState.RUNNING)},
    RankState.NOT_KILLED: "failed",
    RankState.NOT_STARTED: "stopped",
}
MARKS: Final = {"likely": "likely cause", "open": "possible cause"}  # by the certainty of a cause
CERTAIN: Final = "cause"
ALIKE: Final = "same failure"
SUSPECTED: Final = "check first"
QUIET: Final = "quiet"
HUNG: Final = "hangs elsewhere"
MOST_ROWS: Final = 64  # rows with one rank each
FEW: Final = 8  # ranks of one state that have a row each even among many

Number = TypeVar("Number", int, float)
Marks = Mapping[int, str]  # how ranks are involved in the cause of a failure, by their numbers


def kind_of(rank: RankRecord, marks: Marks) -> str:
    """Return how a rank is drawn: "cause", "failed", "stopped", "succeeded", "running" or "other"."""
    return CAUSE if rank.rank_id in marks else KINDS.get(rank.state, "other")


def marks_of(cause: CauseRecord | None) -> dict[int, str]:
    """Return how ranks are involved in the cause of a failure, the most important one first."""
    if cause is None:
        return {}
    rank_id, peer = cause.rank_id, cause.suspected_peer.rank_id if cause.suspected_peer else None
    if cause.is_a_consequence:
        return {} if peer is None else {peer: SUSPECTED}
    word = MARKS.get(cause.certainty, CERTAIN)
    marks = {} if rank_id is None else {rank_id: word}
    possible = cause.candidates if cause.certainty == "open" else ()
    return {**marks, **dict.fromkeys(cause.alike, ALIKE), **dict.fromkeys(possible, word), **marks}


def in_order(ranks: Iterable[RankRecord], marks: Marks) -> list[RankRecord]:
    """Return ranks: those with marks, in the order of these, then the others that failed."""
    order = {rank_id: index for index, rank_id in enumerate(marks)}
    return sorted(ranks, key=lambda rank: (order.get(rank.rank_id, len(order)), rank.order, rank.rank_id))


def states(ranks: Sequence[RankRecord], marks: Marks) -> list[tuple[str, str]]:
    """Return each state in words with its ranks, in the order of the ranks, or nothing if the rows show as much."""
    found: dict[str, list[int]] = {}
    for rank in ranks if FEW < len(ranks) <= MOST_ROWS else ():
        words = f"{rank.words}, {marks[rank.rank_id]}" if rank.rank_id in marks else rank.words
        found.setdefault(words, []).append(rank.rank_id)
    return [(words, rank_list(rank_ids)) for words, rank_ids in found.items()]


@attrs.frozen(kw_only=True)
class Row:
    """A row of the table of ranks: one rank, or several of the same state with the range of each figure."""

    title: str
    is_group: bool
    kind: str
    words: str
    mark: str
    took: str
    memory: str
    cpu: str
    output: str
    device: str = ""
    pid: str = ""
    log: str = ""


def rows(ranks: Sequence[RankRecord], marks: Marks) -> Iterator[Row]:
    """Yield the rows. If there are many ranks, those in a rare state have one each and come first."""
    groups: dict[object, list[RankRecord]] = {}
    for index, rank in enumerate(ranks):
        is_alone = len(ranks) <= MOST_ROWS or rank.rank_id < 0
        alike = rank.words, marks.get(rank.rank_id), bool(rank.log_lost)
        groups.setdefault(index if is_alone else alike, []).append(rank)
    for group in sorted(groups.values(), key=lambda group: len(group) > FEW):
        if len(group) > FEW:
            yield _row(group, marks)
        else:
            yield from (_row([rank], marks) for rank in group)


def _row(ranks: Sequence[RankRecord], marks: Marks) -> Row:
    first, is_group = ranks[0], len(ranks) > 1
    lost = _range([rank.log_lost for rank in ranks], str) if first.log_lost else ""
    return Row(
        title=rank_list([rank.rank_id for rank in ranks]) if is_group else first.title,
        is_group=is_group,
        kind=kind_of(first, marks),
        words=first.words,
        mark=marks.get(first.rank_id, ""),
        took=_range([rank.seconds if rank.has_ended else None for rank in ranks], duration),
        memory=_range([rank.max_rss for rank in ranks], size),
        cpu=_range([rank.cpu_seconds for rank in ranks], duration),
        output=_range([rank.log_size for rank in ranks], size) + (f", {lost} bytes missing" if lost else ""),
        device="" if is_group else device_of(first),
        pid="" if is_group else str(first.pid or ""),
        log="" if is_group else first.log_name,
    )


def device_of(rank: RankRecord) -> str:
    """Return the index of the device of a rank, "" for an auxiliary process."""
    return "" if rank.name else str(rank.local_rank)


def _range(numbers: Sequence[Number | None], words: Callable[[Number], str]) -> str:
    known = [number for number in numbers if number is not None]
    ends = dict.fromkeys((words(min(known)), words(max(known)))) if known else ()
    return " to ".join(ends)


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

    rank: RankRecord | None
    device: str
    excerpt: Excerpt | None
    facts: tuple[Fact, ...]


# The facts of a page that are evidence, with their labels there.
EVIDENCE: Final = {
    "origin": "Origin",
    "means": "Meaning",
    "code": "Code",
    "next": "Next",
    "blames": "Blames",
    "check": "Check",
    "first": "First",
    "also": "Also",
    "nodes": "Nodes",
    "candidates": "Cause",
    "plog": "Plog",
    "plog error": "First error",
}


def of_rank(culprit: RankRecord | None, found: list[Fact]) -> Evidence | None:
    """Return why a rank failed, from the facts about the job, or None if nothing is known about that."""
    finding = culprit.finding if culprit else None
    lines = (finding.excerpt or finding.last_lines) if finding else ()
    errors = (finding.summary, finding.code_line, finding.exception) if finding else ()
    shown = excerpt(
        "From" if finding and finding.excerpt else "Last lines of",
        culprit.log_name if culprit else "",
        lines,
        next((text for text in errors if text and any(text.partition("\n")[0] in line for line in lines)), ""),
    )
    evidence = tuple((EVIDENCE[label], text) for label, text in facts.chosen(found, *EVIDENCE))
    device = device_of(culprit) if culprit else ""
    return Evidence(rank=culprit, device=device, excerpt=shown, facts=evidence) if shown or evidence else None


def excerpt(words: str, log: str, lines: Sequence[str], error: str) -> Excerpt | None:
    """Return an excerpt of a log; its `key` is the last line that contains the first line of the error.

    Return None without lines.
    """
    shown, _rest = within([Group(rank_ids=(0,), lines=tuple(lines))], LARGEST)
    if not shown:
        return None
    kept, wanted = shown[0].lines, error.strip().partition("\n")[0]
    key = next((index for index in reversed(range(len(kept))) if wanted and wanted in kept[index]), None)
    return Excerpt(title=f"{words} {log}" if log else "", lines=kept, key=key)


WIDTH: Final = 1000
HEIGHT: Final = 20
MOST_STRIPS: Final = 64  # strips with one rank each
NARROWEST: Final = 4  # so that it can be seen
STRIP_TOLERANCE: Final = 100  # ranks whose times differ by less than this part of the job share a strip
TICKS: Final = 4
LONGEST_TITLE: Final = 40  # characters of a list of ranks, which is in the table of ranks as well


@attrs.frozen(kw_only=True)
class Strip:
    """The strip of some ranks, from `x` on, in thousandths of the duration of the job.

    The first `quiet` of its `width` are before the first output, the last `silent` after the last one, and the last
    `stopping` after the rank was asked to stop. At `killed`, SIGKILL was sent. `activity` is a path of SVG, HEIGHT high
    where most output was written; it `is_unknown` if only other strips have one.
    """

    title: str
    words: str
    mark: str
    kind: str
    x: int
    width: int
    quiet: int
    silent: int
    stopping: int
    killed: int | None
    activity: str
    is_unknown: bool
    times: str

    @property
    def end(self) -> int:
        """The place where the strip ends."""
        return self.x + self.width

    @property
    def active(self) -> int:
        """The width between the first and the last output."""
        return max(0, self.width - self.quiet - self.silent)


@attrs.frozen(kw_only=True)
class Timeline:
    """The strips, the ticks of the axis (thousandths and texts), and where the first rank failed or the job hung."""

    strips: tuple[Strip, ...]
    ticks: tuple[tuple[int, str], ...]
    failure: int | None
    failed_after: str
    hang: int | None = None
    hung_after: str = ""

    @property
    def has_activity(self) -> bool:
        """Whether the timeline shows how much ranks wrote."""
        return any(strip.activity for strip in self.strips)

    @property
    def has_unknown(self) -> bool:
        """Whether the output of some ranks is unknown, although others are shown."""
        return any(strip.is_unknown for strip in self.strips)

    @property
    def has_stops(self) -> bool:
        """Whether it shows that ranks were asked to stop."""
        return any(strip.stopping for strip in self.strips)


def draw(
    ranks: Sequence[RankRecord],
    marks: Marks,
    seconds: float,
    failed: RankRecord | None = None,
    hung_after: float | None = None,
) -> Timeline | None:
    """Return the timeline of a job that took `seconds`, or None without a rank.

    `failed` is the first to fail; `hung_after` is the time of the last output before a hang, 0 without any output.
    """
    started = [rank for rank in ranks if rank.is_started]
    total = max([seconds, *(rank.ended_after for rank in started if rank.has_ended)])
    if not started or total <= 0:
        return None
    moment = failed.ended_after if failed and failed.has_ended else None
    groups = [[rank] for rank in started] if len(started) <= MOST_STRIPS else list(_alike(started, marks, total))
    rates = (rate for rank in started for rate in _rates(rank)) if len(groups) <= MOST_STRIPS else ()
    peak = max(rates, default=0.0)
    return Timeline(
        strips=tuple(_strip(group, marks, total, peak) for group in groups),
        ticks=tuple((WIDTH * tick // TICKS, duration(total * tick / TICKS)) for tick in range(TICKS + 1)),
        failure=None if moment is None else _place(moment, total),
        failed_after="" if moment is None else duration(moment),
        hang=None if hung_after is None else _place(hung_after, total),
        hung_after=duration(hung_after) if hung_after else "",
    )


def _rates(rank: RankRecord) -> list[float]:
    """Return the bytes in a second that a rank wrote in each span of its `cell_seconds`."""
    return [max(0, count) / rank.cell_seconds for count in rank.activity] if rank.cell_seconds else []


def _alike(ranks: Sequence[RankRecord], marks: Marks, total: float) -> Iterator[list[RankRecord]]:
    """Yield groups of ranks that ended in the same way at about the same time."""
    groups: dict[object, list[RankRecord]] = {}
    for rank in ranks:
        ended = rank.ended_after if rank.has_ended else 0.0
        times = (round(time / total * STRIP_TOLERANCE) for time in (rank.started_after, ended))
        groups.setdefault((rank.words, marks.get(rank.rank_id), *times), []).append(rank)
    yield from groups.values()


def _strip(ranks: Sequence[RankRecord], marks: Marks, total: float, peak: float) -> Strip:
    rank, start = ranks[0], ranks[0].started_after
    end = rank.ended_after if rank.has_ended else total
    x = min(_place(start, total), WIDTH - NARROWEST)
    width = max(NARROWEST, _place(end, total) - x)
    first = end if rank.first_output_after is None else rank.first_output_after
    last = end if rank.last_output_after is None else rank.last_output_after
    sent, is_observed = dict(rank.signals), bool(_rates(rank))
    asked, killed = _asked(rank) if rank.state is RankState.STOPPED else None, sent.get(SIGKILL)
    return Strip(
        title=rank.title if len(ranks) == 1 else _title(ranks),
        words=rank.words,
        mark=marks.get(rank.rank_id, ""),
        kind=kind_of(rank, marks),
        x=x,
        width=width,
        quiet=min(width, max(0, _place(first, total) - x)) if is_observed else 0,
        silent=min(width, max(0, x + width - _place(last, total))) if is_observed else 0,
        stopping=0 if asked is None else min(width, max(NARROWEST, x + width - _place(asked, total))),
        killed=None if killed is None else _place(killed, total),
        activity=_activity(rank, total, peak, (_place(first, total), x + width)) if peak else "",
        is_unknown=peak > 0 and not is_observed,
        times="; ".join(_times(rank)),
    )


def _title(ranks: Sequence[RankRecord]) -> str:
    """Name several ranks, or count them if their list is long."""
    names = rank_list([rank.rank_id for rank in ranks])
    return names if len(names) <= LONGEST_TITLE else f"{len(ranks)} ranks"


def _activity(rank: RankRecord, total: float, peak: float, ends: tuple[int, int]) -> str:
    """Return the outline of the output between two places; a tenth of the peak is still a third as high."""
    heights = [rate and max(1, round(HEIGHT * sqrt(rate / peak))) for rate in _rates(rank)]
    path = []
    for cell, height in enumerate(heights):
        if cell + 1 == len(heights) or heights[cell + 1] != height:
            x = min(ends[1], max(ends[0], _place((cell + 1) * rank.cell_seconds, total)))
            path.append(f"V{HEIGHT - height:g}H{x}")
    return f"M{ends[0]} {HEIGHT}{''.join(path)}V{HEIGHT}Z" if any(heights) else ""


def _asked(rank: RankRecord) -> float | None:
    sent = dict(rank.signals)
    return sent.get(SIGTERM, sent.get(SIGINT))


def _times(rank: RankRecord) -> Iterator[str]:
    moments = (
        ("started", rank.started_after),
        ("first output", rank.first_output_after),
        ("last output", rank.last_output_after),
        ("asked to stop", _asked(rank)),
        ("killed", dict(rank.signals).get(SIGKILL)),
        ("ended", rank.ended_after if rank.has_ended else None),
    )
    for label, moment in moments:
        if moment is not None:
            yield f"{label} after {duration(moment)}"
    if not rank.has_ended:
        yield "still running"


def _place(seconds: float, total: float) -> int:
    return min(WIDTH, max(0, round(WIDTH * seconds / total)))

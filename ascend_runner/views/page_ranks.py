"""Groups ranks whose texts are alike, so that a page has each text once, however many ranks share it. Pure.

The ranks of a report as a page describes them, first the cause, then others that failed. Pure.

The evidence on a page: why a rank failed, in the words of its log and of the runner. Pure.

The timeline of a job: a strip for each rank, or for each group of similar ranks if there are many. Pure.

Lengths are in thousandths of the width, which is that of the page.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import sqrt
from signal import SIGINT, SIGKILL, SIGTERM
from typing import Final, TypeVar

import attrs

from ascend_runner.members import Members
from ascend_runner.observations import job_record
from ascend_runner.observations.rank_record import RankState, described
from ascend_runner.supervision.causes import Ending
from ascend_runner.text import duration, printable, rank_list, rank_title, size

_NUMBER: Final = re.compile(r"0x[0-9a-fA-F]+|[0-9]+(?:\.[0-9]+)?")
ESCAPED: Final = re.compile(r"[&<>\"']")  # each becomes about five characters in HTML

_MARKS: Final = re.compile(r"[\s|]*[~^][\s~^]*")  # marks below a line of a traceback
MARKS_SIZE: Final = 40  # bytes of the element around them
MOST_GROUPS: Final = 64


@attrs.frozen(kw_only=True)
class Group:
    """Ranks whose lines are identical except for numbers; `lines` are those of the first one."""

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


ORDER: Final = ("failed", "not_killed", "not_started", "stopped")  # these come first, then the others
STATES: Final = {state.value: state for state in RankState}
CAUSE: Final = "cause"  # how ranks are drawn that caused the failure, or may have
KINDS: Final = {
    **{state: state for state in ("failed", "stopped", "succeeded", "running")},
    "not_killed": "failed",
    "not_started": "stopped",
}
MARKS: Final = {"likely": "likely cause", "open": "possible cause"}  # by the certainty of a cause
CERTAIN: Final = "cause"
ALIKE: Final = "same failure"
SUSPECTED: Final = "check first"
QUIET: Final = "quiet"
MOST_ROWS: Final = 64  # rows with one rank each
FEW: Final = 8  # ranks of one state that have a row each even among many

Number = TypeVar("Number", int, float)


@attrs.frozen(kw_only=True)
class Rank:
    """One rank. `mark` is how it is involved in the cause of the failure, "" if it is not.

    `log` is the name of its log file, which lacks `lost` bytes of its output. `started` and `ended`, the first output,
    and when it was asked to stop and killed are in seconds since the start of the job, None if they are unknown.
    `rates` are the bytes in a second that it wrote in each span of `cell_seconds`.
    """

    rank_id: int
    title: str
    device: str
    pid: str
    state: str
    words: str
    mark: str
    started: float | None
    ended: float | None
    took: float | None
    memory: int | None
    cpu: float | None
    output: int | None
    lost: int
    log: str
    first_output: float | None
    asked: float | None
    killed: float | None
    rates: tuple[float, ...]
    cell_seconds: float

    @property
    def order(self) -> tuple[int, int]:
        """The sort key of the rank."""
        return ORDER.index(self.state) if self.state in ORDER else len(ORDER), self.rank_id

    @property
    def kind(self) -> str:
        """How the rank is drawn: "cause", "failed", "stopped", "succeeded", "running" or "other"."""
        return CAUSE if self.mark else KINDS.get(self.state, "other")


def marks_of(cause: Members) -> dict[int, str]:
    """Return how ranks are involved in the cause of a failure, the most important one first."""
    rank_id, peer = cause.whole("rank_id"), cause.child("suspected_peer").whole("rank_id")
    if cause.flag("is_a_consequence"):
        return {} if peer is None else {peer: SUSPECTED}
    word = MARKS.get(cause.text("certainty"), CERTAIN)
    marks = {} if rank_id is None else {rank_id: word}
    possible = cause.wholes("candidates") if cause.text("certainty") == "open" else ()
    return {**marks, **dict.fromkeys(cause.wholes("alike"), ALIKE), **dict.fromkeys(possible, word), **marks}


def silences(report: Members, now: float) -> tuple[dict[int, float], list[float]]:
    """Return the seconds without output of each running rank, and those since each rank that has succeeded did so.

    `now` is in seconds since the epoch. The report of a job that cannot be observed has no activity of running ranks.
    """
    quiet: dict[int, float] = {}
    succeeded = []
    for rank in report.children("ranks"):
        rank_id, ended = rank.whole("rank_id"), rank.moment("ended_at")
        last = rank.moment("last_output_at") or rank.moment("started_at")
        if rank.text("state") == RankState.RUNNING.value and rank.wholes("activity") and last and rank_id is not None:
            quiet[rank_id] = max(0.0, now - last)
        elif rank.text("state") == RankState.SUCCEEDED.value and ended:
            succeeded.append(max(0.0, now - ended))
    return quiet, succeeded


def ranks_of(report: Members, marks: Mapping[int, str]) -> list[Rank]:
    """Return the ranks of a report: those with marks, in the order of these, then the others that failed."""
    order = {rank_id: index for index, rank_id in enumerate(marks)}
    began = report.moment("started_at") or 0.0
    found = [
        _rank(members, began, marks) for members in report.children("ranks") if members.whole("rank_id") is not None
    ]
    return sorted(found, key=lambda rank: (order.get(rank.rank_id, len(order)), rank.order))


def _rank(members: Members, began: float, marks: Mapping[int, str]) -> Rank:
    rank_id = members.whole("rank_id") or 0
    started, ended = members.moment("started_at"), members.moment("ended_at")
    state, seconds = members.text("state"), members.number("seconds")
    cpu = [members.number(name) for name in ("user_seconds", "system_seconds")]
    cell_seconds = members.number("cell_seconds") or 0.0
    sent = dict(_signals(members, began))
    return Rank(
        rank_id=rank_id,
        title=rank_title(rank_id, members.text("name")),
        device="" if members.text("name") else str(members.members.get("local_rank", "")),
        pid=str(members.whole("pid") or ""),
        state=state,
        words=words_of(members, state),
        mark=marks.get(rank_id, ""),
        started=_after(started, began),
        ended=_after(ended, began),
        first_output=_after(members.moment("first_output_at"), began),
        asked=sent.get(SIGTERM, sent.get(SIGINT)),
        killed=sent.get(SIGKILL),
        rates=tuple(max(0, count) / cell_seconds for count in members.wholes("activity")) if cell_seconds else (),
        cell_seconds=cell_seconds,
        took=None if ended is None else seconds,
        memory=members.count("max_rss"),
        cpu=None if None in cpu else sum(filter(None, cpu)),
        output=members.count("log_size"),
        lost=members.count("log_lost") or 0,
        log=os.path.basename(members.text("log_path")),
    )


def _after(at: float | None, began: float) -> float | None:
    return None if at is None else max(0.0, at - began)


def _signals(members: Members, began: float) -> Iterator[tuple[int, float]]:
    for one in members.pairs("signals"):
        signum, after = one.whole("0"), _after(one.moment("1"), began)
        if signum is not None and after is not None:
            yield signum, after


def words_of(members: Members, state: str) -> str:
    """Describe the state of a rank: "failed (exit status 1)", "stopped by the runner (SIGTERM)"."""
    return described(STATES[state], Ending.decode(members)) if state in STATES else state


def states(ranks: Sequence[Rank]) -> list[tuple[str, str]]:
    """Return each state in words with its ranks, in the order of the ranks, or nothing if the rows show as much."""
    found: dict[str, list[int]] = {}
    for rank in ranks if FEW < len(ranks) <= MOST_ROWS else ():
        found.setdefault(f"{rank.words}, {rank.mark}" if rank.mark else rank.words, []).append(rank.rank_id)
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


def rows(ranks: Sequence[Rank]) -> Iterator[Row]:
    """Yield the rows. If there are many ranks, those in a rare state have one each and come first."""
    groups: dict[object, list[Rank]] = {}
    for index, rank in enumerate(ranks):
        is_alone = len(ranks) <= MOST_ROWS or rank.rank_id < 0
        groups.setdefault(index if is_alone else (rank.words, rank.mark, bool(rank.lost)), []).append(rank)
    for group in sorted(groups.values(), key=lambda group: len(group) > FEW):
        if len(group) > FEW:
            yield _row(group)
        else:
            yield from (_row([rank]) for rank in group)


def _row(ranks: Sequence[Rank]) -> Row:
    first, is_group = ranks[0], len(ranks) > 1
    lost = _range([rank.lost for rank in ranks], str) if first.lost else ""
    return Row(
        title=rank_list([rank.rank_id for rank in ranks]) if is_group else first.title,
        is_group=is_group,
        kind=first.kind,
        words=first.words,
        mark=first.mark,
        took=_range([rank.took for rank in ranks], duration),
        memory=_range([rank.memory for rank in ranks], size),
        cpu=_range([rank.cpu for rank in ranks], duration),
        output=_range([rank.output for rank in ranks], size) + (f", {lost} bytes missing" if lost else ""),
        device="" if is_group else first.device,
        pid="" if is_group else first.pid,
        log="" if is_group else first.log,
    )


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
    shown, _rest = within([Group(rank_ids=(0,), lines=tuple(lines))], LARGEST)
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
    label, text = job_record.explained(code, finding.text("code_kind"), finding.text("code_meaning"))
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


WIDTH: Final = 1000
HEIGHT: Final = 20
MOST_STRIPS: Final = 64  # strips with one rank each
NARROWEST: Final = 4  # so that it can be seen
STRIP_TOLERANCE: Final = 100  # ranks whose times differ by less than this part of the job share a strip
TICKS: Final = 4
LONGEST_TITLE: Final = 40  # characters of a list of ranks, which is in the table of ranks as well


@attrs.frozen(kw_only=True)
class Strip:
    """The strip of some ranks, from `x` on.

    The first `quiet` of its `width` are before the first output, the last `stopping` after the rank was asked to stop.
    At `killed` it was sent SIGKILL. `activity` is a path of SVG, HEIGHT high where most output was written.
    It `is_unknown` if other strips show theirs.
    """

    title: str
    words: str
    mark: str
    kind: str
    x: int
    width: int
    quiet: int
    stopping: int
    killed: int | None
    activity: str
    is_unknown: bool
    times: str


@attrs.frozen(kw_only=True)
class Timeline:
    """The strips, the ticks of the axis (thousandths and texts), and where the first rank failed."""

    strips: tuple[Strip, ...]
    ticks: tuple[tuple[int, str], ...]
    failure: int | None
    failed_after: str

    @property
    def has_activity(self) -> bool:
        """Whether the timeline shows how much ranks wrote."""
        return any(strip.activity for strip in self.strips)

    @property
    def has_unknown(self) -> bool:
        """Whether the output of some ranks is unknown, although that of others is shown."""
        return any(strip.is_unknown for strip in self.strips)

    @property
    def has_stops(self) -> bool:
        """Whether it shows that ranks were asked to stop."""
        return any(strip.stopping for strip in self.strips)


def draw(ranks: Sequence[Rank], seconds: float, failed: Rank | None) -> Timeline | None:
    """Return the timeline of a job that took `seconds`, or None without a rank. `failed` is the first to fail."""
    started = [rank for rank in ranks if rank.started is not None]
    total = max([seconds, *(rank.ended or 0.0 for rank in started)])
    if not started or total <= 0:
        return None
    moment = failed.ended if failed else None
    groups = [[rank] for rank in started] if len(started) <= MOST_STRIPS else list(_alike(started, total))
    peak = max((rate for rank in started for rate in rank.rates), default=0.0) if len(groups) <= MOST_STRIPS else 0.0
    return Timeline(
        strips=tuple(_strip(group, total, peak) for group in groups),
        ticks=tuple((WIDTH * tick // TICKS, duration(total * tick / TICKS)) for tick in range(TICKS + 1)),
        failure=None if moment is None else _place(moment, total),
        failed_after="" if moment is None else duration(moment),
    )


def _alike(ranks: Sequence[Rank], total: float) -> Iterator[list[Rank]]:
    """Yield groups of ranks that ended in the same way at about the same time."""
    groups: dict[object, list[Rank]] = {}
    for rank in ranks:
        times = (round((time or 0.0) / total * STRIP_TOLERANCE) for time in (rank.started, rank.ended))
        groups.setdefault((rank.words, rank.mark, *times), []).append(rank)
    yield from groups.values()


def _strip(ranks: Sequence[Rank], total: float, peak: float) -> Strip:
    rank, start = ranks[0], ranks[0].started or 0.0
    end = total if rank.ended is None else rank.ended
    x = min(_place(start, total), WIDTH - NARROWEST)
    width = max(NARROWEST, _place(end, total) - x)
    first = end if rank.first_output is None else rank.first_output
    asked = rank.asked if rank.state == "stopped" else None
    return Strip(
        title=rank.title if len(ranks) == 1 else _title(ranks),
        words=rank.words,
        mark=rank.mark,
        kind=rank.kind,
        x=x,
        width=width,
        quiet=min(width, max(0, _place(first, total) - x)) if rank.rates else 0,
        stopping=0 if asked is None else min(width, max(NARROWEST, x + width - _place(asked, total))),
        killed=None if rank.killed is None else _place(rank.killed, total),
        activity=_activity(rank, total, peak, (_place(first, total), x + width)) if peak else "",
        is_unknown=peak > 0 and not rank.rates,
        times="; ".join(_times(rank)),
    )


def _title(ranks: Sequence[Rank]) -> str:
    """Name several ranks, or count them if their list is long."""
    names = rank_list([rank.rank_id for rank in ranks])
    return names if len(names) <= LONGEST_TITLE else f"{len(ranks)} ranks"


def _activity(rank: Rank, total: float, peak: float, ends: tuple[int, int]) -> str:
    """Return the outline of the output between two places; a tenth of the peak is still a third as high."""
    heights = [rate and max(1, round(HEIGHT * sqrt(rate / peak))) for rate in rank.rates]
    path = []
    for cell, height in enumerate(heights):
        if cell + 1 == len(heights) or heights[cell + 1] != height:
            x = min(ends[1], max(ends[0], _place((cell + 1) * rank.cell_seconds, total)))
            path.append(f"V{HEIGHT - height:g}H{x}")
    return f"M{ends[0]} {HEIGHT}{''.join(path)}V{HEIGHT}Z" if any(heights) else ""


def _times(rank: Rank) -> Iterator[str]:
    moments = (
        ("started", rank.started),
        ("first output", rank.first_output),
        ("asked to stop", rank.asked),
        ("killed", rank.killed),
        ("ended", rank.ended),
    )
    for label, moment in moments:
        if moment is not None:
            yield f"{label} after {duration(moment)}"
    if rank.ended is None:
        yield "still running"


def _place(seconds: float, total: float) -> int:
    return min(WIDTH, max(0, round(WIDTH * seconds / total)))

"""The ranks of a report as a page describes them, first the cause, then others that failed. Pure."""

from __future__ import annotations

import os.path
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from signal import SIGINT, SIGKILL, SIGTERM
from typing import Final, TypeVar

import attrs

from ascend_runner.members import Members
from ascend_runner.observations.rank_states import RankState, described
from ascend_runner.supervision.events import Ending
from ascend_runner.text import duration, rank_list, rank_title, size

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


def ranks_of(reports: Iterable[Members], marks: Mapping[int, str]) -> list[Rank]:
    """Return the ranks of some reports: those with marks, in the order of these, then the others that failed."""
    order = {rank_id: index for index, rank_id in enumerate(marks)}
    found = [
        _rank(members, report.moment("started_at") or 0.0, marks)
        for report in reports
        for members in report.children("ranks")
        if members.whole("rank_id") is not None
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
    code, signum = members.whole("exit_code"), members.whole("signal")
    is_known = code is not None or signum is not None
    ending = Ending(code or 0, signum or 0, members.flag("core_dumped")) if is_known else None
    return described(STATES[state], ending) if state in STATES else state


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

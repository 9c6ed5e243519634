"""The ranks of a report as a page shows them: in words, the ones that failed first. Pure."""

from __future__ import annotations

import os.path
from collections.abc import Iterator, Sequence
from signal import SIGINT, SIGKILL, SIGTERM
from typing import Final, Optional

import attrs

from ascend_runner.html_report.members import Members
from ascend_runner.supervision.events import signal_name
from ascend_runner.text import duration, size

ORDER: Final = ("failed", "not_killed", "not_started", "stopped")  # these come first, then the others
WORDS: Final = {"not_killed": "still alive after SIGKILL", "not_started": "not started"}


@attrs.frozen(kw_only=True)
class Rank:
    """One rank. `log` is the name of its log file.

    `started` and `ended`, the first output, and when it was asked to stop and killed are in seconds since the start of
    the job, None if they are unknown. `rates` are the bytes in a second that it wrote in each span of `cell_seconds`.
    """

    rank_id: int
    title: str
    device: str
    pid: str
    state: str
    words: str
    started: Optional[float]
    ended: Optional[float]
    took: str
    memory: str
    cpu: str
    output: str
    lost: str
    log: str
    first_output: Optional[float]
    asked: Optional[float]
    killed: Optional[float]
    rates: tuple[float, ...]
    cell_seconds: float

    @property
    def order(self) -> tuple[int, int]:
        """The place among the ranks."""
        return ORDER.index(self.state) if self.state in ORDER else len(ORDER), self.rank_id

    @property
    def kind(self) -> str:
        """How it is drawn: "failed", "stopped", "succeeded" or "running"."""
        return {"not_killed": "failed", "not_started": "stopped"}.get(self.state, self.state)


def ranks_of(report: Members) -> list[Rank]:
    """Return the ranks, the ones that failed first."""
    began = report.moment("started_at") or 0.0
    found = [_rank(members, began) for members in report.children("ranks") if members.whole("rank_id") is not None]
    cause = report.child("cause").whole("rank_id")
    return sorted(found, key=lambda rank: (rank.rank_id != cause, rank.order))


def _rank(members: Members, began: float) -> Rank:
    rank_id = members.whole("rank_id") or 0
    started, ended = members.moment("started_at"), members.moment("ended_at")
    state, seconds = members.text("state"), members.number("seconds")
    cpu = [members.number(name) for name in ("user_seconds", "system_seconds")]
    lost, cell_seconds = members.whole("log_lost"), members.number("cell_seconds") or 0.0
    sent = dict(_signals(members, began))
    return Rank(
        rank_id=rank_id,
        title=members.text("name") or f"rank {rank_id}",
        device="" if members.text("name") else str(members.members.get("local_rank", "")),
        pid=str(members.whole("pid") or ""),
        state=state,
        words=words_of(members, state),
        started=_after(started, began),
        ended=_after(ended, began),
        first_output=_after(members.moment("first_output_at"), began),
        asked=sent.get(SIGTERM, sent.get(SIGINT)),
        killed=sent.get(SIGKILL),
        rates=tuple(max(0, count) / cell_seconds for count in members.wholes("activity")) if cell_seconds else (),
        cell_seconds=cell_seconds,
        took=duration(seconds) if seconds is not None and ended is not None else "",
        memory=_size(members, "max_rss"),
        cpu=duration(sum(filter(None, cpu))) if None not in cpu else "",
        output=_size(members, "log_size"),
        lost=f"{lost} bytes are missing" if lost else "",
        log=os.path.basename(members.text("log_path")),
    )


def _after(at: Optional[float], began: float) -> Optional[float]:
    return None if at is None else max(0.0, at - began)


def _signals(members: Members, began: float) -> Iterator[tuple[int, float]]:
    for one in members.pairs("signals"):
        signum, after = one.whole("0"), _after(one.moment("1"), began)
        if signum is not None and after is not None:
            yield signum, after


def words_of(members: Members, state: str) -> str:
    """Describe the state of a rank: "failed (exit status 1)", "stopped (SIGTERM)"."""
    code, signum = members.whole("exit_code"), members.whole("signal")
    how = f" ({signal_name(signum)})" if signum else f" (exit status {code})" if code else ""
    return WORDS.get(state, state) + how


def _size(members: Members, name: str) -> str:
    count = members.whole(name)
    return "" if count is None or count < 0 else size(count)


def states(ranks: Sequence[Rank]) -> list[tuple[str, list[int]]]:
    """Return the ranks of each state in words, in the order of the ranks."""
    found: dict[str, list[int]] = {}
    for rank in ranks:
        found.setdefault(rank.words, []).append(rank.rank_id)
    return [(words, sorted(rank_ids)) for words, rank_ids in found.items()]

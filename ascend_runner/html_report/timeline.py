"""The timeline of a job: a strip for each rank, or for ranks that are alike where there are many. Pure.

Lengths are in thousandths of the width, which is that of the page.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Optional

import attrs

from ascend_runner.html_report.ranks import Rank
from ascend_runner.text import duration, rank_list

WIDTH: Final = 1000
MOST_STRIPS: Final = 64  # with one rank each
NARROWEST: Final = 4  # so that it can be seen
ALIKE: Final = 100  # ranks whose times differ by less than this part of the job share a strip
TICKS: Final = 4


@attrs.frozen(kw_only=True)
class Strip:
    """The strip of some ranks: from `x` on it is `width` wide, and its last `stopping` are those of the teardown."""

    title: str
    words: str
    kind: str
    x: int
    width: int
    stopping: int
    times: str


@attrs.frozen(kw_only=True)
class Timeline:
    """The strips, the ticks of the axis (thousandths and texts), and where the first rank failed."""

    strips: tuple[Strip, ...]
    ticks: tuple[tuple[int, str], ...]
    failure: Optional[int]
    failed_after: str


def draw(ranks: Sequence[Rank], seconds: float, failed: Optional[Rank]) -> Optional[Timeline]:
    """Return the timeline of a job that took so long; None if no rank was started. `failed` is the first to fail."""
    started = [rank for rank in ranks if rank.started is not None]
    total = max([seconds, *(rank.ended or 0.0 for rank in started)])
    if not started or total <= 0:
        return None
    moment = failed.ended if failed else None
    groups = [[rank] for rank in started] if len(started) <= MOST_STRIPS else list(_alike(started, total))
    return Timeline(
        strips=tuple(_strip(group, total, moment) for group in groups),
        ticks=tuple((WIDTH * tick // TICKS, duration(total * tick / TICKS)) for tick in range(TICKS + 1)),
        failure=None if moment is None else _place(moment, total),
        failed_after="" if moment is None else duration(moment),
    )


def _alike(ranks: Sequence[Rank], total: float) -> Iterator[list[Rank]]:
    """Yield the ranks in groups that have ended in the same way at about the same time."""
    groups: dict[object, list[Rank]] = {}
    for rank in ranks:
        times = (round((time or 0.0) / total * ALIKE) for time in (rank.started, rank.ended))
        groups.setdefault((rank.words, *times), []).append(rank)
    yield from groups.values()


def _strip(ranks: Sequence[Rank], total: float, failure: Optional[float]) -> Strip:
    rank, start = ranks[0], ranks[0].started or 0.0
    end = total if rank.ended is None else rank.ended
    x = min(_place(start, total), WIDTH - NARROWEST)
    width = max(NARROWEST, _place(end, total) - x)
    is_stopped = rank.kind == "stopped" and failure is not None and start < failure < end
    ended = "still running" if rank.ended is None else f"ended after {duration(rank.ended)}"
    return Strip(
        title=rank.title if len(ranks) == 1 else rank_list([one.rank_id for one in ranks]),
        words=rank.words,
        kind=rank.kind,
        x=x,
        width=width,
        stopping=max(NARROWEST, _place(end, total) - _place(failure or 0.0, total)) if is_stopped else 0,
        times=f"started after {duration(start)}, {ended}",
    )


def _place(seconds: float, total: float) -> int:
    return min(WIDTH, max(0, round(WIDTH * seconds / total)))

"""The timeline of a job: a strip for each rank, or for each group of similar ranks if there are many. Pure.

Lengths are in thousandths of the width, which is that of the page.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import sqrt
from typing import Final

import attrs

from ascend_runner.html_report.ranks import Rank
from ascend_runner.text import duration, rank_list

WIDTH: Final = 1000
HEIGHT: Final = 20
MOST_STRIPS: Final = 64  # strips with one rank each
NARROWEST: Final = 4  # so that it can be seen
ALIKE: Final = 100  # ranks whose times differ by less than this part of the job share a strip
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
        times = (round((time or 0.0) / total * ALIKE) for time in (rank.started, rank.ended))
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

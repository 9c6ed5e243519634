"""A map of many ranks: a character for each, 64 in a line. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ascend_runner.job_tool.live.columns import STYLES
from ascend_runner.job_tool.live.styled_text import Line, Span, Style, width
from ascend_runner.job_tool.live.view import OUTLIERS, RankView, State
from ascend_runner.text import counted

WIDTH: Final = 64  # ranks of a line
LABEL: Final = 7  # cells
LETTERS: Final = {
    State.FAILED: "F",
    State.NOT_KILLED: "K",
    State.QUIET: "q",
    State.BEHIND: "b",
    State.ENDED: "e",
    State.STOPPED: "s",
    State.STOPPING: "s",
    State.NOT_STARTED: " ",
    State.RUNNING: "·",
    State.SUCCEEDED: "+",
}


def lines(ranks: Sequence[RankView], room: int, columns: int) -> list[Line]:
    """Draw ranks in the order of their numbers. Without room for all lines, those with an outlier are preferred."""
    ordered = sorted(ranks, key=lambda rank: rank.rank_id)
    rows = [ordered[first : first + WIDTH] for first in range(0, len(ordered), WIDTH)]
    if len(rows) <= room:
        return [_line(row, columns) for row in rows]
    odd = [row for row in rows if any(rank.state in OUTLIERS for rank in row)]
    chosen = sorted((odd + [row for row in rows if row not in odd])[: room - 1], key=rows.index)
    hidden = len(rows) - len(chosen)
    without = "" if len(odd) > len(chosen) else " without outliers"
    rest = f"{'...':>{LABEL}} {counted(hidden, 'more line')}{without} (a: all ranks)"
    return [*(_line(row, columns) for row in chosen), ((rest, Style.DIM),)]


def _line(row: Sequence[RankView], columns: int) -> Line:
    spans: list[Span] = [(f"{row[0].rank_id:>{LABEL}} ", Style.DIM)]
    for rank in row:
        text, style = LETTERS[rank.state], STYLES[rank.state]
        if spans[-1][1] is style:
            spans[-1] = (spans[-1][0] + text, style)
        else:
            spans.append((text, style))
    nodes = list(dict.fromkeys(rank.node for rank in row if rank.node))
    names = f"  {nodes[0]} - {nodes[-1]}" if len(nodes) > 1 else "".join(f"  {node}" for node in nodes)
    if sum(width(text) for text, _style in spans) + width(names) <= columns:
        spans.append((names, Style.DIM))
    return tuple(spans)

"""The columns of the table of ranks: their contents, and which ones fit. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import attrs

from ascend_runner.job_tool.live.styled_text import Span, Style, curve, cut, cut_start, padded, short_duration, width
from ascend_runner.job_tool.live.view import OUTLIERS, RankView, State
from ascend_runner.text import size

MISSING: Final = "-"
OLD: Final = "*"  # marks an old figure
OLD_AGE: Final = 10.0  # seconds after which a figure is old
SPACE: Final = 2  # cells between columns
MARGIN: Final = 2  # cells before the first one, where the cursor is
LINE_WIDTH: Final = 24  # fewest cells of the last line
NODE_WIDTH: Final = 12  # cells of a node before the last line has enough; names differ at their ends
CURVE_WIDTHS: Final = (48, 24, 16)  # cells of the curve of the output
CURVE_PART: Final = 6  # the curve takes at most this part of a line: a sixth
STYLES: Final = {
    State.FAILED: Style.BAD,
    State.NOT_KILLED: Style.BAD,
    State.QUIET: Style.ODD,
    State.BEHIND: Style.ODD,
    State.ENDED: Style.ODD,
    State.STOPPING: Style.DIM,
    State.STOPPED: Style.DIM,
    State.NOT_STARTED: Style.DIM,
    State.RUNNING: Style.GOOD,
    State.SUCCEEDED: Style.GOOD,
}


@attrs.frozen(kw_only=True)
class Column:
    """A column. `text` returns the cell of a rank at a time, and `style` how it is shown.

    A cell that is too wide loses its end, or else its beginning if that `keeps_end`.
    """

    head: str
    text: Callable[[RankView, float], str]
    is_right: bool = True
    style: Callable[[RankView], Style] = lambda _rank: Style.PLAIN
    keeps_end: bool = False


def _known(value: float | None, unit: str = "") -> str:
    return MISSING if value is None else f"{value:.0f}{unit}"


def _figure(name: str, unit: str) -> Callable[[RankView, float], str]:
    """Return the cells of a figure of the NPU; one that is old is marked."""

    def text(rank: RankView, now: float) -> str:
        value = getattr(rank.device, name) if rank.device else None
        is_old = value is not None and rank.device is not None and now - rank.device.at > OLD_AGE
        return _known(value, unit) + (OLD if is_old else "")

    return text


RANK: Final = Column(head="rank", text=lambda rank, _now: rank.title, style=lambda _rank: Style.BOLD)
NODE: Final = Column(head="node", text=lambda rank, _now: rank.node or MISSING, is_right=False, keeps_end=True)
NPU: Final = Column(head="NPU", text=lambda rank, _now: _known(rank.npu))
DEVICE: Final = attrs.evolve(NPU, head="device")  # instead, on a machine without NPUs
STATE: Final = Column(
    head="state", text=lambda rank, _now: rank.words, is_right=False, style=lambda rank: STYLES[rank.state]
)
QUIET: Final = Column(
    head="quiet for",
    text=lambda rank, _now: MISSING if rank.quiet is None else short_duration(rank.quiet),
    style=lambda rank: Style.ODD if rank.state is State.QUIET else Style.PLAIN,
)
STEP: Final = Column(
    head="step",
    text=lambda rank, _now: _known(rank.step),
    style=lambda rank: Style.ODD if rank.state is State.BEHIND else Style.PLAIN,
)
CPU: Final = Column(head="CPU", text=lambda rank, _now: _known(rank.cpu, "%"))
MEMORY: Final = Column(head="memory", text=lambda rank, _now: MISSING if rank.memory is None else size(rank.memory))
HBM: Final = Column(head="HBM", text=_figure("memory", "%"))
AI_CORE: Final = Column(head="AI core", text=_figure("ai_core", "%"))
TEMPERATURE: Final = Column(head="temp", text=_figure("temperature", "°C"))

IN_ORDER: Final = (RANK, NODE, NPU, DEVICE, STATE, QUIET, STEP, CPU, MEMORY, HBM, AI_CORE, TEMPERATURE)
BEFORE_LINE: Final = (RANK, STATE, QUIET, STEP, NODE)  # worth more than the last line
BY_WORTH: Final = (*BEFORE_LINE, NPU, DEVICE, AI_CORE, HBM, CPU, TEMPERATURE, MEMORY)


@attrs.frozen
class Table:
    """The columns that fit, with their widths; `curve` and `line` are those of the output and of the last line."""

    columns: tuple[tuple[Column, int], ...]
    curve: int
    line: int

    def head(self) -> list[Span]:
        """Return the heads."""
        heads = [padded(column.head, cells, is_right=column.is_right) for column, cells in self.columns]
        heads += [padded("output", self.curve)] if self.curve else []
        heads += [padded("last line", self.line)] if self.line else []
        return [(" " * MARGIN + (" " * SPACE).join(heads), Style.HEAD)]

    def row(self, rank: RankView, now: float) -> list[Span]:
        """Return the cells of a rank, without the margin."""
        spans: list[Span] = []
        for column, cells in self.columns:
            text = column.text(rank, now)
            text = cut_start(text, cells) if column.keeps_end else text
            style = Style.DIM if text == MISSING else column.style(rank)
            spans += [(padded(text, cells, is_right=column.is_right), style), (" " * SPACE, Style.PLAIN)]
        if self.curve:
            drawn = padded(curve(rank.output, self.curve), self.curve + SPACE)
            spans.append((drawn, STYLES[rank.state] if rank.state in OUTLIERS else Style.CURVE))
        if self.line:
            spans.append((cut(rank.last_line, self.line), Style.BAD if rank.state is State.FAILED else Style.PLAIN))
        return spans


def fitting(ranks: Sequence[RankView], now: float, cells: int, *, has_npus: bool) -> Table:
    """Return the columns that are worth most among those that fit into a line."""
    known = [column for column in IN_ORDER if column is not (DEVICE if has_npus else NPU)]
    widths = {column: _width(column, ranks, now) for column in known if _is_worth(column, ranks, now)}
    for_line = LINE_WIDTH if any(rank.last_line for rank in ranks) else 0
    left = cells - MARGIN
    kept = set()
    for column in BY_WORTH:
        if column is NODE and column in widths:
            widths[column] = min(widths[column], max(NODE_WIDTH, left - SPACE - for_line))
        needed = widths.get(column, cells) + SPACE
        if needed + (0 if column in BEFORE_LINE else for_line) <= left:
            kept.add(column)
            left -= needed
    has_curves = any(rank.output for rank in ranks)
    curves = [size for size in CURVE_WIDTHS if has_curves and size <= cells // CURVE_PART]
    curve_cells = next((size for size in curves if left - size - SPACE >= LINE_WIDTH), 0)
    left -= curve_cells + SPACE if curve_cells else 0
    in_order = tuple((column, widths[column]) for column in IN_ORDER if column in kept)
    return Table(in_order, curve_cells, left if for_line and left >= LINE_WIDTH // 2 else 0)


def _is_worth(column: Column, ranks: Sequence[RankView], now: float) -> bool:
    """Return whether a column is of use: any cell is known, and the nodes of the ranks differ."""
    cells = {column.text(rank, now) for rank in ranks}
    return len(cells) > 1 if column is NODE else cells != {MISSING}


def _width(column: Column, ranks: Sequence[RankView], now: float) -> int:
    return max(width(column.head), *(width(column.text(rank, now)) for rank in ranks))

"""One frame of `ascend-job top`: a job as lines of styled text, for a terminal of a given size. Pure.

It has a head, a table of ranks with the columns that fit, or a map of many ranks with a character for each, and the end
of a log. Ranks that are quiet or behind show only in comparison with the others, see `judged`.
"""

from __future__ import annotations

import enum
import statistics
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

import attrs

from ascend_runner.node.npu_smi import Figures
from ascend_runner.record.nodes import NodeRecord
from ascend_runner.supervision import outliers
from ascend_runner.text import columns, counted, format_numbers, printable, rank_list, size
from ascend_runner.training.steps import Step
from ascend_runner.views import facts

BLOCKS: Final = "▁▂▃▄▅▆▇█"
ELLIPSIS: Final = "…"
MINUTE, HOUR, DAY = 60, 3600, 86400  # seconds


class Style(enum.Enum):
    """How a text is shown; the app decides on the colors."""

    PLAIN = "plain"
    DIM = "dim"
    BOLD = "bold"
    HEAD = "head"
    TITLE = "title"
    KEY = "key"
    GOOD = "good"
    ODD = "odd"
    BAD = "bad"
    CURVE = "curve"


Span = tuple[str, Style]
Line = tuple[Span, ...]


def width(text: str) -> int:
    """Return how many cells a printable text takes: two for each wide character, none for a combining one."""
    if text.isascii():
        return len(text)
    return sum(_width(char) for char in text)


def _width(char: str) -> int:
    if unicodedata.combining(char) or unicodedata.category(char) in {"Mn", "Me"}:
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def cut(text: str, cells: int) -> str:
    """Return a text, or its beginning and an ellipsis if it needs more cells."""
    if width(text) <= cells:
        return text
    kept, room = "", cells - 1
    for char in text:
        room -= _width(char)
        if room < 0:
            break
        kept += char
    return kept + ELLIPSIS if cells > 0 else ""


def cut_start(text: str, cells: int) -> str:
    """Return a text, or an ellipsis and its end if it needs more cells."""
    return text if width(text) <= cells else cut(text[::-1], cells)[::-1]


def padded(text: str, cells: int, *, is_right: bool = False) -> str:
    """Return a text padded to a number of cells."""
    text = cut(text, cells)
    space = " " * (cells - width(text))
    return space + text if is_right else text + space


def short_duration(seconds: float) -> str:
    """Write a duration in its largest unit: "12 s", "4 min", "2 h", "3 d"."""
    for length, unit in ((DAY, "d"), (HOUR, "h"), (MINUTE, "min")):
        if seconds >= length:
            return f"{int(seconds // length)} {unit}"
    return f"{int(seconds)} s"


def curve(values: Sequence[int], cells: int) -> str:
    """Draw values as blocks, at most one for each cell; zero is a space.

    A full block is twice the median of those above zero, so that a burst does not flatten the rest.
    """
    if not values or cells <= 0:
        return ""
    count = min(cells, len(values))
    edges = [index * len(values) // count for index in range(count + 1)]
    means = [sum(values[begin:end]) / (end - begin) for begin, end in zip(edges, edges[1:])]
    above = [mean for mean in means if mean > 0]
    scale = len(BLOCKS) / (2 * statistics.median(above)) if above else 0.0
    return "".join(BLOCKS[min(len(BLOCKS) - 1, int(mean * scale))] if mean > 0 else " " for mean in means)


def bar(part: float, cells: int) -> tuple[str, str]:
    """Return the two parts of a bar that shows which part is done."""
    done = round(max(0.0, min(1.0, part)) * cells)
    return "━" * done, "─" * (cells - done)


class State(enum.Enum):
    """The state of a rank as it is shown, the one that needs most attention first."""

    FAILED = "failed"
    NOT_KILLED = "not killed"
    OUTLIER = "outlier"  # running, but elsewhere in the program than the others, which hang
    SLOW = "slow"  # running, but slower than the others
    QUIET = "quiet"  # running, but without output for much longer than the others
    BEHIND = "behind"  # running, but some steps behind the others
    ENDED = "ended"  # since the report was written
    NOT_STARTED = "not started"
    STOPPED = "stopped"
    STOPPING = "stopping"
    RUNNING = "running"
    SUCCEEDED = "succeeded"

    @property
    def is_running(self) -> bool:
        """Whether the rank runs."""
        return self in {State.RUNNING, State.STOPPING, *MARKED, State.NOT_KILLED}


MARKED: Final = frozenset({State.OUTLIER, State.SLOW, State.QUIET, State.BEHIND})  # running, but unlike the others
OUTLIERS: Final = frozenset({State.FAILED, State.NOT_KILLED, *MARKED, State.ENDED})
INTERRUPTED: Final = frozenset({State.ENDED, State.STOPPED})


@attrs.frozen(kw_only=True)
class RankView:
    """One rank; figures that are unknown are None.

    `npu` is the id of its NPU in /dev, `quiet` is the number of seconds without output, and `over` the number since its
    end. `cpu` is the percent of a core that its processes use, `average_cpu` the same over the last minute, and
    `memory` their bytes. `ending` is how it ended: "failed (SIGSEGV)"; the job failed because of the rank with
    `is_culprit`. `output` are the bytes of equal spans of time from the start of the attempt until now.
    """

    rank_id: int
    state: State
    ending: str = ""
    is_culprit: bool = False
    name: str = ""
    node: str = ""
    pid: int = 0
    npu: int | None = None
    quiet: float | None = None
    over: float | None = None
    step: int | None = None
    cpu: float | None = None
    average_cpu: float | None = None
    memory: int | None = None
    device: Figures | None = None
    output: tuple[int, ...] = ()
    last_lines: tuple[str, ...] = ()
    why_silent: str = ""  # why no output is expected of a rank that has written nothing
    history: Mapping[str, tuple[int, ...]] = {}  # figures of the last minutes, by their names

    @property
    def title(self) -> str:
        """The number of the rank, or the name of an auxiliary process."""
        return self.name or str(self.rank_id)

    @property
    def last_line(self) -> str:
        """The last line of its output, without the spaces that align it with others."""
        return " ".join("".join(self.last_lines[-1:]).split()) or self.why_silent

    @property
    def words(self) -> str:
        """Its state, with how it ended."""
        return self.ending or self.state.value


@attrs.frozen(kw_only=True)
class JobView:
    """A job. `headline` is its state in a sentence, `brief` the same without times of day, `cause` why it failed.

    `outlook` is how long it is held, or which attempt this is. It runs on the node or nodes of `place`. `step` is the
    last one that a rank has printed, with the seconds that a step takes. `now` is the time on the monotonic clock.
    Without `has_npus`, the numbers of NPUs are only the node's device ids. With `has_stacks`, the stacks of
    its ranks can be read. `nodes` are those of the job that its runner knows of, none if it has only one.
    """

    name: str
    headline: str
    brief: str
    ranks: tuple[RankView, ...]
    now: float
    place: str
    step: Step
    cause: str = ""
    outlook: str = ""
    is_over: bool = False
    has_npus: bool = False
    has_stacks: bool = False
    condition: str = ""  # a hang or a slow training
    nodes: tuple[NodeRecord, ...] = ()


def judged(ranks: Sequence[RankView]) -> tuple[RankView, ...]:
    """Return ranks with the states that show only in comparison: quiet and behind."""
    running = [rank for rank in ranks if rank.state is State.RUNNING]
    long_quiet = outliers.quiet(*silences(ranks))
    far_behind = outliers.behind({rank.rank_id: rank.step for rank in running if rank.step is not None})

    def state(rank: RankView) -> State:
        if rank.state is not State.RUNNING:
            return rank.state
        if rank.rank_id in long_quiet:
            return State.QUIET
        return State.BEHIND if rank.rank_id in far_behind else State.RUNNING

    states = map(state, ranks)
    return tuple(rank if found is rank.state else attrs.evolve(rank, state=found) for rank, found in zip(ranks, states))


def silences(ranks: Iterable[RankView]) -> tuple[dict[int, float], list[float]]:
    """Return the seconds without output of each running rank, and those since each rank that has succeeded did so."""
    compared = {State.RUNNING, *MARKED}
    quiet = {rank.rank_id: rank.quiet for rank in ranks if rank.state in compared and rank.quiet is not None}
    return quiet, [rank.over for rank in ranks if rank.state is State.SUCCEEDED and rank.over is not None]


def middle(values: Iterable[float | None]) -> float | None:
    """Return the median of the known values, or None if there are none."""
    known = [value for value in values if value is not None]
    return statistics.median_low(known) if known else None


_PLACES: Final = {state: place for place, state in enumerate(State)}


def last_steps(ranks: Iterable[RankView]) -> dict[int, int]:
    """Return the last steps of the ranks that have ended with the job, and not by themselves."""
    return {rank.rank_id: rank.step for rank in ranks if rank.step is not None and rank.state in INTERRUPTED}


def in_order(ranks: Sequence[RankView]) -> list[RankView]:
    """Return ranks in the order in which they are shown: the culprit, the outliers, and the others by number.

    Of ranks that have ended with the job, the ones that were behind come first; successful ones come last.
    """
    were_behind = outliers.behind(last_steps(ranks))

    def key(rank: RankView) -> tuple[bool, int, bool, int]:
        place = _PLACES[rank.state] if rank.state in OUTLIERS else len(_PLACES) + (rank.state is State.SUCCEEDED)
        return not rank.is_culprit, place, rank.rank_id not in were_behind, rank.rank_id

    return sorted(ranks, key=key)


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
    **dict.fromkeys(MARKED, Style.ODD),
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
    key: Callable[[RankView], float | str | None]  # what ranks are sorted by
    is_right: bool = True
    style: Callable[[RankView], Style] = lambda _rank: Style.PLAIN
    keeps_end: bool = False


def _known(value: float | None, unit: str = "") -> str:
    return MISSING if value is None else f"{value:.0f}{unit}"


def _figure(name: str, unit: str) -> Callable[[RankView, float], str]:
    """Return the cells of a figure of the NPU; old values are marked."""

    def text(rank: RankView, now: float) -> str:
        value = getattr(rank.device, name) if rank.device else None
        is_old = value is not None and rank.device is not None and now - rank.device.at > OLD_AGE
        return _known(value, unit) + (OLD if is_old else "")

    return text


def _of_device(name: str) -> Callable[[RankView], float | None]:
    return lambda rank: getattr(rank.device, name) if rank.device else None


RANK: Final = Column(
    head="rank", text=lambda rank, _now: rank.title, key=lambda rank: -rank.rank_id, style=lambda _rank: Style.BOLD
)
NODE: Final = Column(
    head="node",
    text=lambda rank, _now: rank.node or MISSING,
    key=lambda rank: rank.node,
    is_right=False,
    keeps_end=True,
)
NPU: Final = Column(
    head="NPU", text=lambda rank, _now: _known(rank.npu), key=lambda rank: None if rank.npu is None else -rank.npu
)
DEVICE: Final = attrs.evolve(NPU, head="device")  # instead, on a machine without NPUs
STATE: Final = Column(
    head="state",
    text=lambda rank, _now: rank.words,
    key=lambda rank: -_PLACES[rank.state],
    is_right=False,
    style=lambda rank: STYLES[rank.state],
)
QUIET: Final = Column(
    head="quiet for",
    text=lambda rank, _now: MISSING if rank.quiet is None else short_duration(rank.quiet),
    key=lambda rank: rank.quiet,
    style=lambda rank: Style.ODD if rank.state is State.QUIET else Style.PLAIN,
)
STEP: Final = Column(
    head="step",
    text=lambda rank, _now: _known(rank.step),
    key=lambda rank: None if rank.step is None else -rank.step,
    style=lambda rank: Style.ODD if rank.state is State.BEHIND else Style.PLAIN,
)
CPU: Final = Column(head="CPU", text=lambda rank, _now: _known(rank.cpu, "%"), key=lambda rank: rank.cpu)
MEMORY: Final = Column(
    head="memory",
    text=lambda rank, _now: MISSING if rank.memory is None else size(rank.memory),
    key=lambda rank: rank.memory,
)
HBM: Final = Column(head="HBM", text=_figure("memory", "%"), key=_of_device("memory"))
AI_CORE: Final = Column(head="AI core", text=_figure("ai_core", "%"), key=_of_device("ai_core"))
TEMPERATURE: Final = Column(head="temp", text=_figure("temperature", "°C"), key=_of_device("temperature"))

IN_ORDER: Final = (RANK, NODE, NPU, DEVICE, STATE, QUIET, STEP, CPU, MEMORY, HBM, AI_CORE, TEMPERATURE)
BEFORE_LINE: Final = (RANK, STATE, QUIET, STEP, NODE)  # worth more than the last line
BY_WORTH: Final = (*BEFORE_LINE, NPU, DEVICE, AI_CORE, HBM, CPU, TEMPERATURE, MEMORY)


@attrs.frozen
class Table:
    """The columns that fit, with their widths; `curve` and `line` are the output over time and the last line."""

    columns: tuple[tuple[Column, int], ...]
    curve: int
    line: int

    def head(self, sort: str) -> list[Span]:
        """Return the heads; the one that ranks are sorted by stands out."""
        spans: list[Span] = [(" " * MARGIN, Style.HEAD)]
        for column, cells in self.columns:
            style = Style.TITLE if column.head == sort else Style.HEAD
            spans += [(padded(column.head, cells, is_right=column.is_right), style), (" " * SPACE, Style.HEAD)]
        rest = [padded("output", self.curve)] if self.curve else []
        rest += [padded("last line", self.line)] if self.line else []
        return [*spans, ((" " * SPACE).join(rest), Style.HEAD)]

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
            line = rank.last_line if rank.last_lines else facts.briefly_silent(rank.why_silent, self.line)
            spans.append((cut(line, self.line), Style.BAD if rank.state is State.FAILED else Style.PLAIN))
        return spans


def fitting(ranks: Sequence[RankView], now: float, cells: int, *, has_npus: bool) -> Table:
    """Return the most valuable columns that fit into a line."""
    known = [column for column in IN_ORDER if column is not (DEVICE if has_npus else NPU)]
    widths = {column: _column_width(column, ranks, now) for column in known if _is_worth(column, ranks, now)}
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


def _column_width(column: Column, ranks: Sequence[RankView], now: float) -> int:
    return max([width(column.head), *(width(column.text(rank, now)) for rank in ranks)])


WIDTH: Final = 64  # ranks of a line
LABEL: Final = 7  # cells
LETTERS: Final = {
    State.FAILED: "F",
    State.NOT_KILLED: "K",
    State.OUTLIER: "o",
    State.SLOW: "w",
    State.QUIET: "q",
    State.BEHIND: "b",
    State.ENDED: "e",
    State.STOPPED: "s",
    State.STOPPING: "s",
    State.NOT_STARTED: " ",
    State.RUNNING: "·",
    State.SUCCEEDED: "+",
}


def map_lines(ranks: Sequence[RankView], room: int, columns: int) -> list[Line]:
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


FEW: Final = 16  # ranks that always have a line each
MOST_ROWS: Final = 256  # ranks that have a line each if the screen has room for them; of more a map is shown
BAR: Final = 32  # most cells of the progress bar
LEAST_BAR: Final = 8  # fewest cells of it
LEAST_LOG: Final = 4  # lines of the screen for the end of a log, with a title and two blank ones
COMPARED: Final = frozenset({State.RUNNING, State.BEHIND})
WIDE: Final = 120  # cells of a terminal that shows figures of the last minutes
CURVE: Final = 24  # cells of one
NO_OUTPUT: Final = "no output yet"
CURSOR: Final = "▸ "
BLANK: Final[Line] = ()
S, A = "s", "a"
KEYS: Final = (
    ("enter", "log"),
    (S, "stacks"),
    ("e", "events"),
    (A, "all ranks"),
    ("<>", "sort"),
    ("/", "search"),
    ("?", "help"),
    ("q", "quit"),
)
HELP: Final = (
    "↑ ↓  PgUp PgDn  Home End   choose a rank; in a view, scroll",
    "Enter, l                   log of the rank, followed at its end",
    "s                          stacks of this node: the rank that others wait for",
    "e                          events of the job",
    "a                          all ranks, or only the outliers",
    "< >                        sort by another column; by default, outliers first",
    "/  n  N                    search ranks or a view; next, previous match",
    "?, h, F1                   this help",
    "q, Esc                     leave a view",
    "q, Ctrl-C                  quit; the job is not affected",
    "",
    "-  unknown   *  older than 10 s   yellow  unlike the other ranks   red  failed",
    "",
    "Ranks waiting for each other have equal steps and output, even if one is slow.",
)  # at most 79 cells: a view leaves the first column free
STACKS: Final[Line] = (("  (", Style.DIM), (S, Style.KEY), (": stacks)", Style.DIM))
# If ranks wait for each other, their steps and their output are equal, and only their stacks tell them apart.
WHICH_RANK: Final[Line] = ((" ", Style.PLAIN), (S, Style.KEY), (": see which rank the others wait for", Style.DIM))


@attrs.frozen(kw_only=True)
class Screen:
    """The size of the terminal, and what the user has chosen. `selected` is the rank at the cursor."""

    columns: int
    rows: int
    selected: int | None = None
    shows_all: bool = False
    sort: str = ""  # the head of the column to sort by; "": outliers first
    note: str = ""


@attrs.frozen
class Frame:
    """The lines of a screen, at most as many as the terminal has.

    `ranks` are the ranks that the cursor can reach, in order, and `heads` the heads of the columns.
    """

    lines: tuple[Line, ...]
    ranks: tuple[int, ...]
    selected: int | None
    heads: tuple[str, ...] = ()


def frame(job: JobView, screen: Screen) -> Frame:
    """Draw a job."""
    head = [_title(job, screen), *_facts(job, screen), BLANK, *_nodes(job, screen)]
    room = max(1, screen.rows - len(head) - 2)  # without the heads of the columns and the keys
    ordered = in_order(job.ranks)
    odd = [rank for rank in ordered if rank.state in OUTLIERS]
    below: list[Line] = []
    rows = ordered
    if not screen.shows_all and len(ordered) > max(FEW, min(room, MOST_ROWS)):
        rows = odd or ordered[:1]
        if len(ordered) > MOST_ROWS:
            drawn = map_lines(job.ranks, max(1, room - min(len(odd), room // 3) - 1), screen.columns)
            head += [*drawn, BLANK]
        else:
            below = [_others(ordered[len(rows) :], screen)]
    rows = [*_sorted(rows, screen.sort)]
    room = max(1, screen.rows - len(head) - 2 - len(below))
    selected = screen.selected if screen.selected in {rank.rank_id for rank in rows} else None
    if selected is None and rows:
        selected = rows[0].rank_id
    shown = _window(rows, selected, room)
    table = fitting(shown, job.now, screen.columns, has_npus=job.has_npus)
    lines = [*head, *_table(job, table, shown, attrs.evolve(screen, selected=selected)), *below]
    at_cursor = next((rank for rank in shown if rank.rank_id == selected), None)
    lines += _log_end(at_cursor, screen.rows - 1 - len(lines), screen.columns)
    lines = _with_keys(lines, job, screen, is_partial=screen.shows_all or len(rows) < len(ordered))
    clipped = tuple(_clipped(line, screen.columns) for line in lines)
    heads = tuple(column.head for column, _cells in table.columns)
    return Frame(clipped, tuple(rank.rank_id for rank in rows), selected, heads)


def _with_keys(lines: list[Line], job: JobView, screen: Screen, *, is_partial: bool) -> list[Line]:
    """Return lines that fill the screen, with the keys on the last one."""
    lines = lines[: screen.rows - 1]
    has_stacks = job.has_stacks and any(rank.state.is_running for rank in job.ranks)
    useless = {name for name, is_of_use in ((A, is_partial), (S, has_stacks)) if not is_of_use}
    return [*lines, *[BLANK] * (screen.rows - 1 - len(lines)), _keys(screen, useless)]


def matches(rank: RankView, text: str) -> bool:
    """Whether a rank has a text in its row."""
    row = " ".join((f"rank {rank.title}", rank.node, rank.words, rank.last_line))
    return text.casefold() in row.casefold()


def _sorted(ranks: Sequence[RankView], head: str) -> Sequence[RankView]:
    """Return ranks sorted by the column with this head: the most interesting values first, unknown ones last."""
    column = next((column for column in IN_ORDER if column.head == head), None)
    if column is None:
        return ranks
    known = [(key, rank) for rank in ranks if (key := column.key(rank)) is not None]
    known.sort(key=lambda pair: pair[0], reverse=column is not NODE)
    return [*(rank for _key, rank in known), *(rank for rank in ranks if column.key(rank) is None)]


def _clipped(line: Line, cells: int) -> Line:
    """Return the part of a line that fits."""
    spans: list[Span] = []
    for text, style in line:
        part = cut(text, cells)
        spans.append((part, style))
        cells -= width(part)
        if part != text:
            break
    return tuple(spans)


def _window(rows: Sequence[RankView], selected: int | None, room: int) -> Sequence[RankView]:
    """Return the rows around the cursor that there is room for."""
    at = next((index for index, rank in enumerate(rows) if rank.rank_id == selected), 0)
    first = max(0, min(at - room // 2, len(rows) - room))
    return rows[first : first + room]


def _title(job: JobView, screen: Screen) -> Line:
    text = f" {printable(job.name)}: {printable(job.headline)}"
    if width(text) > screen.columns:
        text = f" {printable(job.name)}: {printable(job.brief)}"
    place = f"{printable(job.place)} "
    if width(text) + width(place) + 2 > screen.columns:
        place = ""
    return ((padded(text, screen.columns - width(place)) + place, Style.TITLE),)


def _facts(job: JobView, screen: Screen) -> list[Line]:
    """Return the lines between the title and the table: the training, the states, the cause or the outliers."""
    lines = [_step(job, screen), _states(job)]
    steps = last_steps(job.ranks)
    were_behind = outliers.behind_sentence(outliers.behind(steps), steps, is_over=job.is_over)
    reason = "; ".join(filter(None, (printable(job.cause), were_behind)))
    if reason:
        lines.append(((cut(f" {reason}", screen.columns), Style.BAD if job.cause else Style.ODD),))
    else:
        lines.append(_odd(job, screen))
    if job.outlook:
        lines.append(((cut(f" {printable(job.outlook)}", screen.columns), Style.PLAIN),))
    return [line for line in lines if line]


def _step(job: JobView, screen: Screen) -> Line:
    """Describe the training: "step 1204 of 1563 ━━━━── 1.75 s per step, about 10 min left, loss 2.31"."""
    step = job.step
    if step.step is None:
        return ()
    spans: list[Span] = [(" step ", Style.PLAIN), (f"{step.step}", Style.BOLD)]
    left = ""
    if step.seconds and step.steps and step.steps > step.step and _goes_on(job):
        left = f"about {short_duration((step.steps - step.step) * step.seconds)} left"
    figures = [*facts.step_figures(step, left)]
    if step.throughput is not None:
        figures.append(f"{step.throughput:.4g} {step.unit}".rstrip())
    text = f"  {', '.join(filter(None, figures))}"
    if step.steps:
        spans.append((f" of {step.steps}  ", Style.PLAIN))
        room = screen.columns - sum(width(text) for text, _style in spans) - width(text)
        done, rest = bar(step.step / step.steps, max(LEAST_BAR, min(BAR, screen.columns // 4, room)))
        spans += [(done, Style.GOOD), (rest, Style.DIM)]
    used = sum(width(text) for text, _style in spans)
    return (*spans, (cut(text, screen.columns - used), Style.PLAIN))


def _goes_on(job: JobView) -> bool:
    """Whether the training goes on: no rank has failed, and some are running."""
    states = {rank.state for rank in job.ranks}
    return not job.is_over and State.FAILED not in states and any(state.is_running for state in states)


def _states(job: JobView) -> Line:
    """Count the ranks by their states: "8 ranks: 7 running, 1 quiet"."""
    counts = Counter(rank.state for rank in job.ranks)
    total = len(job.ranks)
    if total == 1:
        state = job.ranks[0].state
        return (" 1 rank: ", Style.PLAIN), (state.value, STYLES[state])
    spans: list[Span] = [(f" {total} ranks: ", Style.PLAIN)]
    for state in State:
        if counts[state]:
            comma = ", " if len(spans) > 1 else ""
            spans += [(comma, Style.PLAIN), (f"{counts[state]} {state.value}", STYLES[state])]
    return tuple(spans) if total else ((" no ranks yet", Style.DIM),)


def _odd(job: JobView, screen: Screen) -> Line:
    """Describe the outliers: "rank 5 has been quiet for 4 min 12 s, the others for at most 2 s"; or how to find one."""
    failed = [rank.rank_id for rank in job.ranks if rank.state is State.FAILED]
    if failed:
        return ((cut(f" {rank_list(failed)} failed", screen.columns), Style.ODD),)
    behind = [rank.rank_id for rank in job.ranks if rank.state is State.BEHIND]
    steps = {rank.rank_id: rank.step for rank in job.ranks if rank.step is not None and rank.state in COMPARED}
    sentence = printable(job.condition) or outliers.quiet_sentence(*silences(job.ranks))
    sentence = sentence or outliers.behind_sentence(behind, steps)
    style = Style.ODD if sentence else Style.PLAIN  # a rank that is busier need not be slow
    running = [rank for rank in job.ranks if rank.state is State.RUNNING]
    averages = {rank.rank_id: rank.average_cpu for rank in running if rank.average_cpu is not None}
    if not sentence and len(averages) == len(running):  # processes on other machines are unknown
        sentence = outliers.busy_sentence(averages)
    if not sentence and job.has_stacks and len(running) > 1:
        return WHICH_RANK
    if not sentence or not job.has_stacks:
        return ((cut(f" {sentence}", screen.columns), style),) if sentence else ()
    room = screen.columns - sum(width(text) for text, _style in STACKS)
    return ((cut(f" {sentence}", room), style), *STACKS)


def _nodes(job: JobView, screen: Screen) -> list[Line]:
    """Return the table of the nodes, which takes a quarter of the screen at most, and a blank line."""
    if not job.nodes:
        return []
    rows, rest = facts.node_rows(job.nodes, max(2, screen.rows // 4 - 3))
    odd = {row.node for row in facts.odd_nodes(job.nodes)}
    cells = [facts.node_cells(row, is_over=job.is_over) for row in rows]
    styles = Style.HEAD, *(Style.ODD if row.node in odd else Style.PLAIN for row in rows)
    lines: list[Line] = [((f"  {line}", style),) for line, style in zip(columns(facts.NODE_HEADS, cells), styles)]
    return [*lines, *([((f"  {rest}", Style.DIM),)] if rest else []), BLANK]


def _table(job: JobView, table: Table, rows: Sequence[RankView], screen: Screen) -> list[Line]:
    if not rows:
        return []
    lines: list[Line] = [tuple(table.head(screen.sort))]
    for rank in rows:
        mark = (CURSOR if rank.rank_id == screen.selected else " " * len(CURSOR), Style.KEY)
        lines.append((mark, *table.row(rank, job.now)))
    return lines


def _log_end(rank: RankView | None, room: int, columns: int) -> list[Line]:
    """Return the last lines of the rank at the cursor, below a title and between blank lines, if there is room.

    A wide terminal also shows its figures of the last minutes.
    """
    if rank is None or room < LEAST_LOG:
        return []
    name = rank.title if rank.name else f"rank {rank.title}"
    title: list[Span] = [(f" {name}: end of the log", Style.DIM)]
    if columns >= WIDE:
        for figure, values in rank.history.items():
            title += [(f"   {figure} ", Style.DIM), (curve(values, CURVE), Style.CURVE)]
    texts = rank.last_lines or (rank.why_silent or NO_OUTPUT,)
    return [BLANK, tuple(title), *(((f"  {line}", Style.PLAIN),) for line in texts[3 - room :])]


def _others(others: Sequence[RankView], screen: Screen) -> Line:
    """Describe the ranks that have no line: "57 similar (median): quiet for 1 s, step 1204, CPU 102%; ranks 0-4"."""
    devices = [rank.device for rank in others if rank.device]
    figures = (
        ("quiet for ", middle(rank.quiet for rank in others), " s"),
        ("step ", middle(rank.step for rank in others), ""),
        ("CPU ", middle(rank.cpu for rank in others), "%"),
        ("HBM ", middle(device.memory for device in devices), "%"),
        ("AI core ", middle(device.ai_core for device in devices), "%"),
        ("", middle(device.temperature for device in devices), "°C"),
    )
    facts = ", ".join(f"{name}{value:.0f}{unit}" for name, value, unit in figures if value is not None)
    names = format_numbers(rank.rank_id for rank in others)
    text = f"  {len(others)} similar (median): {facts}{'; ' if facts else ''}ranks {names}"
    return ((cut(text, screen.columns), Style.DIM),)


def _keys(screen: Screen, useless: Collection[str]) -> Line:
    """Return the last line: the keys that have an effect now, or a note."""
    if screen.note:
        return ((padded(f" {printable(screen.note)}", screen.columns), Style.ODD),)
    keys = [(key, f" {what}") for key, what in KEYS if key not in useless]
    first, last = keys[:-2], keys[-2:]  # the last ones explain the others, and leave the screen
    while keys[1:] and sum(len(f" {key}{what}  ") for key, what in keys) > screen.columns:
        first, last = (first[:-1], last) if first else ([], last[1:])
        keys = [*first, *last]
    return tuple(span for key, what in keys for span in ((f" {key}", Style.KEY), (f"{what}  ", Style.DIM)))

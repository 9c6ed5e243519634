"""One frame of `ascend-job top`: a job as lines of styled text, for a terminal of a given size. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Final

import attrs

from ascend_runner.job_tool.live import columns, rank_map
from ascend_runner.job_tool.live.columns import STYLES
from ascend_runner.job_tool.live.styled_text import Line, Span, Style, bar, cut, padded, short_duration, width
from ascend_runner.job_tool.live.view import OUTLIERS, JobView, RankView, State, in_order, last_steps, middle, silences
from ascend_runner.supervision import outliers
from ascend_runner.text import format_numbers, printable, rank_list

FEW: Final = 16  # ranks that always have a line each
MOST_ROWS: Final = 256  # ranks that have a line each if the screen has room for them; of more a map is shown
BAR: Final = 32  # most cells of the progress bar
LEAST_BAR: Final = 8  # fewest cells of it
LEAST_LOG: Final = 4  # lines of the screen for the end of a log, with a title and two blank ones
COMPARED: Final = frozenset({State.RUNNING, State.BEHIND})
CURSOR: Final = "▸ "
BLANK: Final[Line] = ()
S, A = "s", "a"
KEYS: Final = (("enter", "log"), (S, "stacks"), ("e", "events"), (A, "all ranks"), ("q", "quit"))
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
    note: str = ""


@attrs.frozen
class Frame:
    """The lines, as many as the terminal has at most; `ranks` are those that the cursor can reach, in order."""

    lines: tuple[Line, ...]
    ranks: tuple[int, ...]
    selected: int | None


def frame(job: JobView, screen: Screen) -> Frame:
    """Draw a job."""
    head = [_title(job, screen), *_facts(job, screen), BLANK]
    room = max(1, screen.rows - len(head) - 2)  # without the heads of the columns and the keys
    ordered = in_order(job.ranks)
    odd = [rank for rank in ordered if rank.state in OUTLIERS]
    below: list[Line] = []
    rows = ordered
    if not screen.shows_all and len(ordered) > max(FEW, min(room, MOST_ROWS)):
        rows = odd or ordered[:1]
        if len(ordered) > MOST_ROWS:
            drawn = rank_map.lines(job.ranks, max(1, room - min(len(odd), room // 3) - 1), screen.columns)
            head += [*drawn, BLANK]
        else:
            below = [_others(ordered[len(rows) :], screen)]
    room = max(1, screen.rows - len(head) - 2 - len(below))
    selected = screen.selected if screen.selected in {rank.rank_id for rank in rows} else None
    if selected is None and rows:
        selected = rows[0].rank_id
    shown = _window(rows, selected, room)
    lines = [*head, *_table(job, shown, selected, screen), *below]
    lines += _log_end(next((rank for rank in shown if rank.rank_id == selected), None), screen.rows - 1 - len(lines))
    lines = lines[: screen.rows - 1]
    lines += [BLANK] * (screen.rows - 1 - len(lines))
    is_partial = screen.shows_all or len(rows) < len(ordered)
    has_stacks = job.has_stacks and any(rank.state.is_running for rank in job.ranks)
    lines.append(_keys(screen, {name for name, is_of_use in ((A, is_partial), (S, has_stacks)) if not is_of_use}))
    clipped = tuple(_clipped(line, screen.columns) for line in lines)
    return Frame(clipped, tuple(rank.rank_id for rank in rows), selected)


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
    facts = []
    if step.seconds:
        facts.append(f"{step.seconds:.3g} s per step")
        if step.steps and step.steps > step.step and _goes_on(job):
            facts.append(f"about {short_duration((step.steps - step.step) * step.seconds)} left")
    if step.loss is not None:
        facts.append(f"loss {step.loss:.4g}")
    if step.throughput is not None:
        facts.append(f"{step.throughput:.4g} {step.unit}".rstrip())
    text = f"  {', '.join(facts)}"
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
    sentence = outliers.quiet_sentence(*silences(job.ranks)) or outliers.behind_sentence(behind, steps)
    style = Style.ODD if sentence else Style.PLAIN  # a rank that is busier need not be slow
    running = [rank for rank in job.ranks if rank.state is State.RUNNING]
    averages = {rank.rank_id: rank.average_cpu for rank in running if rank.average_cpu is not None}
    if not sentence and len(averages) == len(running):  # those of other machines are unknown
        sentence = outliers.busy_sentence(averages)
    if not sentence and job.has_stacks and len(running) > 1:
        return WHICH_RANK
    if not sentence or not job.has_stacks:
        return ((cut(f" {sentence}", screen.columns), style),) if sentence else ()
    room = screen.columns - sum(width(text) for text, _style in STACKS)
    return ((cut(f" {sentence}", room), style), *STACKS)


def _table(job: JobView, rows: Sequence[RankView], selected: int | None, screen: Screen) -> list[Line]:
    if not rows:
        return []
    table = columns.fitting(rows, job.now, screen.columns, has_npus=job.has_npus)
    lines: list[Line] = [tuple(table.head())]
    for rank in rows:
        mark = (CURSOR if rank.rank_id == selected else " " * len(CURSOR), Style.KEY)
        lines.append((mark, *table.row(rank, job.now)))
    return lines


def _log_end(rank: RankView | None, room: int) -> list[Line]:
    """Return the last lines of the rank at the cursor, below a title and between blank lines, if there is room."""
    if rank is None or not rank.last_lines or room < LEAST_LOG:
        return []
    title = ((f" {rank.title if rank.name else f'rank {rank.title}'}: end of the log", Style.DIM),)
    return [BLANK, title, *(((f"  {line}", Style.PLAIN),) for line in rank.last_lines[3 - room :])]


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
    """Return the last line: the keys, without those that have no effect now, or a note."""
    if screen.note:
        return ((padded(f" {printable(screen.note)}", screen.columns), Style.ODD),)
    keys = [(key, f" {what}") for key, what in KEYS if key not in useless]
    while len(keys) > 1 and sum(len(f" {key}{what}  ") for key, what in keys) > screen.columns:
        del keys[-2]  # the last one leaves the screen
    return tuple(span for key, what in keys for span in ((f" {key}", Style.KEY), (f"{what}  ", Style.DIM)))

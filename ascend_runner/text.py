"""Formats text for people: control characters escaped, long lines clipped, numbers as ranges, times and durations."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

LINE_LIMIT: Final = 600  # characters of one line that a report shows: enough for an error, too few to bury it
LAST_LINES: Final = 20  # lines of a rank's output that a report shows
CUT: Final = " [...] "
SPACE: Final = "  "  # between the columns of a table
PREFIX_STYLES: Final = ("36", "32", "35", "34", "33", "96")  # ECMA-48, of the prefixes of ranks; red is for errors
NAMES_SHOWN: Final = 8  # names of a list in a sentence: enough to see the pattern

# ECMA-48: control sequences (colors, cursor moves), operating system commands (titles, links), two-byte escapes.
_ESCAPE_SEQUENCE: Final = r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])"

MOST_DIGITS: Final = 18  # fits 64 bits, and keeps int() away from its quadratic time
RANK_DIGITS: Final = 6  # digits of a rank, a device or a core: a typo must not exhaust memory
MOST_NUMBERS: Final = 10**RANK_DIGITS
LONGEST_DURATION: Final = 10 * 365 * 86400.0  # seconds; one beyond it is a typo


def printable(text: str) -> str:
    """Escape control characters, so that a name from a rank table or a log cannot control the terminal."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char == "\t" else char.encode("unicode_escape").decode() for char in text
    )


def quoted(text: str) -> str:
    """Return a text in quotes as its user wrote it: a backslash of a regular expression is not doubled."""
    return f"'{printable(text)}'"


def colored(text: str, style: str) -> str:
    """Color a text for a terminal; `style` is an ECMA-48 style such as "31"."""
    return f"\x1b[{style}m{text}\x1b[0m"


def without_escapes(text: str) -> str:
    """Remove colors and other control sequences of a terminal."""
    return re.sub(_ESCAPE_SEQUENCE, "", text) if "\x1b" in text else text


def lines_of(data: bytes) -> list[str]:
    """Split raw output into lines as a terminal shows them: no colors, only the last state of a progress bar.

    The lines are neither escaped nor clipped, so that they can be searched for patterns.
    """
    lines = without_escapes(data.decode(errors="replace")).replace("\r\n", "\n").split("\n")
    return [line.rstrip("\r").rpartition("\r")[2] for line in lines]


def last_lines(data: bytes) -> list[str]:
    """Return the last lines of raw output as they can be shown, without blank lines at the end."""
    lines = lines_of(data)
    while lines and not lines[-1].strip():
        lines.pop()
    return [shown(line) for line in lines[-LAST_LINES:]]


def shown(line: str, limit: int = LINE_LIMIT) -> str:
    """Return a line as it can be shown: escaped, and without the middle if it is very long."""
    line = line.rstrip()
    if len(line) > limit:
        head = limit * 2 // 3
        line = line[:head] + CUT + line[head + len(CUT) - limit :]

    return printable(line)


def folded(text: str) -> str:
    """Return a text in which whatever differs from rank to rank is equal: numbers, times, addresses."""
    return _VARIABLE.sub("0", text)


_VARIABLE: Final = re.compile(r"\b(?:0x)?(?=[0-9a-fA-F]*\d)[0-9a-fA-F]+\b|\d+")


def rank_title(rank_id: int, name: str) -> str:
    """Return "rank 3", or the name of an auxiliary process, such as "scheduler"."""
    return name or f"rank {rank_id}"


def rank_list(rank_ids: Iterable[int]) -> str:
    """Name ranks: "rank 3", "ranks 0-4, 6, 7". A negative number is an auxiliary process."""
    ranks = sorted(rank_ids)
    others = sum(rank_id < 0 for rank_id in ranks)
    names = ["the auxiliary process"] if others == 1 else [f"{others} auxiliary processes"] if others else []
    ranks = ranks[others:]
    if ranks:
        names.append(f"rank{'s' if len(ranks) > 1 else ''} {format_numbers(ranks)}")
    return " and ".join(names)


def node_list(nodes: Iterable[int]) -> str:
    """Name nodes: "node 3", "nodes 0-2, 5"."""
    nodes = list(nodes)
    return f"node{'s' if len(nodes) > 1 else ''} {format_numbers(nodes)}"


def format_numbers(numbers: Iterable[int]) -> str:
    """Write numbers in the given order, runs of three and more as ranges: "0-4, 6, 7"."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs)  # noqa: PLR2004


def parse_numbers(text: str) -> tuple[int, ...]:
    """Read a list of numbers and ranges such as "0,8-15", in the given order. The kernel writes such lists as well.

    Raises:
        ValueError: The text is not such a list, or it has more than a million numbers.
    """
    numbers: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        last = last if dash else first
        if not all(is_whole_number(end, RANK_DIGITS) for end in (first, last)) or int(first) > int(last):
            raise ValueError(f"{part.strip()!r} is not a number or a range such as 8-15")
        numbers += range(int(first), int(last) + 1)
        if len(numbers) > MOST_NUMBERS:
            raise ValueError(f"the list has more than {MOST_NUMBERS} numbers")
    return tuple(numbers)


def is_whole_number(text: str, most_digits: int = MOST_DIGITS) -> bool:
    """Whether a text is a number, 0 or more, in ASCII digits and not absurdly many of them.

    int() would also accept "+1", " 1", "1_0", and digits of other scripts.
    """
    return text.isascii() and text.isdigit() and len(text) <= most_digits


def number_within(value: object, most: float, least: float = 0.0) -> float | None:
    """Return a number from `least` to `most`, which is finite, or None if the value is anything else."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and least <= value <= most:
        return value
    return None


def clock(at: float | None) -> str:
    """Write a time, in seconds since the epoch, with its zone: "2026-11-22 09:47:36 +0800"; None is ""."""
    return "" if at is None else time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(at))


def in_seconds(seconds: float) -> str:
    """Write a time limit with at most one decimal: "90 s", "0.5 s"."""
    return f"{round(seconds, 1):g} s"


def duration(seconds: float) -> str:
    """Write a duration in its two largest units: "40 ms", "3.2 s", "2 min 5 s", "2 h 14 min", "3 d 4 h"."""
    if 0.0005 <= seconds < 0.0995:  # noqa: PLR2004  it would be "0 s" or "0.1 s"
        return f"{seconds * 1000:.0f} ms"
    if seconds < 10:  # noqa: PLR2004  below that, tenths matter
        return f"{seconds:.1f}".replace(".0", "") + " s"
    whole = round(seconds)
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if days:
        return f"{days} d {hours % 24} h"
    if hours:
        return f"{hours} h {minutes % 60} min"
    return f"{minutes} min {whole % 60} s" if minutes else f"{whole} s"


def abbreviated(names: Sequence[str], most: int = NAMES_SHOWN) -> str:
    """Write at most `most` names: "a, b, c, d, e, f, g, h and 3 more"."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def size(count: int) -> str:
    """Write a number of bytes: "512 B", "64.0 MiB", "1.5 TiB"."""
    amount, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if amount < 1024:  # noqa: PLR2004  the base of these units
            break
        amount, unit = amount / 1024, larger
    return f"{amount:.0f} B" if unit == "B" else f"{amount:.1f} {unit}"


def all_of(number: int, noun: str) -> str:
    """Name all of several things: "both ranks", "all 8 nodes"."""
    return f"both {noun}s" if number == 2 else f"all {counted(number, noun)}"  # noqa: PLR2004


def signal_name(signum: int) -> str:
    """Return "SIGTERM" for 15; a real-time signal has only a number: "signal 35"."""
    try:
        return signal.Signals(signum).name
    except ValueError:
        return f"signal {signum}"


def counted(number: int, noun: str) -> str:
    """Write a number with its noun: "1 rank", "8 ranks", "2 addresses"."""
    plural = f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{number} {noun if number == 1 else plural}"


def without_empty(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    """Return the heads, followed by the rows, without the columns that are empty in every row."""
    used = [index for index in range(len(heads)) if any(row[index] for row in rows)]
    return tuple(tuple(row[index] for index in used) for row in (heads, *rows))


def columns(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Align rows in columns, without the empty columns; cells are escaped."""
    used, *rest = without_empty(heads, rows)
    cells = [used, *([*map(printable, row)] for row in rest)]
    widths = [max(map(len, column)) for column in zip(*cells)]
    for row in cells:
        yield SPACE.join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip()

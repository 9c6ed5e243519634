"""What strangers wrote (ranks, tables, variables), made fit for a terminal. Pure."""

from __future__ import annotations

from ascend_runner.annotations import Final

LINE_LIMIT: Final = 600  # characters of one line that a report shows: enough for an error, too few to bury it
LAST_LINES: Final = 20  # of a rank's output that a report shows
CUT: Final = " [...] "

# ECMA-48: control sequences (colours, cursor moves), operating system commands (titles, links), two-byte escapes.
_ESCAPE_SEQUENCE: Final = r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])"


def printable(text: str) -> str:
    """Escape control characters, so that a name from a table or a log cannot steer the terminal."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char == "\t" else char.encode("unicode_escape").decode() for char in text
    )


def lines_of(data: bytes) -> list[str]:
    """Cut raw output into lines as a terminal shows them: without colours, of a progress bar only its last state.

    Nothing is escaped or shortened yet, so that patterns can still be looked for.
    """
    text = data.decode(errors="replace")
    if "\x1b" in text:
        import re  # only at the end

        text = re.sub(_ESCAPE_SEQUENCE, "", text)
    lines = text.replace("\r\n", "\n").split("\n")
    return [line.rstrip("\r").rpartition("\r")[2] if "\r" in line else line for line in lines]


def last_lines(data: bytes) -> list[str]:
    """Give the last lines of raw output that say something, fit for a terminal."""
    lines = lines_of(data)
    while lines and not lines[-1].strip():
        lines.pop()
    return [shown(line) for line in lines[-LAST_LINES:]]


def shown(line: str) -> str:
    """Make one line fit for the screen: escaped, and its middle left out where it is very long."""
    line = line.rstrip()
    if len(line) > LINE_LIMIT:
        head = LINE_LIMIT * 2 // 3
        line = line[:head] + CUT + line[head + len(CUT) - LINE_LIMIT :]

    return printable(line)


def rank_list(rank_ids: list[int]) -> str:
    """Name ranks briefly: "rank 3", "ranks 0-4, 6, 7"."""
    others = [rank_id for rank_id in rank_ids if rank_id >= 0]
    if len(others) < len(rank_ids):
        return " and ".join(["the process that is no rank", *([rank_list(others)] if others else [])])
    return f"rank{'s' if len(rank_ids) > 1 else ''} {rank_numbers(rank_ids)}"


def rank_numbers(rank_ids: list[int]) -> str:
    """Write numbers briefly: "0-4, 6, 7"."""
    runs: list[list[int]] = []
    for rank_id in sorted(rank_ids):
        if runs and runs[-1][-1] == rank_id - 1:
            runs[-1].append(rank_id)
        else:
            runs.append([rank_id])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs)  # noqa: PLR2004

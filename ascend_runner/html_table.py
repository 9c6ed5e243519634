"""Formats a table as HTML for notebooks, without styles, scripts and pictures, which notebooks would remove. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

from ascend_runner.text import counted, shown

LARGEST: Final = 200_000  # bytes: a notebook is a file that has all its output
REST: Final = 500  # bytes for what follows the rows


def text(title: str, noun: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table with a title, without the columns that are empty; cells are escaped.

    Each row is about one `noun`. Rows that do not fit are left out and counted.
    """
    used = [index for index in range(len(heads)) if any(row[index] for row in rows)]
    parts = [
        f"<p>{_cell(title)}</p>\n<table>\n<thead>\n{_row([heads[index] for index in used], 'th')}</thead>\n<tbody>\n"
    ]
    room = LARGEST - REST - len(parts[0].encode())
    for number, row in enumerate(rows):
        parts.append(_row([row[index] for index in used], "td"))
        room -= len(parts[-1].encode())
        if room < 0:
            parts[-1] = f"<tr><td>and {counted(len(rows) - number, f'more {noun}')}</td></tr>\n"
            break
    return "".join((*parts, "</tbody>\n</table>\n")) if rows else f"<p>{_cell(title)}</p>\n"


def _row(cells: Sequence[str], kind: str) -> str:
    return f"<tr>{''.join(f'<{kind}>{_cell(cell)}</{kind}>' for cell in cells)}</tr>\n"


def _cell(text: str) -> str:
    return escape(shown(text))

"""The table: one line per measurement, with the peer beside it, the ratio, and whether the target is met."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import attrs

COLUMNS: Final = "{:<55} {:>9}  {:<26} {:>7}  {:<11} {}"
NOT_INSTALLED: Final = "not installed"


@attrs.frozen
class Row:
    """One line. `reach` is the upper limit of `ours` or, with `is_ratio`, of ours / theirs.

    A peer without a figure is not installed. A line without `what` compares the line above with another peer.
    """

    what: str
    ours: float | None
    show: Callable[[float], str]
    peer: str = ""
    theirs: float | None = None
    reach: float | None = None
    is_ratio: bool = False

    @property
    def ratio(self) -> float | None:
        """Ours over theirs."""
        return None if self.ours is None or not self.theirs else self.ours / self.theirs

    @property
    def verdict(self) -> str:
        """Whether the reach is met; empty without a reach or a peer."""
        figure = self.ratio if self.is_ratio else self.ours
        if self.reach is None or figure is None:
            return ""
        return "ok" if figure <= self.reach else "SHORT"


def head() -> str:
    """Return the header."""
    return COLUMNS.format("what", "ours", "peer", "ratio", "reach", "") + "\n" + "-" * 117


def line(row: Row) -> str:
    """Return one row as text."""
    ours, theirs = (NOT_INSTALLED if figure is None else row.show(figure) for figure in (row.ours, row.theirs))
    peer = f"{row.peer} {theirs}" if row.peer else ""
    ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
    reach = "" if row.reach is None else f"<= {f'{row.reach:g} x' if row.is_ratio else row.show(row.reach)}"
    return COLUMNS.format(row.what, ours if row.what else "", peer, ratio, reach, row.verdict).rstrip()


def seconds(value: float) -> str:
    """Show a time; an infinite one is that of something that did not happen."""
    if value == math.inf:
        return "never"
    if value >= 1:
        return f"{value:.2f} s"
    if value < 0.001:
        return f"{value * 1e6:.1f} us"
    return f"{value * 1e3:.1f} ms" if value < 0.1 else f"{value * 1e3:.0f} ms"


def percent(value: float) -> str:
    """Show a fraction."""
    return f"{value * 100:.2f} %"


def megabytes(value: float) -> str:
    """Show a size in bytes."""
    return f"{value / 1e6:.1f} MB"


def count(value: float) -> str:
    """Show a number of things."""
    return f"{value:g}"

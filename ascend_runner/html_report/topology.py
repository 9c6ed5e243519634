"""The rank table as a picture with the states of the ranks, and what their shapes mean. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import attrs

from ascend_runner.html_report.ranks import CAUSE, Rank
from ascend_runner.rank_table import picture
from ascend_runner.rank_table.model import RankTable

MOST_TILES: Final = 1024  # servers
OTHER: Final = "other"
ELSEWHERE: Final = "elsewhere"
SHAPES: Final = {CAUSE: "Filled", "failed": "Thick outline", OTHER: "Thin outline", ELSEWHERE: "Plain"}


@attrs.frozen
class Topology:
    """The picture, in SVG with its texts escaped, and the sentences of its legend, none if all ranks look the same."""

    picture: str
    legend: tuple[str, ...]


def draw(table: RankTable | None, ranks: Sequence[Rank], marks: Mapping[int, str], elsewhere: str) -> Topology | None:
    """Return the topology of a job, or None without a table or with too many servers.

    `marks` may be of ranks that are not among `ranks`; all others of the table are described as `elsewhere`.
    """
    kinds = {rank.rank_id: rank.kind for rank in ranks if rank.rank_id >= 0}
    if table is None or table.server_count > MOST_TILES or not kinds:
        return None
    kinds |= dict.fromkeys(marks, CAUSE)
    everywhere = {device.rank_id for device in table.devices}
    meanings = {
        CAUSE: ", ".join(dict.fromkeys(mark for rank_id, mark in marks.items() if rank_id in everywhere)),
        "failed": "failed",
        OTHER: "other ranks",
        ELSEWHERE: elsewhere,
    }
    shown = {kinds.get(rank_id, ELSEWHERE) for rank_id in everywhere}
    shapes = {kind if kind in meanings else OTHER for kind in shown}
    legend = (f"{SHAPES[kind]}: {meaning}." for kind, meaning in meanings.items() if kind in shapes)
    return Topology(picture.draw(table, "Rank table", kinds), tuple(legend) if len(shapes) > 1 else ())

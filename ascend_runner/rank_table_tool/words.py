"""How tables and what is in them are said, on a screen and in a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ascend_runner.rank_table.fields import counted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ascend_runner.rank_table.model import RankTable

TEMPLATES: Final = {
    "group list": "template 2",
    "group list, lab form": "template 2",
    "server list": "template 1",
    "rank list": "Ascend 950",
}


def dialect_of(table: RankTable) -> str:
    """Say what a table is: "server list (template 1), version 1.0"."""
    version = f", version {table.version}" if table.version else ""

    return f"{table.dialect} ({TEMPLATES[table.dialect]}){version}"


def size_of(table: RankTable) -> str:
    """Say how large a table is: "2 super-pods, 4 servers, 16 devices"."""
    parts = [counted(len(table.super_pods), "super-pod")] if table.super_pods else []

    return ", ".join((*parts, counted(table.server_count, "server"), counted(table.rank_size, "device")))


def ranges(numbers: Iterable[int]) -> str:
    """Say numbers shortly, in their order: "0-7", "0,2,4-6"."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])

    return ",".join("-".join(map(str, run)) for run in runs)


def plain(text: str) -> str:
    """Make a text of a document fit for a screen: what is not to be seen is written out, so that it cannot do harm."""
    return text if text.isprintable() else repr(text)[1:-1]

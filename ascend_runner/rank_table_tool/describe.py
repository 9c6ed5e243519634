"""Short descriptions of a table and its parts, for the screen and for pictures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ascend_runner.rank_table.fields import counted
from ascend_runner.rank_table.model import Dialect
from ascend_runner.rank_table.table import RankTable

TEMPLATES: Final[Mapping[Dialect, str]] = {
    Dialect.GROUP_LIST: "template 2",
    Dialect.LAB_LIST: "template 2",
    Dialect.SERVER_LIST: "template 1",
    Dialect.RANK_LIST: "Ascend 950",
}


def dialect_of(table: RankTable) -> str:
    """Describe the dialect: "server list (template 1), version 1.0"."""
    version = f", version {table.version}" if table.version else ""

    return f"{table.dialect.value} ({TEMPLATES[table.dialect]}){version}"


def size_of(table: RankTable) -> str:
    """Describe the size: "2 super-pods, 4 servers, 16 devices"."""
    parts = [counted(len(table.super_pods), "super-pod")] if table.super_pods else []

    return ", ".join((*parts, counted(table.server_count, "server"), counted(table.rank_size, "device")))

"""A table in a few words. Pure."""

from __future__ import annotations

from ascend_runner.rank_table.dialects.registry import TEMPLATES
from ascend_runner.rank_table.model import RankTable
from ascend_runner.text import counted


def dialect_of(table: RankTable) -> str:
    """Describe the dialect: "server list (template 1), version 1.0"."""
    version = f", version {table.version}" if table.version else ""
    return f"{table.dialect.value} ({TEMPLATES[table.dialect]}){version}"


def size_of(table: RankTable) -> str:
    """Describe the size: "2 super-pods, 4 servers, 16 devices"."""
    parts = [counted(len(table.super_pods), "super-pod")] if table.super_pods else []
    return ", ".join((*parts, counted(table.server_count, "server"), counted(table.rank_size, "device")))

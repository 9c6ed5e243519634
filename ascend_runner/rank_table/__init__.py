"""Rank tables: which devices, on which servers, are which ranks of a job.

The names below are what the package promises; they are brought in when they are first asked for (PEP 562), since the
runner's first process must not pay for them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ascend_runner.rank_table.checks import check
    from ascend_runner.rank_table.codec import dumps, loads
    from ascend_runner.rank_table.findings import Finding
    from ascend_runner.rank_table.model import Device, RankTable, Server, SuperPod
    from ascend_runner.rank_table.source import convert, read, wait

__all__ = [
    "Device",
    "Finding",
    "RankTable",
    "Server",
    "SuperPod",
    "check",
    "convert",
    "dumps",
    "loads",
    "read",
    "wait",
]

_HOMES: Final[Mapping[str, str]] = {
    "Device": "model",
    "Finding": "findings",
    "RankTable": "model",
    "Server": "model",
    "SuperPod": "model",
    "check": "checks",
    "convert": "source",
    "dumps": "codec",
    "loads": "codec",
    "read": "source",
    "wait": "source",
}


if not TYPE_CHECKING:  # type checkers know the names from above, and shall tell of any other

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

        value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        globals()[name] = value  # asked for once

        return value

"""Rank tables: which devices, on which servers, are which ranks of a job."""

from __future__ import annotations

from ascend_runner.problems import Problem, RankTableFormatError, Severity
from ascend_runner.rank_table.checks import check
from ascend_runner.rank_table.codec import dumps, loads
from ascend_runner.rank_table.model import Device, Dialect, RankTable, Server, SuperPod
from ascend_runner.rank_table.source import convert, read, wait

__all__ = [
    "Device",
    "Dialect",
    "Problem",
    "RankTable",
    "RankTableFormatError",
    "Server",
    "Severity",
    "SuperPod",
    "check",
    "convert",
    "dumps",
    "loads",
    "read",
    "wait",
]


def __dir__() -> list[str]:
    return __all__

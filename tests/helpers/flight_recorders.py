"""Dumps of a flight recorder, as torch and torch_npu write them: a pickle of plain values."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any, Final

DEFAULT: Final = ("0", "default_pg")
VERSION: Final = "2.4"  # of torch_npu


def entry(number: int, name: str = "hccl:all_reduce", **others: Any) -> dict[str, Any]:
    """Return the entry of a collective, of the default process group and complete unless `others` say otherwise."""
    return {
        "record_id": number - 1,
        "pg_id": 0,
        "process_group": DEFAULT,
        "collective_seq_id": number,
        "p2p_seq_id": 0,
        "op_id": number,
        "profiling_name": name,
        "time_created_ns": 1_764_000_000_000_000_000 + number,
        "duration_ms": 0.5,
        "input_sizes": [[4, 3]],
        "input_dtypes": ["Float"],
        "output_sizes": [[4, 3]],
        "output_dtypes": ["Float"],
        "state": "completed",
        "time_discovered_started_ns": None,
        "time_discovered_completed_ns": None,
        "retired": True,
        "timeout_ms": 1_800_000,
        "is_p2p": False,
        **others,
    }


def waiting(number: int, name: str = "hccl:all_reduce", **others: Any) -> dict[str, Any]:
    """Return the entry of a collective that is not complete."""
    return entry(number, name, **{"state": "scheduled", "retired": False, **others})


def dump(entries: Sequence[dict[str, Any]], groups: dict[str, str] | None = None, protocol: int = 2) -> bytes:
    """Return a dump with these entries; `groups` are the ranks of process groups by name, such as "[0, 1]"."""
    config = {name: {"name": name, "desc": "", "ranks": ranks} for name, ranks in (groups or {}).items()}
    recorded = {"version": VERSION, "pg_config": config, "pg_status": {}, "entries": list(entries)}
    return pickle.dumps(recorded, protocol)

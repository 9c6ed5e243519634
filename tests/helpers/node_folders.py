"""Directories with the reports of several nodes of a job, as their runners leave them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

EACH: Final = 8  # ranks of a node
BEGAN: Final = "2026-11-22T09:47:36.000+08:00"
ENDED: Final = "2026-11-22T09:50:36.000+08:00"
OWN: Final = {"exception": "ValueError: loss is nan at step 17"}


def finding(rank_id: int) -> dict[str, object]:
    """Return what a rank reports that has lost another one."""
    line = "EI0006: [PID: 7] Getting socket times out."
    kind = "usually caused by a peer"
    return {"code": "EI0006", "code_kind": kind, "code_line": line, "points_at": [{"rank_id": rank_id}]}


def rank(rank_id: int, **changes: object) -> dict[str, object]:
    """Return the record of a rank that has failed."""
    local = rank_id % EACH
    record: dict[str, object] = {
        "rank_id": rank_id,
        "local_rank": local,
        "pid": 4711 + rank_id,
        "state": "failed",
        "exit_code": 1,
        "signal": None,
        "started_at": BEGAN,
        "ended_at": ENDED,
        "seconds": 180.0,
        "first_output_at": BEGAN,
        "last_output_at": ENDED,
        "signals": [],
        "activity": [rank_id % 7 * cell for cell in range(96)],
        "cell_seconds": 2.0,
        "max_rss": 3_900_000_000 + rank_id * 10_000_000,
        "user_seconds": 100.0 + rank_id,
        "system_seconds": 1.0,
        "log_path": f"/log/job-proc-rank-{rank_id}-device-{local}.txt",
        "log_size": 123_456 + rank_id,
        "variables": {"RANK": str(rank_id), "MASTER_ADDR": "10.0.0.1"},
        "finding": None,
        "name": "",
    }
    return record | changes


def report(number: int, count: int, culprit: int, **changes: object) -> dict[str, object]:
    """Return the report of a node whose ranks have lost a rank, or of which that rank has failed by itself."""
    ranks = range(number * EACH, (number + 1) * EACH)
    is_own = culprit in ranks
    members: dict[str, object] = {
        "job_id": "job",
        "state": "failed",
        "status": 1,
        "node_rank": number,
        "node_count": count,
        "server_id": f"10.0.0.{number}",
        "pod_name": f"worker-{number}",
        "rank_size": count * EACH,
        "started_at": BEGAN,
        "ended_at": ENDED,
        "seconds": 180.0,
        "cause": {
            "kind": "rank_failed",
            "sentence": "failed",
            "rank_id": culprit if is_own else ranks[0],
            "certainty": "certain" if is_own else "open",
            "may_be_a_peer": not is_own,
            "is_a_consequence": not is_own,
        },
        "ranks": [rank(one, finding=OWN if one == culprit else finding(culprit)) for one in ranks],
        "schema_version": 5,
    }
    return members | changes


def write(folder: Path, count: int, culprit: int, missing: frozenset[int] = frozenset()) -> None:
    """Write the reports of all nodes but some, and the ends of all logs."""
    folder.mkdir(exist_ok=True)
    for number in range(count):
        if number not in missing:
            put(folder, f"job-report-node-{number}.json", report(number, count, culprit))
    for rank_id in range(count * EACH):
        (folder / f"job-proc-rank-{rank_id}-device-{rank_id % EACH}.txt").write_text(f"last words of {rank_id}\n")


def put(folder: Path, name: str, members: Mapping[str, object]) -> None:
    """Write one report."""
    (folder / name).write_text(json.dumps(members))

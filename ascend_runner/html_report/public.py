"""Removes from a report whatever could identify people, machines or data, for a page to publish. Pure.

The members to keep are listed here, so that a new one is omitted until it has been reviewed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import attrs

from ascend_runner.html_report.sources import Sources
from ascend_runner.members import Members
from ascend_runner.text import signal_name

_REPORT: Final = (
    *("state", "status", "exit_verdict", "attempt", "rank_size", "started_at", "ended_at", "seconds"),
    *("runner_version", "secrets_masked", "schema_version"),
)
_CAUSE: Final = ("kind", "rank_id", "first_exit", "alike", "certainty", "candidates", "signal", "is_a_consequence")
_RANK: Final = (
    *("rank_id", "local_rank", "state", "exit_code", "signal", "core_dumped", "started_at", "ended_at", "seconds"),
    *("max_rss", "user_seconds", "system_seconds", "log_size", "log_lost"),
)
_ATTEMPT: Final = ("attempt", "started_at", "ended_at", "seconds", "status", "restart", "verdict", "delay")
_PEER: Final = ("rank_id", "device_id")
_FINDING: Final = ("code", "code_kind", "code_meaning")
_STACK: Final = ("rank_ids", "has_changed")
_VARIABLES: Final = (
    *("RANK", "RANK_ID", "RANK_SIZE", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    *("DEVICE_ID", "ASCEND_DEVICE_ID"),
)
_SENTENCES: Final = {
    "rank_failed": "{rank} failed{how}",
    "rank_not_started": "{rank} could not be started",
    "interrupted": "the job was stopped{how}",
    "hang": "the job hung",
    "slow": "the training was slow",
    "expired": "the job has reached its time limit",
    "runner_failed": "the runner itself has failed",
}


def reduced(sources: Sources) -> Sources:
    """Return the sources of a page for publication."""
    report = sources.report
    members: dict[str, object] = {
        **_kept(report, _REPORT),
        "job_id": "job",
        "cause": _cause(report) if report.child("cause").members else None,
        "ranks": [_rank(rank) for rank in report.children("ranks")],
        "hang": [_kept(stack, _STACK) for stack in report.children("hang")],
        "attempts": [_kept(attempt, _ATTEMPT) for attempt in report.children("attempts")],
    }
    return attrs.evolve(sources, report=Members(members), command=(), events=(), log_ends={}, table=None)


def _kept(members: Members, names: Sequence[str]) -> dict[str, object]:
    """Return the members with these names."""
    return {name: members.members[name] for name in names if name in members.members}


def _cause(report: Members) -> Mapping[str, object]:
    cause = report.child("cause")
    rank_id = cause.whole("rank_id")
    failed = report.child_with("ranks", "rank_id", rank_id)
    code, signum = failed.whole("exit_code"), failed.whole("signal") or cause.whole("signal")
    how = f": exit status {code}" if code else ""
    if signum:
        how = f" by {signal_name(signum)}"
    exception = _exception(failed.child("finding"))
    sentence = _SENTENCES.get(cause.text("kind"), "the job has failed").format(rank=f"rank {rank_id}", how=how)
    return {
        **_kept(cause, _CAUSE),
        "sentence": f"{sentence} ({exception})" if exception else sentence,
        "suspected_peer": _kept(cause.child("suspected_peer"), _PEER),
    }


def _rank(rank: Members) -> Mapping[str, object]:
    finding, variables = rank.child("finding"), rank.child("variables")
    return {
        **_kept(rank, _RANK),
        "name": "auxiliary process" if rank.text("name") else "",
        "variables": _kept(variables, _VARIABLES),
        "finding": {
            **_kept(finding, _FINDING),
            "exception": _exception(finding),
            "points_at": [_kept(peer, _PEER) for peer in finding.children("points_at")],
        },
    }


def _exception(finding: Members) -> str:
    """Return the type of an exception, without its message."""
    name = finding.text("exception").partition(":")[0].strip()
    return name if name.replace(".", "_").isidentifier() else ""

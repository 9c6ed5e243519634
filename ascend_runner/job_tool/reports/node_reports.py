"""Reads the report of one node for a verdict on the job: from the JSON object to a record. Pure.

Anybody may have written a report: what is missing or has another type is unknown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import attrs

from ascend_runner.diagnosis.codes import Kind
from ascend_runner.diagnosis.endings import signal_behind
from ascend_runner.diagnosis.finding import Certainty, Peer
from ascend_runner.diagnosis.first_cause import FROM_OUTSIDE, Suspicion
from ascend_runner.job_tool.job.snapshot import is_final
from ascend_runner.members import Members
from ascend_runner.merge.model import Clock, Complaint, Failure, Node, Stack
from ascend_runner.secrets import Masker
from ascend_runner.supervision.events import Ending

LARGEST_ERROR: Final = 1e9  # seconds; no clock has a larger error
INTERRUPTED: Final = "KeyboardInterrupt"
# How failures that are not those of a rank are judged. Kinds that are missing here come from outside the job.
_KINDS: Final = {
    "rank_not_started": Suspicion.FAILED_BY_ITSELF,
    "runner_failed": Suspicion.FAILED_BY_ITSELF,
    "unhealthy": Suspicion.FAILED_BY_ITSELF,
    "slow": Suspicion.ITSELF_OR_A_PEER,
    "hang": Suspicion.REPORTS_A_PEER,
}


def node_of(report: Members, number: int) -> Node:
    """Return the record of a node, made from its report."""
    state, ranks = report.text("state"), report.children("ranks")
    node = Node(
        number=number,
        host=report.text("pod_name") or report.text("server_id"),
        rank_ids=tuple(rank_id for rank in ranks if (rank_id := rank.whole("rank_id")) is not None and rank_id >= 0),
        state=state,
        ended=report.moment("ended_at"),
    )
    if not is_final(state) and state != "holding":
        return attrs.evolve(node, problem=f"incomplete report (last state: {state or 'unknown'})")
    failure = _failure(report)
    return attrs.evolve(
        node,
        failure=failure,
        complaints=tuple(_complaints(ranks, failure)),
        hang=tuple(
            Stack(rank_ids=one.wholes("rank_ids"), frames=one.texts("frames")) for one in report.children("hang")
        ),
        clock=_clock(report.child("clock")),
    )


def _failure(report: Members) -> Failure | None:
    cause = report.child("cause")
    kind, rank_id = cause.text("kind"), cause.whole("rank_id")
    rank = report.child_with("ranks", "rank_id", rank_id)
    if kind != "rank_failed" and kind not in _KINDS:
        return None
    finding = rank.child("finding")
    return Failure(
        suspicion=_KINDS[kind] if kind in _KINDS else _suspicion(cause, rank),
        sentence=Masker().text(finding.text("exception") or finding.text("code_line") or cause.text("sentence")),
        rank_id=None if rank_id is None or rank_id < 0 else rank_id,
        at=rank.moment("ended_at") or report.moment("ended_at"),
        is_certain=kind == "rank_not_started" or cause.text("certainty") == Certainty.CERTAIN.value,
    )


def _suspicion(cause: Members, rank: Members) -> Suspicion:
    """Judge the rank that caused the failure of a node as `first_cause.suspicion` has judged it there."""
    finding = rank.child("finding")
    kind = finding.text("code_kind")
    if cause.flag("is_a_consequence") or kind == Kind.SECONDARY.value:
        return Suspicion.REPORTS_A_PEER
    if cause.flag("may_be_a_peer") or kind == Kind.EITHER.value:
        return Suspicion.ITSELF_OR_A_PEER
    ending = Ending(exit_code=rank.whole("exit_code") or 0, signum=rank.whole("signal") or 0)
    signum = signal_behind(ending)
    is_killed = signum in FROM_OUTSIDE and not finding.flag("is_out_of_memory")
    if is_killed or finding.text("code") == INTERRUPTED:
        return Suspicion.ENDED_FROM_OUTSIDE
    has_evidence = finding.text("exception") or finding.text("code") or signum
    return Suspicion.FAILED_BY_ITSELF if has_evidence else Suspicion.ENDED_SILENTLY


def _complaints(ranks: Sequence[Members], failure: Failure | None) -> Iterator[Complaint]:
    """Yield the peers that ranks report, but for ranks that failed by themselves: they may name anybody."""
    for rank in ranks:
        rank_id, finding = rank.whole("rank_id"), rank.child("finding")
        is_own = failure and failure.rank_id == rank_id and failure.suspicion is Suspicion.FAILED_BY_ITSELF
        if rank_id is None or is_own or finding.text("code_kind") == Kind.ROOT.value:
            continue
        for peer in finding.children("points_at"):
            yield Complaint(
                rank_id=rank_id,
                peer=Peer(
                    rank_id=peer.whole("rank_id"),
                    server_id=peer.text("server_id"),
                    device_id=peer.whole("device_id"),
                    device_ip=peer.text("device_ip"),
                ),
                code=finding.text("code"),
                at=rank.moment("last_output_at") or rank.moment("ended_at"),
            )


def _clock(members: Members) -> Clock:
    walls = members.number("wall_start"), members.number("wall_end")
    monotonics = members.number("monotonic_start"), members.number("monotonic_end")
    step = 0.0
    if None not in {*walls, *monotonics}:
        step = (walls[1] or 0.0) - (walls[0] or 0.0) - (monotonics[1] or 0.0) + (monotonics[0] or 0.0)
    offset = members.members.get("disk_offset")
    is_compared = isinstance(offset, float) and abs(offset) < LARGEST_ERROR
    return Clock(
        max_error=members.number("max_error") if members.flag("is_synchronized") else None,
        step=step,
        disk_offset=offset if is_compared else None,  # type: ignore[arg-type]  # a float
        round_trip=members.number("disk_round_trip") or 0.0,
    )

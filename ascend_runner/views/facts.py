"""What is known of a job as labelled facts: each is worded here, and views choose labels and lay them out. Pure.

Views are the failure screen, the page, `ascend-job status` and `ascend-job top`, and the lines of `--summary`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from ascend_runner.record.job_record import (
    CERTAINTY,
    AttemptRecord,
    CauseRecord,
    CheckpointRecord,
    JobRecord,
    StepRecord,
)
from ascend_runner.record.rank_record import STOPPED, RankRecord, printing
from ascend_runner.secrets import Masker
from ascend_runner.supervision import cloud_events, outliers
from ascend_runner.supervision.causes import Rule
from ascend_runner.supervision.job_machine import JobState
from ascend_runner.text import clock, counted, duration, folded, format_numbers, node_list, printable, rank_list
from ascend_runner.views import wording

if TYPE_CHECKING:
    from typing import Union

    from ascend_runner.diagnosis.finding import Finding, Peer
    from ascend_runner.record.nodes import JobVerdict, NodeRecord
    from ascend_runner.training.steps import Step

    AnyStep = Union[StepRecord, Step]

Fact = tuple[str, str]  # a label and a text
COLLECTIVE: Final = "collective"  # the label of where ranks of a hang are in their collectives

_CODE: Final = r"E[A-Z0-9]\d{4}|[1-5]\d{5}|(?:HCCL|driver) \d+"
_ROOT: Final = "usually the root cause"  # not shown for a phrase: its meaning says so


def facts(job: JobRecord, now: float | None = None) -> list[Fact]:
    """Return what is known of a job, each fact with its label; `now` (in seconds since the epoch) gives the ages.

    A label may occur several times, such as "means", or a condition of the job.
    """
    failed = job.failed
    found = [
        *(_of_cause(job, job.cause) if job.cause else ()),
        *(_of_other_nodes(job.verdict, has_failed=failed is not None) if job.verdict else ()),
        *(of_finding(failed.finding) if failed and failed.finding else ()),
        *(_of_rank(failed, server(job.server_id, job.pod_name)) if failed else ()),
        ("began", clock(job.began) if job.began else ""),
        ("ended", clock(job.ended_at)),
        ("node", place(job.server_id, job.pod_name)),
        ("ranks", _ranks(job)),
        ("held", f"until {clock(job.held_until)}" if job.held_until else ""),
        ("step", step(job.last_step, now) if job.last_step else ""),
        ("quiet", outliers.quiet_sentence(*job.silences(now)) if now else ""),
        *_conditions(job),
        *((COLLECTIVE, text) for text in (wording.of_collectives(job.collectives) if job.is_hung else ())),
        ("checkpoint", checkpoint(job.last_checkpoint, now) if job.last_checkpoint else ""),
        ("attempts", _attempts(job)),
        ("logs", job.log_dir),
    ]
    return [(label, text) for label, text in found if text]


def chosen(found: list[Fact], *labels: str) -> Iterator[Fact]:
    """Yield the facts with these labels, in the order of the labels."""
    return ((label, text) for wanted in labels for label, text in found if label == wanted and text)


# --- The cause and its evidence ---------------------------------------------------------------------------------------


def _of_cause(job: JobRecord, cause: CauseRecord) -> Iterator[Fact]:
    yield "cause", cause.with_certainty(len(job.ranks))
    yield from doubts(job)
    suspected = cause.suspected_peer
    is_said = cause.is_elsewhere and suspected is not None and suspected.device_id is None
    yield "check", suspicion(suspected) if suspected and not is_said else ""
    first = job.rank(cause.first_exit)
    is_another = first is not None and (first.rank_id != cause.rank_id or cause.is_elsewhere)
    yield "first", _first_to_end(first, cause) if first and is_another else ""


def _first_to_end(rank: RankRecord, cause: CauseRecord) -> str:
    """Say which rank ended first: "rank 0 ended first (exit status 1), as a consequence: RuntimeError: ..."."""
    ended = f"{rank.title} ended first" + (f" ({rank.ending.in_parentheses})" if rank.ending else "")
    if cause.is_elsewhere or rank.finding is None or not rank.finding.summary:
        return ended
    consequence = ", as a consequence" if rank.finding.only_reports_a_peer else ""
    return f"{ended}{consequence}: {rank.finding.summary}"


def doubts(job: JobRecord) -> Iterator[Fact]:
    """Yield which other ranks may be the cause of a failure, each with its error if that is known."""
    cause = job.cause
    if cause is None or not cause.candidates or cause.is_elsewhere:
        return
    said = {rank.rank_id: rank.finding.summary for rank in job.ranks if rank.finding and rank.finding.summary}
    own = "" if cause.rank_id is None else said.get(cause.rank_id, "")
    same = [rank_id for rank_id, text in said.items() if folded(text) == folded(own)]
    or_stopped = ", or a rank that was stopped" if any(rank.state in STOPPED for rank in job.ranks) else ""
    if cause.certainty != "open":
        yield "also", f"{rank_list(cause.candidates)} may be the cause"
    elif len(cause.candidates) > 1:
        whys = [said.get(rank_id, "") if rank_id != cause.rank_id else "" for rank_id in cause.candidates]
        ranks = [f"rank {rank_id}{why and f': {why}'}" for rank_id, why in zip(cause.candidates, whys)]
        ranks = ranks if any(whys) else [f"{', '.join(ranks[:-1])} or {ranks[-1]}"]
        yield from (("candidates", f"{'or' if number else 'may be'} {rank}") for number, rank in enumerate(ranks))
    elif 1 < len(same) < len(job.ranks):  # the sentence says it of all ranks
        or_stopped = or_stopped and f"; may be one of them{or_stopped}"
        yield "candidates", f"{rank_list(same)} report the same error{or_stopped}"
    elif or_stopped:
        yield "candidates", f"may be {rank_list(cause.candidates)}{or_stopped}"


def of_finding(finding: Finding) -> Iterator[Fact]:
    """Yield what the diagnosis of a rank says, apart from the lines of its log."""
    yield "origin", finding.origin + (f" ({finding.origin_place})" if finding.origin and finding.origin_place else "")
    meaning = finding.code_meaning
    label, text = explained(finding.code, finding.code_kind, meaning) if meaning else ("code", "")
    yield "means", finding.meaning or (text if label == "means" else "")
    yield "code", text if label == "code" else ""
    yield "next", "" if finding.meaning and label == "means" else finding.next
    yield "blames", ", ".join(map(peer, finding.points_at))
    yield "plog", finding.plog_path
    yield "plog error", finding.plog_error


def explained(code: str, kind: str, meaning: str) -> Fact:
    """Return the fact about an error code; a phrase has no code, so it shows its meaning."""
    if re.fullmatch(_CODE, code):
        return "code", f"{code} ({kind}): {meaning}"
    return "means", f"{meaning} ({kind})" if kind not in {"", _ROOT} else meaning


def peer(one: Peer) -> str:
    """Describe a peer by all that is known about it: "rank 3 (device 3 on server 10.0.0.5)"."""
    device = "" if one.device_id is None else f"device {one.device_id}"
    server = f"server {one.server_id}" if one.server_id else ""
    address = f"device address {one.device_ip}" if one.device_ip and not server else ""
    where = " on ".join(part for part in (device or address, server) if part)
    if one.rank_id is None:
        return where or "an unnamed peer"
    return f"rank {one.rank_id} ({where})" if where else f"rank {one.rank_id}"


def suspicion(suspected: Peer) -> str:
    """Advise which peer to check: "rank 3 (server 10.0.0.5) first: ranks 0, 1 report only the loss of this peer"."""
    if not suspected.reported_by:
        return f"{peer(suspected)} first"
    verb = "reports" if len(suspected.reported_by) == 1 else "report"
    return f"{peer(suspected)} first: {rank_list(suspected.reported_by)} {verb} only the loss of this peer"


def _of_rank(rank: RankRecord, where: str) -> Iterator[Fact]:
    device = "" if rank.name else f", device {rank.local_rank}"
    ran = f"pid {rank.pid}, ended after {duration(round(rank.seconds, 3))}"  # in milliseconds, as the report has it
    yield "rank", f"{rank.name or rank.rank_id}{device} on server {where}, {ran}" if rank.pid else ""
    is_empty = rank.finding and not (rank.log_size or rank.finding.last_lines)
    yield "log", f"{rank.log_path} (empty)" if rank.log_path and is_empty else rank.log_path
    yield "lost", f"{rank.log_lost} bytes missing, from byte {rank.log_lost_from} on" if rank.log_lost else ""
    yield "rerun", rank.rerun


# --- The job ----------------------------------------------------------------------------------------------------------


def place(server_id: str, pod_name: str = "", host: str = "") -> str:
    """Describe a node: "192.168.0.25, pod ma-job-5f2c-trainjob-0"."""
    other = f"host {host}" if host and host != server_id else ""
    return ", ".join(filter(None, (server_id, pod_name and f"pod {pod_name}", other)))


def server(server_id: str, pod_name: str) -> str:
    """Name a node on the screen: "192.168.0.25 (pod ma-job-5f2c-trainjob-0)"."""
    return printable(Masker().text(f"{server_id} (pod {pod_name})" if pod_name else server_id))


def _ranks(job: JobRecord) -> str:
    numbers = format_numbers(sorted(rank.rank_id for rank in job.ranks if rank.rank_id >= 0))
    return f"{numbers} of {job.rank_size}" if job.rank_size and numbers else numbers


def step(last: AnyStep, now: float | None = None) -> str:
    """Describe the last step of a training: "1200 of 5000, 0.6 s per step, loss 2.31, 12 s ago"."""
    at = getattr(last, "at", 0.0)
    age = f"{duration(max(0.0, now - at))} ago" if now is not None and at else ""
    number, figures = step_number(last), step_figures(last)
    return ", ".join(filter(None, (number, *figures, age))) if number else ""


def step_number(last: AnyStep) -> str:
    """Return which step it is: "1200 of 5000"; "" without one."""
    if last.step is None:
        return ""
    return f"{last.step} of {last.steps}" if last.steps else f"{last.step}"


def step_figures(last: AnyStep, left: str = "") -> Iterator[str]:
    """Yield the figures of a step; `left` is how long the training will take."""
    yield f"{last.seconds:.3g} s per step" if last.seconds else ""
    yield left
    yield f"loss {last.loss:.4g}" if last.loss is not None else ""


def checkpoint(last: CheckpointRecord, now: float | None = None) -> str:
    """Describe the last checkpoint that ranks have reported: "step 1200, 12 min 5 s ago, /data/checkpoint-1200"."""
    parts = (
        "" if last.step is None else f"step {last.step}",
        f"{duration(max(0.0, now - last.at))} ago" if now is not None and last.at else "",
        f"without {rank_list(last.missing)}" if last.missing else "",
        last.path,
    )
    return ", ".join(filter(None, parts))


def _conditions(job: JobRecord) -> Iterator[Fact]:
    """Yield the conditions of a job, apart from its cause: a hang, a slow training, an unhealthy node."""
    cause = job.cause.sentence if job.cause else ""
    for one in job.conditions:
        if not (one.sentence and one.sentence in cause):
            since = f"since {clock(one.since)}" if one.since else ""
            yield one.condition, ", ".join(filter(None, (one.sentence, since)))


SLOW: Final = "slow"


def singled_out(job: JobRecord) -> dict[int, str]:
    """Return the ranks that a present hang or slow training singles out, each with a word for it."""
    found = {}
    for one in job.conditions:
        rank_id = one.facts.get("rank_id")
        if one.facts.get("rule") == Rule.STRAGGLER.value and isinstance(rank_id, int):
            found[rank_id] = SLOW
        elif one.condition == cloud_events.HANGING and one.facts.get("outlier"):
            groups = wording.suspects(job.hang, job.collectives)
            found |= {rank: "outlier" for group in groups for rank in group.rank_ids}
    return found


def why_silent(job: JobRecord) -> str:
    """Return why ranks that have written nothing are not quiet: "no output expected: only rank 0 prints"; or ""."""
    ranks = printing(job.ranks)
    return f"no output expected: only {rank_list(ranks)} print{'s' if len(ranks) == 1 else ''}" if ranks else ""


def briefly_silent(why: str, room: int) -> str:
    """Return why ranks are silent, in a narrow column only "only rank 0 prints"."""
    return why if len(why) <= room else why.rpartition(": ")[2]


def _attempts(job: JobRecord) -> str:
    """Describe the attempts of a job that is or was restarted: "3; the previous attempt failed: rank 2 failed: ..."."""
    is_restarting = job.state is JobState.RESTARTING
    if not (job.attempt or is_restarting):
        return ""
    failed = [attempt.sentence for attempt in job.attempts if attempt.verdict]  # the others were stopped
    # The sentence about a job that was stopped later ends with that about the attempt.
    whole = job.cause.with_certainty(len(job.ranks)) if job.cause else ""
    last = f"; the previous attempt failed: {failed[-1]}" if failed and not whole.endswith(failed[-1]) else ""
    return f"{job.attempt + 1}{_next_attempt(job.attempts[-1]) if is_restarting and job.attempts else ''}{last}"


def _next_attempt(failed: AttemptRecord) -> str:
    """Describe when the attempt after a failed one begins: "; the next one starts at 2026-11-22 09:47:36 +0800"."""
    at = failed.started_at + failed.seconds + failed.delay
    return f"; the next one starts at {clock(at)}" if failed.delay else "; the next one starts now"


def report(path: str, spare: str = "", problem: str = "") -> str:
    """Say where the report is: `path`, or `spare` if its disk did not take it, or why it was not written."""
    if spare:
        return f"{spare} (could not be written beside the logs{f': {problem}' if problem else ''})"
    return f"not written: {problem}" if problem else path


# --- The nodes of a job -----------------------------------------------------------------------------------------------

LEAST_TRIP: Final = 0.1  # milliseconds of a round trip that are shown
NODE_HEADS: Final = ("node", "place", "state", "alive", "step", "heard", "round trip", "clock", "differs", "cause")


def of_verdict(verdict: JobVerdict) -> Iterator[Fact]:
    """Yield what the nodes of a job have found out about its failure; it may be on another node."""
    note = CERTAINTY.get(verdict.certainty, "")
    where = ", ".join(filter(None, (str(verdict.node), place(verdict.address, verdict.pod))))
    yield "cause", f"{verdict}{note and f' ({note})'}" if verdict.sentence else ""
    yield "means", verdict.means
    yield "next", verdict.next
    yield "node", "" if verdict.node is None else where
    yield "log", f"{verdict.log} on that node" if verdict.log else ""
    yield "also", f"{node_list(verdict.tied)} may have failed first" if verdict.tied else ""
    yield "also", f"{node_list(verdict.failed_too)} failed as well" if verdict.failed_too else ""
    yield "nodes", f"nothing heard from {node_list(verdict.missing)}" if verdict.missing else ""


def _of_other_nodes(verdict: JobVerdict, *, has_failed: bool) -> Iterator[Fact]:
    """Yield which other nodes may have the cause, and the log of a rank there if none of this node `has_failed`.

    A verdict of this node alone knows nothing of them.
    """
    labels = ("also", "nodes") if has_failed else ("means", "next", "also", "nodes", "log")
    return chosen([] if verdict.is_alone else [*of_verdict(verdict)], *labels)


def node_state(node: NodeRecord) -> str:
    """Return the state of a node in a word or two."""
    if node.is_unreachable:
        return "unreachable"
    return node.state or ("not joined" if node.heard is None else "reachable")


def odd_nodes(rows: Sequence[NodeRecord]) -> list[NodeRecord]:
    """Return the nodes that have failed, or are in another state than most."""
    states = [node_state(row) for row in rows if not row.sentence]
    usual = max(states, key=states.count, default="")
    return [row for row in rows if row.sentence or node_state(row) != usual]


def node_rows(rows: Sequence[NodeRecord], most: int) -> tuple[Sequence[NodeRecord], str]:
    """Return `most` rows, first nodes that have failed, are missing, differ or are behind, and the others, counted."""
    if len(rows) <= most + 1:  # the count would take as much room as the last one
        return rows, ""
    odd = {row.node for row in odd_nodes(rows)}
    late = sorted(
        rows, key=lambda row: (not row.sentence, row.node not in odd, not row.differs, row.step or 0, row.node)
    )
    rest = list(map(node_state, late[most:]))
    counts = [f"{counted(rest.count(state), 'node')} {state}" for state in sorted({*rest})]
    return late[:most], f"and {', '.join(counts)}"


def node_cells(row: NodeRecord, *, is_over: bool = False) -> tuple[str, ...]:
    """Return the cells of a node below `NODE_HEADS`. If its job `is_over`, only what has not ended is told of it."""
    masker, is_told = Masker(), not is_over or row.is_unreachable
    return (
        str(row.node),
        masker.text(row.pod or row.host or row.address),
        node_state(row),
        f"{row.alive} of {counted(row.ranks, 'rank')}" if row.ranks and (is_told or row.alive) else "",
        "" if row.step is None else str(row.step),
        "" if row.heard is None or not is_told else f"{duration(max(0.0, row.heard))} ago",
        "" if row.round_trip is None else f"{max(LEAST_TRIP, 1000 * row.round_trip):.1f} ms",
        row.clock_offset,
        masker.text(row.differs),
        masker.text(row.sentence),
    )

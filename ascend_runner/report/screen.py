"""The sentences that a user reads when a job starts, hangs and ends. Pure: records in, text out.

The failure screen answers, in this order: what happened, why, in which rank, where to read more, and how the other
ranks ended.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from ascend_runner.observations import cause_text
from ascend_runner.observations.rank_record import Outcome, RankRecord
from ascend_runner.observations.rank_states import described
from ascend_runner.plan.spec import JobSpec, RankSpec
from ascend_runner.report import causes, health
from ascend_runner.secrets import Masker
from ascend_runner.supervision.causes import Cause, Ending
from ascend_runner.supervision.machine import HOLD
from ascend_runner.supervision.state import State
from ascend_runner.text import all_ranks, counted, duration, printable, rank_list, rank_title

if TYPE_CHECKING:
    from ascend_runner.diagnosis.finding import Finding, Peer, RootCause


def starting(job: JobSpec) -> str:
    """Return the line that announces an attempt: "starting ranks 0-7 of 8 on 10.0.0.1, logs in /log"."""
    if job.attempt:
        return f"restarting {placed(job)} (restart {job.attempt} of at most {job.restarts.max_restarts})"
    return f"starting {placed(job)}, logs in {job.log_dir}"


def placed(job: JobSpec) -> str:
    """Describe this node's part of a job: "ranks 0-7 of 8 on 10.0.0.1"."""
    started = [process.name for process in job.beside]
    if job.ranks:
        ranks = rank_list([rank.rank_id for rank in job.ranks])
        started.insert(0, f"{ranks} of {job.rank_size}" if job.rank_size else ranks)
    return f"{' and '.join(started)} on {_node(job)}"


def reason(cause: Cause, job: JobSpec) -> str:
    """Return a phrase for the cause of the end of a job: "rank 3 failed (exit status 1)", "received SIGTERM"."""
    return cause.named({spec.rank_id: spec.name for spec in job.processes}).reason


def holding(cause: Cause, job: JobSpec) -> str:
    """Return the line on a failed rank that may only have lost another one."""
    return f"{reason(cause, job)}; waiting up to {HOLD:g} s for other ranks to report the cause"


def stopping(state: State, why: str, living: Collection[int]) -> str:
    """Return the line on ranks that are asked to stop: "rank 3 failed (exit status 1); stopping the other 7 ranks"."""
    if state.cause and state.cause.ending:
        count = len(set(living) - {state.cause.rank_id})
        ranks = "the other rank" if count == 1 else f"the other {count} ranks"
        if not count:
            ranks = "processes that it left behind"
    else:
        ranks = counted(len(living), "rank")
    beginning = f"{why}; stopping" if why else "stopping"
    return f"{beginning} {ranks}{time_to_exit(state.grace, way_out(state.cause))}"


def time_to_exit(seconds: float, hint: str) -> str:
    """Return the part of a sentence on how long processes have to exit before they are killed."""
    return f", with up to {seconds:g} s to exit ({hint})" if seconds else " without a grace period"


def way_out(cause: Cause | None) -> str:
    """Return a hint on how to cut the grace period short."""
    return f"{cause.to_kill if cause else 'Ctrl-C'} to kill"


def ended(outcome: Outcome, job: JobSpec) -> str:
    """Sum up a job: one line after a success, else the cause, its evidence and the ends of the other ranks."""
    cause, failed = outcome.cause, outcome.failed
    if cause is None:
        number = len(job.ranks)
        ranks = all_ranks(number) if number > 1 else (job.ranks or job.beside)[0].title
        return f"{ranks} exited with status 0 after {duration(outcome.seconds)}"
    if cause.ending and failed:
        lines = _failure(cause, cause.ending, failed, outcome, job)
    elif cause.first_exit is not None and not cause.ending:
        lines = [str(cause), _report(outcome, job)]
    else:
        end = "" if str(cause).startswith("stopped") else "; stopped"
        took = f"after {duration(outcome.seconds)}"
        why_early = cause.why_early(outcome.seconds, job.checkpoint_grace)
        lines = [
            f"stopped {took}; {why_early}" if why_early else f"{cause}{end} {took}",
            *causes.of_hang(outcome, "  likely ", "  cause  may be "),
            f"  logs   {job.log_dir}",
            _report(outcome, job),
            *_unsaved(outcome),
        ]
    if outcome.last_failure:
        lines.append(f"  before {last_failure(outcome.last_failure)}")
    return "\n".join([*lines, *health.before_failure(outcome), *_others(outcome, job)])


def _failure(cause: Cause, ending: Ending, failed: RankRecord, outcome: Outcome, job: JobSpec) -> list[str]:
    spec = next(spec for spec in job.processes if spec.rank_id == failed.rank_id)
    lines = _headline(cause, ending, failed, outcome)
    lines += _evidence(failed.finding) if failed.finding else []
    lines += _labelled(failed, spec, job, outcome)
    lines += [f"  rerun  {failed.rerun}"] if failed.rerun else []
    if failed.finding and _has_read_nothing(failed.finding) and not spec.has_stdin:
        option = f"--stdin {max(spec.rank_id, 0)}"
        lines.append(f"  stdin  /dev/null; use {option} to connect this rank to the terminal, for input() and pdb")
    return lines


def _unsaved(outcome: Outcome) -> list[str]:
    """Return lines on the ranks that failed instead of saving when the job was to stop after a checkpoint."""
    alike: dict[tuple[str, ...], list[RankRecord]] = {}  # ranks by how they ended, and the evidence
    for rank in outcome.ranks:
        if rank.rank_id in outcome.unsaved:
            how = outcome.unsaved[rank.rank_id].in_parentheses
            alike.setdefault((how, *(_evidence(rank.finding) if rank.finding else ())), []).append(rank)
    lines = []
    for (how, *evidence), ranks in alike.items():
        they = "it" if len(ranks) == 1 else "they"
        lines.append(f"  failed {rank_list(rank.rank_id for rank in ranks)} before {they} had saved ({how})")
        lines += [*evidence, f"  log    {ranks[0].log_path}"]
    return lines


def last_failure(outcome: Outcome) -> str:
    """Describe the failure of the last attempt of a job that ended for another reason."""
    lines = [causes.sentence_with_certainty(outcome)]
    failed = outcome.failed
    lines += [f"  log    {failed.log_path}"] if failed else []
    lines += [f"  rerun  {failed.rerun}"] if failed and failed.rerun else []
    return "\n".join(lines)


def _headline(cause: Cause, ending: Ending, failed: RankRecord, outcome: Outcome) -> list[str]:
    """Name the rank that caused the failure, with the certainty, and the one that ended first if it is another."""
    root, title = outcome.root, cause.title
    if root is None or root.rank_id == cause.rank_id:
        head = [f"{title} failed: {ending} after {duration(failed.seconds)}{causes.certainty_note(outcome)}"]
    else:
        sure = "" if root.is_certain else f" ({root.certainty.value})"
        why = f": {root.first_summary}" if root.first_summary not in str(ending) else ""
        consequence = ", as a consequence" if root.is_first_a_consequence else ""
        head = [
            f"{rank_title(failed.rank_id, failed.name)} caused the failure{sure}: {root.summary}",
            f"  first  {title} ended first ({ending.in_parentheses}){consequence}{why}",
        ]
    return [*head, *_candidates(root, outcome)] if root else head


def _candidates(root: RootCause, outcome: Outcome) -> list[str]:
    """Return the line on other ranks that may be the cause."""
    if root.is_open and len(root.candidates) == 1 and any(rank.is_stopped for rank in outcome.ranks):
        return [f"  cause  may be {rank_list(root.candidates)}, or a rank that was stopped"]
    if root.is_open and len(root.candidates) > 1:
        *most, last = (f"rank {rank_id}" for rank_id in root.candidates)
        return [f"  cause  may be {', '.join(most)} or {last}"]
    if root.candidates and not root.is_open:
        errors = "an error" if len(root.candidates) == 1 else "errors"
        return [f"  also   {rank_list(root.candidates)} reported {errors} and may be the cause"]
    return []


def _has_read_nothing(finding: Finding) -> bool:
    """Return whether input() or a debugger reached the end of standard input."""
    return finding.exception.startswith(("EOFError: EOF when reading a line", "bdb.BdbQuit"))


def _evidence(finding: Finding) -> list[str]:
    """Return the evidence of a failure: the traceback or the last lines, then the meaning of them and the status."""
    lines = [f"  | {line}" for line in finding.excerpt or finding.last_lines]
    if finding.origin:
        lines.append(f"  origin {finding.origin}" + (f" ({finding.origin_place})" if finding.origin_place else ""))
    if finding.meaning:
        lines.append(f"  means  {finding.meaning}")
    if finding.code:
        label, text = cause_text.explained(finding.code, finding.code_kind, finding.code_meaning)
        lines.append(f"  {label:6} {text}")
    if finding.points_at:
        lines.append(f"  blames {', '.join(map(_peer, finding.points_at))}")
    return lines


def _labelled(failed: RankRecord, spec: RankSpec, job: JobSpec, outcome: Outcome) -> list[str]:
    """Return the labeled lines on the rank that failed and where to read more."""
    finding, suspected = failed.finding, outcome.suspected_peer
    device = "" if spec.name else f", device {spec.local_rank}"
    lines = [f"  check  {_suspicion(suspected)}"] if suspected else []
    lines += [
        f"  rank   {spec.name or spec.rank_id}{device} on server {_node(job)}, pid {failed.pid}",
        f"  log    {failed.log_path}",
    ]
    if failed.log_lost:
        lines.append(f"         {failed.log_lost} bytes missing, from byte {failed.log_lost_from} on")
    if finding is None:  # its plogs could not be read
        lines.append(f"  plog   {spec.env.get('ASCEND_PROCESS_LOG_PATH', '')}")
    elif finding.plog_path:
        lines.append(f"  plog   {finding.plog_path}")
    if finding and finding.plog_error:
        lines.append(f"         {finding.plog_error}")
    return [*lines, _report(outcome, job)]


def _report(outcome: Outcome, job: JobSpec) -> str:
    """Return the line on the report, which may be in the run directory because the disk with the logs is full."""
    place, problem = outcome.report_place, outcome.report_problem
    if not problem:
        return f"  report {job.report_path}"
    return f"  report {place} (not beside the logs: {problem})" if place else f"  report not written: {problem}"


def _suspicion(suspected: Peer) -> str:
    """Advise which peer to check: "rank 3 (device 1 on server 10.0.0.5) first: ranks 0, 1 only report losing it"."""
    verb = "only reports" if len(suspected.reported_by) == 1 else "only report"
    return f"{_peer(suspected)} first: {rank_list(suspected.reported_by)} {verb} losing it"


def _peer(peer: Peer) -> str:
    """Describe a peer by all that is known about it: "rank 3 (device 3 on server 10.0.0.5)"."""
    device = "" if peer.device_id is None else f"device {peer.device_id}"
    server = f"server {peer.server_id}" if peer.server_id else ""
    address = f"device address {peer.device_ip}" if peer.device_ip and not server else ""
    place = " on ".join(part for part in (device or address, server) if part)
    if peer.rank_id is None:
        return place or "an unnamed peer"

    return f"rank {peer.rank_id} ({place})" if place else f"rank {peer.rank_id}"


def _node(job: JobSpec) -> str:
    pod = f" (pod {job.pod_name})" if job.pod_name else ""
    return printable(Masker().text(f"{job.server_id}{pod}"))


def _others(outcome: Outcome, job: JobSpec) -> list[str]:
    """Return the lines on the ranks that are not the cause, one for each kind of end."""
    cause, root = outcome.cause, outcome.root
    culprit = root.rank_id if root else cause.first_exit if cause else None
    fates: dict[str, list[int]] = {}
    for rank in outcome.ranks:
        if rank.rank_id != culprit or culprit is None:
            is_alike = root is not None and rank.rank_id in root.alike
            fate = "failed in the same way" if is_alike else described(rank.state, rank.ending)
            fates.setdefault(fate, []).append(rank.rank_id)

    label = "ranks " if culprit is None else "others"
    lines = [f"{fate}: {names(rank_ids, job)}" for fate, rank_ids in fates.items()]
    return [f"  {'      ' if number else label} {line}" for number, line in enumerate(lines)]


def names(rank_ids: Collection[int], job: JobSpec) -> str:
    """List ranks by number and auxiliary processes by name: "ranks 0, 1 and scheduler"."""
    auxiliary = [process.name for process in job.beside if process.rank_id in rank_ids]
    ranks = [rank_id for rank_id in rank_ids if rank_id >= 0]
    return " and ".join([*([rank_list(ranks)] if ranks else []), *auxiliary])

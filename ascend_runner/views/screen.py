"""The sentences that a user reads when a job starts, hangs and ends. Pure: records in, text out.

The failure screen answers, in this order: what happened, why, in which rank, where to read more, and how the other
ranks ended.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence
from signal import SIGKILL
from typing import TYPE_CHECKING, Final

from ascend_runner import programs
from ascend_runner.errors import RETRY_MAY_HELP
from ascend_runner.plan.spec import JobSpec
from ascend_runner.record.job_record import JobRecord
from ascend_runner.record.rank_record import Outcome, RankRecord, RankState, described
from ascend_runner.supervision import cloud_events, machine
from ascend_runner.supervision.causes import Cause, Exited, FindingKind, NodeFinding, named
from ascend_runner.supervision.job_machine import Failed, Job, Released, StopRequested, Verdict
from ascend_runner.supervision.state import State
from ascend_runner.text import (
    abbreviated,
    all_of,
    clock,
    counted,
    duration,
    in_seconds,
    printable,
    rank_list,
    signal_name,
)
from ascend_runner.views import facts, wording
from ascend_runner.views.facts import Fact

if TYPE_CHECKING:
    from ascend_runner.diagnosis.finding import Finding
    from ascend_runner.record.nodes import JobVerdict
    from ascend_runner.training.checkpoints import Checkpoints

MOST_SHOWN: Final = 3  # findings after a failure; the report has all
LABELS: Final = {
    "candidates": "cause",
    facts.COLLECTIVE: "waits",
    "lost": "",
    "plog error": "",
}  # of facts, where the screen has others
NOT_HELD: Final = "not held (--hold): the cause is probably on another node"


def starting(job: JobSpec, attempt: int = 0) -> str:
    """Return the line that announces an attempt: "starting ranks 0-7 of 8 on 10.0.0.1, logs in /log"."""
    if attempt:
        return f"restarting {placed(job)} (restart {attempt} of at most {job.restarts.max_restarts})"
    return f"starting {placed(job)}, logs in {job.files.log_dir}"


def placed(job: JobSpec) -> str:
    """Describe this node's part of a job: "ranks 0-7 of 8 on 10.0.0.1"."""
    started = [process.name for process in job.beside]
    if job.ranks:
        ranks = rank_list([rank.rank_id for rank in job.ranks])
        started.insert(0, f"{ranks} of {job.rank_size}" if job.rank_size else ranks)
    return f"{' and '.join(started)} on {facts.server(job.server_id, job.pod_name)}"


def reason(cause: Cause, job: JobSpec) -> str:
    """Return a phrase for the cause of the end of a job: "rank 3 failed (exit status 1)", "received SIGTERM"."""
    return named(cause, {spec.rank_id: spec.name for spec in job.processes}).reason


def holding(cause: Cause, job: JobSpec) -> str:
    """Return the line on a failed rank that may only have lost another one, or from which the framework recovers."""
    if job.stopping.recovery:
        return (
            f"{reason(cause, job)}; the framework has up to {job.stopping.recovery:g} s to recover; the other ranks are"
            " not stopped before then (Ctrl-C to stop)"
        )
    seconds = machine.hold(cause, job.stopping.grace) if isinstance(cause, Exited) else machine.HOLD
    who = "HCCL" if seconds > machine.HOLD else "other ranks"
    return f"{reason(cause, job)}; waiting up to {in_seconds(seconds)} for {who} to report the cause"


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
    return f", with up to {in_seconds(seconds)} to exit ({hint})" if seconds else " without a grace period"


def way_out(cause: Cause | None) -> str:
    """Return a hint on how to cut the grace period short."""
    return f"{cause.to_kill if cause else 'Ctrl-C'} to kill"


def ended(outcome: Outcome, job: JobSpec, seconds: float | None = None) -> str:
    """Sum up a job: one line after a success, else the cause, its evidence and the ends of the other ranks.

    It took `seconds`, or as long as its last attempt.
    """
    seconds = outcome.seconds if seconds is None else seconds
    cause, failed = outcome.cause, outcome.failed
    if cause is None:
        number = len(job.ranks)
        ranks = all_of(number, "rank") if number > 1 else (job.ranks or job.beside)[0].title
        return f"{ranks} exited with status 0 after {duration(seconds)}"
    if outcome.elsewhere and outcome.elsewhere.sentence:
        lines = _failure_elsewhere(outcome.elsewhere, outcome, job)
    elif cause.ending and failed:
        lines = _failure(failed, outcome, job)
    elif cause.first_exit is not None and not cause.ending:
        lines = [str(cause), _report(outcome, job)]
    else:
        end = "" if str(cause).startswith("stopped") else "; stopped"
        took = f"after {duration(seconds)}"
        why_early = cause.why_early(seconds, job.stopping.checkpoint_grace)
        known = facts.facts(JobRecord(cause=wording.cause_record(outcome), collectives=outcome.collectives))
        lines = [
            f"stopped {took}; {why_early}" if why_early else f"{cause}{end} {took}",
            *wording.of_hang(outcome, "  likely ", "  cause  may be "),
            *_laid_out(known, facts.COLLECTIVE),
            f"  logs   {job.files.log_dir}",
            _report(outcome, job),
            *_unsaved(outcome),
        ]
    if outcome.last_failure:
        lines.append(f"  before {last_failure(outcome.last_failure)}")
    return "\n".join([*lines, *_before_failure(outcome), *_others(outcome, job)])


def _failure(failed: RankRecord, outcome: Outcome, job: JobSpec) -> list[str]:
    spec, finding = next(spec for spec in job.processes if spec.rank_id == failed.rank_id), failed.finding
    record = JobRecord(
        cause=wording.cause_record(outcome),
        ranks=outcome.ranks,
        verdict=outcome.verdict,
        server_id=job.server_id,
        pod_name=job.pod_name,
    )
    known = facts.facts(record)
    lines = _causes(known, finding)
    if finding is None:  # its plogs could not be read
        lines.append(f"  plog   {spec.env.get('ASCEND_PROCESS_LOG_PATH', '')}")
    lines += [*_laid_out(known, "plog", "plog error"), _report(outcome, job), *_laid_out(known, "rerun")]
    if finding and _has_read_nothing(finding) and not spec.has_stdin:
        option = f"--stdin {max(spec.rank_id, 0)}"
        lines.append(f"  stdin  /dev/null; use {option} to connect this rank to the terminal, for input() and pdb")
    return lines


def _causes(known: list[Fact], finding: Finding | None) -> list[str]:
    """Return the lines from the cause to the log of the rank that is named."""
    (_label, head), *_others = facts.chosen(known, "cause")
    evidence = _evidence(finding) if finding else []
    doubts = _laid_out(known, "first", "also", "nodes", "candidates")
    return [head, *doubts, *evidence, *_laid_out(known, "check", "rank", "log", "lost")]


def explained(record: JobRecord) -> list[str]:
    """Return the lines on a failure that is known from a report, or from the logs of another launcher."""
    known, failed, cause = facts.facts(record), record.failed, record.cause
    lines = _causes(known, failed.finding if failed else None) + _laid_out(known, "plog", "plog error", "rerun")
    fates: dict[str, list[RankRecord]] = {}
    for rank in record.ranks:
        if rank is not failed:
            is_alike = cause is not None and rank.rank_id in cause.alike
            fates.setdefault("failed in the same way" if is_alike else _fate(rank), []).append(rank)
    ends = [f"{fate}: {_titles(ranks)}" for fate, ranks in fates.items()]
    return lines + [f"  {'      ' if number else 'others'} {end}" for number, end in enumerate(ends)]


def _titles(ranks: Sequence[RankRecord]) -> str:
    numbers = [rank.rank_id for rank in ranks if not rank.name]
    titles = [*([rank_list(numbers)] if numbers else []), *(rank.title for rank in reversed(ranks) if rank.name)]
    return " and ".join(filter(None, [", ".join(titles[:-1]), titles[-1]]))


def _fate(rank: RankRecord) -> str:
    """Describe how another rank ended, as far as it is known."""
    if rank.state is RankState.UNKNOWN:
        return "no error in the log"
    if rank.ending is None and rank.finding and rank.finding.only_reports_a_peer:
        return "reported a lost peer"
    return described(rank.state, rank.ending)


def _failure_elsewhere(verdict: JobVerdict, outcome: Outcome, job: JobSpec) -> list[str]:
    """Return the lines on a failure of another node, as far as that has sent them."""
    (_label, head), *known = [(label, printable(text)) for label, text in facts.of_verdict(verdict)]
    lines = [head, *(f"  | {printable(line)}" for line in verdict.lines)]
    return [*lines, *_laid_out(known, "means", "next", "node", "log", "also", "nodes"), _report(outcome, job)]


def _laid_out(known: list[Fact], *labels: str) -> list[str]:
    """Return the facts with these labels in lines, each label once."""
    found = list(facts.chosen(known, *labels))
    heads = ["" if one == before else LABELS.get(one, one) for (before, _), (one, _) in zip([("", ""), *found], found)]
    return [f"  {head:6} {text}" for head, (_, text) in zip(heads, found)]


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
    lines = [wording.sentence_with_certainty(outcome)]
    failed = outcome.failed
    lines += [f"  log    {failed.log_path}"] if failed else []
    lines += [f"  rerun  {failed.rerun}"] if failed and failed.rerun else []
    return "\n".join(lines)


def _has_read_nothing(finding: Finding) -> bool:
    """Return whether input() or a debugger reached the end of standard input."""
    return finding.exception.startswith(("EOFError: EOF when reading a line", "bdb.BdbQuit"))


def _evidence(finding: Finding) -> list[str]:
    """Return the evidence of a failure: the traceback or the last lines, then the meaning of them and the status."""
    lines = [f"  | {line}" for line in finding.excerpt or finding.last_lines]
    return lines + _laid_out([*facts.of_finding(finding)], "origin", "means", "code", "next", "blames")


def _report(outcome: Outcome, job: JobSpec) -> str:
    """Return the line on the report, which may be in the run directory because the disk with the logs is full."""
    spare = outcome.report_place if outcome.report_problem else ""
    return f"  report {facts.report(job.report_path, spare, outcome.report_problem)}"


def _others(outcome: Outcome, job: JobSpec) -> list[str]:
    """Return the lines on the ranks that are not the cause, one for each kind of end.

    The verdict on a failure is made when the ranks of all nodes have ended, but for those that it misses. How they have
    ended is only known if every node has just stopped them.
    """
    cause, verdict, elsewhere = outcome.cause, outcome.verdict, outcome.elsewhere
    root = None if elsewhere else outcome.root
    culprit = elsewhere.rank_id if elsewhere else root.rank_id if root else cause.first_exit if cause else None
    fates: dict[str, list[int]] = {}
    for rank in outcome.ranks:
        if rank.rank_id != culprit or culprit is None:
            is_alike = root is not None and rank.rank_id in root.alike
            fate = "failed in the same way" if is_alike else described(rank.state, rank.ending)
            fates.setdefault(fate, []).append(rank.rank_id)
    here, there = {rank.rank_id for rank in outcome.ranks}, set(range(job.rank_size))
    if verdict and there > here and not (verdict.is_alone or verdict.missing or outcome.is_from_outside):
        count = job.nodes[0]
        nodes = f"the other {counted(count - 1, 'node')}" if count > 2 else "the other node"  # noqa: PLR2004
        if verdict.is_stopped:
            fates = {f"stopped on {all_of(count, 'node')}": sorted((there | here) - {culprit})}
        elif others := sorted(there - here - {culprit}):
            fates[f"failed, ended or not started on {nodes}"] = others
    label = "ranks " if culprit is None else "others"
    lines = [f"{fate}: {names(rank_ids, job)}" for fate, rank_ids in fates.items()]
    return [f"  {'      ' if number else label} {line}" for number, line in enumerate(lines)]


def names(rank_ids: Collection[int], job: JobSpec) -> str:
    """List ranks by number and auxiliary processes by name: "ranks 0, 1 and scheduler"."""
    auxiliary = [process.name for process in job.beside if process.rank_id in rank_ids]
    ranks = [rank_id for rank_id in rank_ids if rank_id >= 0]
    return " and ".join([*([rank_list(ranks)] if ranks else []), *auxiliary])


def _before_failure(outcome: Outcome) -> list[str]:
    """Return lines on the problems of this node before a rank failed or the job hung, errors first.

    A warning of the pre-check, such as a machine without NPUs, is no hint at the cause.
    """
    if not (outcome.cause and outcome.cause.may_be_the_node):
        return []
    failed = outcome.failed
    ends = [rank.started_after + rank.seconds for rank in ([failed] if failed else outcome.ranks)]
    failed_at = outcome.started_at + min(ends, default=0.0)
    relevant = [
        one
        for one in outcome.findings
        if (one.kind is FindingKind.UNHEALTHY or (one.kind is FindingKind.PRECHECK and one.is_error))
        and one.at <= failed_at
    ]
    relevant.sort(key=lambda finding: (not finding.is_error, -finding.at))
    lines = [_with_time(finding, failed_at) for finding in relevant[:MOST_SHOWN]]
    if relevant[MOST_SHOWN:]:
        lines.append(f"{counted(len(relevant) - MOST_SHOWN, 'further finding')} in the report")
    return [f"  {'     ' if number else 'node '}  {line}" for number, line in enumerate(lines)]


def _with_time(finding: NodeFinding, failed_at: float) -> str:
    """Return the sentence on a finding, with its time before the remedy, which a finding of the pre-check may have."""
    found = finding.subject if finding.kind is FindingKind.PRECHECK else finding.sentence
    return f"{found}, {duration(failed_at - finding.at)} before{finding.sentence[len(found) :]}"


# --- Between two attempts and after the last one ----------------------------------------------------------------------


def held(spec: JobSpec, job: Job, until: float, *, way_in: str, pid: int) -> str:
    """Return the lines on how long a job is held, and how to enter and release it.

    `until` is in seconds since the epoch, `pid` the process to signal. The lines belong below those about the failure.
    """
    lines = [f"  held   until {clock(until)} ({duration(job.delay)}), then exit status {_status(job)}"]
    lines += [f"  enter  {way_in}"] if way_in else []
    lines += [f"  release with {programs.command('ascend-job release')} {shlex.quote(spec.job_id)}, or kill {pid}"]
    return "\n" + "\n".join(lines)


def released(end: Released | StopRequested, job: Job) -> str:
    """Return the sentence on what ended the hold, with the exit status that whoever started the job sees."""
    signum, is_orphaned = (0, False) if isinstance(end, Released) else (end.signum, end.is_orphaned)
    status = f"{128 + SIGKILL} instead of {_status(job)}" if signum == SIGKILL else f"{_status(job)}"
    return f"{cloud_events.released(signum, is_orphaned=is_orphaned)}; exit status {status}"


def lingering(job: Job) -> str:
    """Return the line on how long a node that only lost another one stays, to show below those about the failure."""
    return (
        f"\n  waiting {duration(job.delay)} so that the node that caused the failure exits first (--linger), or until a"
        f" stop signal; then exit status {_status(job)}"
    )


def _status(job: Job) -> int | None:
    return job.status if job.exit_verdict is None else job.exit_verdict


def attempt_failed(event: Failed, job: Job) -> str:
    """Describe a failed attempt and what follows: "rank 3 failed: ...; restarting in 10 s (restart 1 of 3)"."""
    delay = f" in {duration(job.delay)}" if job.delay else ""
    if job.verdict is Verdict.NO_TIME:
        return f"{event.sentence}; not restarting because the time limit would end the job before a restart{delay}"
    if job.verdict is not Verdict.RESTART:
        return f"{event.sentence}; not restarting because of {signal_name(event.signum)}"
    return f"{event.sentence}; restarting{delay} (restart {job.attempt + 1} of at most {job.policy.max_restarts})"


def attempts(job: Job) -> str:
    """Describe the attempts of a job, why it is not restarted, and the exit verdict; "" if neither was requested."""
    lines = ""
    if job.policy.max_restarts and (job.attempt or job.verdict):
        lines = f"\n  attempts {job.attempt + 1}"
    if job.policy.max_restarts and job.verdict:
        why = cloud_events.why_no_restart(job.verdict, job.fingerprint, is_by_status=job.status in job.policy.never)
        same = _same_failures(job.same_failures, job.attempt + 1)
        lines += f"{same}{why and f'; no restart: {why}'}"
    if job.exit_verdict is None:
        return lines
    hope = "may help" if job.exit_verdict == RETRY_MAY_HELP else "will not help"
    return f"{lines}\n  exit   {job.exit_verdict} instead of {job.status}: a retry {hope} (--exit-verdict)"


def _same_failures(same: int, attempts: int) -> str:
    """Return how many of the last attempts have failed in the same way, "" if it is only the last one."""
    if same < 2:  # noqa: PLR2004
        return ""
    if same < attempts:
        return f", the last {same} with the same failure"
    return f", {'both' if attempts == 2 else 'all'} with the same failure"  # noqa: PLR2004


def unclear_checkpoints(job: JobSpec, found: Checkpoints) -> str:
    """Return the warning about a directory for checkpoints in which none is recognized, or none is complete."""
    why = "complete" if found.incomplete else "recognized"
    return (
        f"no checkpoint is {why} in --checkpoint-dir {job.files.checkpoint_dir!r}"
        f" ({found.incomplete or abbreviated(found.unrecognized)}): until one is, the progress of the training is"
        " unknown, and ASCEND_RUNNER_CHECKPOINT is empty"
    )


def held_devices(pids: Collection[int]) -> str:
    """Return the warning about NPUs that are still in use at the start of an attempt."""
    verb = "process" if len(pids) == 1 else "processes"
    return f"NPUs of this job are still in use by {verb} {', '.join(map(str, pids))}; starting anyway"
